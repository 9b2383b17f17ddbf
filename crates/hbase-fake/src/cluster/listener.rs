//! Listening socket and connections of a fake server.

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use hbase_rs::{
    Compressor, ServerName,
    protocol::{AuthMethod, FrameReader},
};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{
    call::{self, SocketAction},
    state::SharedState,
};

/// Longest wait for the port of a restarted server.
const MAX_BIND_WAIT: Duration = Duration::from_secs(30);
/// Maximum length of a request frame.
const MAX_REQUEST: usize = 64 << 20;

/// A running server; dropping it closes its sockets.
#[derive(Debug)]
pub(crate) struct ServerListener(JoinHandle<()>);

impl Drop for ServerListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerListener {
    /// Stops the server and waits until its port is free.
    pub(crate) async fn stop(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }

    /// Starts a server and enters it into the state with a new start code.
    pub(crate) async fn start(index: usize, port: u16, state: &SharedState) -> Self {
        let listener = bind(port).await;
        let port = listener.local_addr().unwrap().port();
        {
            let mut state = state.lock();
            let start_code = state.tick();
            let name = ServerName::new("127.0.0.1", port, start_code);
            if index < state.servers.len() {
                state.servers[index] = name;
            } else {
                state.servers.push(name);
            }
        }
        Self(tokio::spawn(accept(listener, index, state.clone())))
    }
}

/// Binds a port, or any port for 0. While a server is stopped, another connection may take its port; this
/// waits until the port is free.
async fn bind(port: u16) -> TcpListener {
    let deadline = Instant::now() + MAX_BIND_WAIT;
    loop {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(Duration::from_millis(20)).await;
            }
            bound => return bound.unwrap(),
        }
    }
}

/// Accepts connections. They close when this task ends.
async fn accept(listener: TcpListener, server: usize, state: SharedState) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted.unwrap();
                state.lock().connections += 1;
                connections.spawn(serve(socket, server, state.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(socket: TcpStream, server: usize, state: SharedState) {
    let (mut read, mut write) = socket.into_split();
    let mut preamble = [0; 6];
    if read.read_exact(&mut preamble).await.is_err() || preamble != AuthMethod::Simple.preamble() {
        return;
    }
    let mut buffer = BytesMut::new();
    let frames = FrameReader::new(MAX_REQUEST);
    // Set once the connection header is read.
    let mut compressor = None;
    let (delayed, mut ready) = mpsc::unbounded_channel::<Bytes>();
    loop {
        while let Some(frame) = frames.next(&mut buffer).unwrap() {
            let Some(compressor) = compressor else {
                compressor = Some(requested_compressor(frame));
                continue;
            };
            match call::handle_frame(&state, server, compressor, frame) {
                SocketAction::Send(bytes) => {
                    if write.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                SocketAction::SendLater(wait, bytes) => {
                    let delayed = delayed.clone();
                    tokio::spawn(async move {
                        sleep(wait).await;
                        let _ = delayed.send(bytes);
                    });
                }
                SocketAction::Nothing => {}
                SocketAction::SendAndClose(bytes) => {
                    let _ = write.write_all(&bytes).await;
                    let _ = write.shutdown().await;
                    // Gives the client time to read the last bytes before the socket is dropped.
                    sleep(Duration::from_millis(20)).await;
                    return;
                }
            }
        }
        tokio::select! {
            count = read.read_buf(&mut buffer) => match count {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
            Some(bytes) = ready.recv() => {
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Returns the cell block compressor that a connection header requests.
fn requested_compressor(header: Bytes) -> Option<Compressor> {
    let header = pb::ConnectionHeader::decode(header).unwrap();
    [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib]
        .into_iter()
        .find(|compressor| header.cell_block_compressor_class() == compressor.class_name())
}
