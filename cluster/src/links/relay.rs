//! One link: accepts connections and forwards their bytes.

use std::{io, net::SocketAddr, time::Duration};

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::LinkState;

/// Bytes of one read.
const CHUNK: usize = 64 << 10;
/// Delayed reads of one direction; if the queue is full, reading stops.
const QUEUE: usize = 128;

/// Accepts connections until the runtime ends.
pub(super) async fn serve(
    listener: TcpListener,
    server: SocketAddr,
    state: watch::Receiver<LinkState>,
) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(connection(client, server, state.clone()));
            }
            // Most likely the process is out of file descriptors.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Forwards one connection until it ends. An error resets both sides.
async fn connection(mut client: TcpStream, to: SocketAddr, mut state: watch::Receiver<LinkState>) {
    let now = *state.borrow_and_update();
    if now.refuse {
        reset(&client);
        return;
    }
    let mut server = None;
    let mut later = state.clone();
    let broken = tokio::select! {
        result = forward(&mut client, &mut server, to, &mut state) => result.is_err(),
        _ = later.wait_for(|state| state.epoch != now.epoch) => true,
    };
    if broken {
        reset(&client);
        if let Some(server) = &server {
            reset(server);
        }
    }
}

async fn forward(
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    to: SocketAddr,
    state: &mut watch::Receiver<LinkState>,
) -> io::Result<()> {
    wait_until_open(state).await;
    let server = server.insert(TcpStream::connect(to).await?);
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let ended = tokio::try_join!(
        forward_one_way(from_client, to_server, state.clone()),
        forward_one_way(from_server, to_client, state.clone()),
    );
    // A reset does not pass a cut link either.
    wait_until_open(state).await;
    ended.map(|_| ())
}

async fn forward_one_way(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<LinkState>,
) -> io::Result<()> {
    let (queue, mut queued) = mpsc::channel::<(Instant, Bytes)>(QUEUE);
    let delayed = state.clone();
    let read = async move {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK);
            let length = from.read_buf(&mut chunk).await?;
            let due = Instant::now() + delayed.borrow().delay;
            if queue.send((due, chunk.freeze())).await.is_err() || length == 0 {
                return io::Result::Ok(());
            }
        }
    };
    let write = async {
        while let Some((due, chunk)) = queued.recv().await {
            sleep_until(due).await;
            wait_until_open(&mut state).await;
            if chunk.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&chunk).await?;
        }
        io::Result::Ok(())
    };
    tokio::try_join!(read, write).map(|_| ())
}

/// Waits while the link is cut. An error means that the links were dropped, and ends the wait.
async fn wait_until_open(state: &mut watch::Receiver<LinkState>) {
    let _ = state.wait_for(|state| !state.cut).await;
}

/// Makes closing the connection a reset.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
