//! The socket of a fake region server.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
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
    Shared,
    call::{self, Reply},
};

/// Longest request.
const MAX_REQUEST: usize = 64 << 20;

/// A server's life: dropped, all its sockets close.
#[derive(Debug)]
pub(crate) struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    /// Ends it, and returns when its port is free.
    pub(crate) async fn stop(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }

    /// Begins to listen and enters the server into the state, in a new life.
    pub(crate) async fn start(index: usize, port: u16, state: &Shared) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        {
            let mut state = state.lock();
            let life = state.tick();
            let name = ServerName::new("127.0.0.1", port, life);
            if index < state.servers.len() {
                state.servers[index] = name;
            } else {
                state.servers.push(name);
            }
        }
        Self(tokio::spawn(accept(listener, index, state.clone())))
    }
}

/// Connections end with the task that holds them.
async fn accept(listener: TcpListener, server: usize, state: Shared) {
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

async fn serve(socket: TcpStream, server: usize, state: Shared) {
    let (mut read, mut write) = socket.into_split();
    let mut preamble = [0; 6];
    if read.read_exact(&mut preamble).await.is_err() || preamble != AuthMethod::Simple.preamble() {
        return;
    }
    let mut buffer = BytesMut::new();
    let frames = FrameReader::new(MAX_REQUEST);
    // Of the connection, once its header is read.
    let mut compressor = None;
    let (late, mut ready) = mpsc::unbounded_channel::<Bytes>();
    loop {
        while let Some(frame) = frames.next(&mut buffer).unwrap() {
            let Some(compressor) = compressor else {
                compressor = Some(agreed(frame));
                continue;
            };
            match call::answer(&state, server, compressor, frame) {
                Reply::Frame(bytes) => {
                    if write.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Reply::Late(wait, bytes) => {
                    let late = late.clone();
                    tokio::spawn(async move {
                        sleep(wait).await;
                        let _ = late.send(bytes);
                    });
                }
                Reply::Nothing => {}
                Reply::Last(bytes) => {
                    let _ = write.write_all(&bytes).await;
                    let _ = write.shutdown().await;
                    // The other side closes when it has read that far.
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

/// Compressor that a connection header asks for.
fn agreed(header: Bytes) -> Option<Compressor> {
    let header = pb::ConnectionHeader::decode(header).unwrap();
    [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib]
        .into_iter()
        .find(|compressor| header.cell_block_compressor_class() == compressor.class_name())
}

/// Puts a length in front.
pub(crate) fn framed(body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(4 + body.len());
    frame.put_u32(body.len() as u32);
    frame.put_slice(body);
    frame.freeze()
}
