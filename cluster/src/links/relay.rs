//! One link: takes connections and carries their bytes.

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

use super::Mode;

/// Bytes of one read.
const CHUNK: usize = 64 << 10;
/// Reads that wait for their time in one direction; beyond, the sender has to wait.
const QUEUE: usize = 128;

/// Takes connections for as long as the runtime lives.
pub(super) async fn serve(listener: TcpListener, server: SocketAddr, mode: watch::Receiver<Mode>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(connection(client, server, mode.clone()));
            }
            // Out of file descriptors, most likely.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Carries one connection until it ends. An end that is not in order is a reset for both sides.
async fn connection(mut client: TcpStream, to: SocketAddr, mut mode: watch::Receiver<Mode>) {
    let now = *mode.borrow_and_update();
    if now.refuse {
        reset(&client);
        return;
    }
    let mut server = None;
    let mut later = mode.clone();
    let broken = tokio::select! {
        carried = carry(&mut client, &mut server, to, &mut mode) => carried.is_err(),
        _ = later.wait_for(|mode| mode.age != now.age) => true,
    };
    if broken {
        reset(&client);
        if let Some(server) = &server {
            reset(server);
        }
    }
}

async fn carry(
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    to: SocketAddr,
    mode: &mut watch::Receiver<Mode>,
) -> io::Result<()> {
    open(mode).await;
    let server = server.insert(TcpStream::connect(to).await?);
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let ended = tokio::try_join!(
        one_way(from_client, to_server, mode.clone()),
        one_way(from_server, to_client, mode.clone()),
    );
    // News of a reset do not pass a cut either.
    open(mode).await;
    ended.map(|_| ())
}

async fn one_way(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut mode: watch::Receiver<Mode>,
) -> io::Result<()> {
    let (queue, mut queued) = mpsc::channel::<(Instant, Bytes)>(QUEUE);
    let delayed = mode.clone();
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
            open(&mut mode).await;
            if chunk.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&chunk).await?;
        }
        io::Result::Ok(())
    };
    tokio::try_join!(read, write).map(|_| ())
}

/// Waits while the link is cut. Its owner's end is the end of waiting, for the runtime goes too.
async fn open(mode: &mut watch::Receiver<Mode>) {
    let _ = mode.wait_for(|mode| !mode.cut).await;
}

/// Makes the connection's end a reset.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
