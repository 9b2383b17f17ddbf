//! Listening socket and connections of a fake server.

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use hbase_rs::{Compressor, ServerName, protocol::FrameReader, transport::AuthMethod};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{
    call::{self, SocketAction},
    registry, sasl,
    state::SharedState,
};
use crate::tls;

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
    let tls = state.lock().tls.clone();
    let Some(stream) = tls::accept(socket, tls.as_ref()).await else { return };
    let (mut read, mut write) = split(stream);
    let mut preamble = [0; 6];
    if read.read_exact(&mut preamble).await.is_err() {
        return;
    }
    let tokens = state.lock().tokens.clone();
    let is_digest = preamble == AuthMethod::Digest.preamble();
    if !is_digest && preamble != AuthMethod::Simple.preamble() {
        return;
    }
    match tokens {
        None => {
            if is_digest {
                // The server reads the empty token, and continues without authentication.
                let _ = read.read_u32().await;
                let _ = send(&mut write, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xa8]).await;
            }
            serve_calls(read, write, server, state, false).await;
        }
        Some(tokens) if is_digest => {
            let nonce = state.lock().tick();
            let session = sasl::authenticate(read, write, &tokens, nonce).await;
            let Some((session, (read, write))) = session else { return };
            state.lock().protections.push(session.protection().to_owned());
            tokio::join!(session.pump(), serve_calls(read, write, server, state, true));
        }
        Some(_) => {
            let text = "Authentication is required";
            refuse(&mut write, text).await;
        }
    }
}

/// Sends an `AccessDeniedException` for the connection and closes it.
async fn refuse(write: &mut (impl AsyncWrite + Unpin), text: &str) {
    let denied = call::encode_exception(u32::MAX, "security.AccessDeniedException", text);
    let _ = send(write, &denied).await;
    let _ = write.shutdown().await;
    // As after a fault: gives the client time to read.
    sleep(Duration::from_millis(20)).await;
}

/// Executes the calls of a connection. An authenticated client must not name a user.
async fn serve_calls(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    server: usize,
    state: SharedState,
    is_authenticated: bool,
) {
    let mut buffer = BytesMut::new();
    let frames = FrameReader::new(MAX_REQUEST);
    // Set once the connection header is read.
    let mut compressor = None;
    let (delayed, mut ready) = mpsc::unbounded_channel::<Bytes>();
    loop {
        while let Some(frame) = frames.next(&mut buffer).unwrap() {
            let Some(compressor) = compressor else {
                let header = pb::ConnectionHeader::decode(frame).unwrap();
                if !registry::has_service(&state.lock(), server, header.service_name()) {
                    return;
                }
                if is_authenticated && header.user_info.is_some() {
                    return refuse(&mut write, "User: token is not allowed to impersonate").await;
                }
                compressor = Some(requested_compressor(&header));
                continue;
            };
            match call::handle_frame(&state, server, compressor, frame) {
                SocketAction::Send(bytes) => {
                    if send(&mut write, &bytes).await.is_err() {
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
                    let _ = send(&mut write, &bytes).await;
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
                if send(&mut write, &bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn send(write: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    write.write_all(bytes).await?;
    write.flush().await
}

/// Returns the cell block compressor that a connection header requests.
fn requested_compressor(header: &pb::ConnectionHeader) -> Option<Compressor> {
    [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib]
        .into_iter()
        .find(|compressor| header.cell_block_compressor_class() == compressor.class_name())
}
