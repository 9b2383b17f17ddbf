//! A ZooKeeper ensemble of one server in this process: sessions and readable znodes.
//!
//! It implements connect, ping, close, SASL, getData and getChildren. Tests close connections, expire sessions and
//! make requests fail.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::tls::{self, FakeTls};

/// Timeout of every session, in milliseconds.
const SESSION_MS: i32 = 6_000;

/// Maximum length of a packet in bytes.
const MAX_PACKET: usize = 4 << 20;

/// Error code: no such node.
const NO_NODE: i32 = -101;

/// Error code: the authentication failed.
const AUTH_FAILED: i32 = -115;

/// Error code: the session is not authenticated, and ends.
const SASL_REQUIRED: i32 = -124;

/// Error code: unsupported request.
const UNIMPLEMENTED: i32 = -6;

/// Types of requests.
const PING: i32 = 11;
const CLOSE: i32 = -11;
const SASL: i32 = 102;

/// A ZooKeeper ensemble; dropping it closes its sockets.
#[derive(Debug)]
pub struct FakeEnsemble {
    address: String,
    state: Arc<EnsembleState>,
    closes: watch::Sender<u64>,
    task: JoinHandle<()>,
}

/// The server's side of an authentication.
pub trait FakeSasl: Send {
    /// Handles a token of the client.
    fn step(&mut self, token: &[u8]) -> SaslAnswer;
}

/// Answer to a token of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslAnswer {
    /// Sends this token and expects another one.
    Continue(Vec<u8>),
    /// Sends this token; the session is authenticated.
    Done(Vec<u8>),
    /// Rejects the authentication.
    Reject,
}

/// Starts an authentication.
type StartSasl = dyn Fn() -> Box<dyn FakeSasl> + Send + Sync;

#[derive(Default)]
struct EnsembleState {
    data: Mutex<EnsembleData>,
    tls: Mutex<Option<FakeTls>>,
    sasl: Mutex<Option<Arc<StartSasl>>>,
    /// Error code of all reads, 0 for none.
    read_error: AtomicI32,
    /// True if requests get no response.
    silent: AtomicBool,
}

impl fmt::Debug for EnsembleState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EnsembleState").field("data", &self.data).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct EnsembleData {
    nodes: BTreeMap<String, Bytes>,
    /// Id of the last session.
    sessions: i64,
    /// Sessions up to this id are expired.
    expired: i64,
}

impl FakeEnsemble {
    /// Starts an ensemble without znodes.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(EnsembleState::default());
        let (closes, closed) = watch::channel(0);
        let task = tokio::spawn(accept(listener, Arc::clone(&state), closed));
        Self { address, state, closes, task }
    }

    /// Quorum string for clients: `host:port`.
    #[must_use]
    pub fn quorum(&self) -> &str {
        &self.address
    }

    /// Changes the TLS of new connections; `None` for plain text.
    pub fn set_tls(&self, tls: Option<FakeTls>) {
        *self.state.tls.lock() = tls;
    }

    /// Requires an authentication of new connections.
    pub fn require_sasl(&self, start: impl Fn() -> Box<dyn FakeSasl> + Send + Sync + 'static) {
        *self.state.sasl.lock() = Some(Arc::new(start));
    }

    /// Makes all reads fail with an error code of ZooKeeper; 0 for none.
    pub fn set_read_error(&self, code: i32) {
        self.state.read_error.store(code, Ordering::SeqCst);
    }

    /// Writes a znode.
    pub fn set(&self, path: &str, data: impl Into<Bytes>) {
        self.state.data.lock().nodes.insert(path.to_owned(), data.into());
    }

    /// Removes a znode.
    pub fn remove(&self, path: &str) {
        self.state.data.lock().nodes.remove(path);
    }

    /// Closes all connections; the sessions stay valid.
    pub fn close_connections(&self) {
        self.closes.send_modify(|closes| *closes += 1);
    }

    /// Expires all sessions and closes their connections.
    pub fn expire_sessions(&self) {
        {
            let mut data = self.state.data.lock();
            data.expired = data.sessions;
        }
        self.close_connections();
    }

    /// Stops responding to requests, or starts again.
    pub fn set_silent(&self, silent: bool) {
        self.state.silent.store(silent, Ordering::SeqCst);
    }

    /// Number of sessions opened so far.
    #[must_use]
    pub fn sessions(&self) -> i64 {
        self.state.data.lock().sessions
    }
}

impl Drop for FakeEnsemble {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<EnsembleState>, closed: watch::Receiver<u64>) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (state, mut closed) = (Arc::clone(&state), closed.clone());
        closed.mark_unchanged();
        connections.spawn(async move {
            tokio::select! {
                _ = serve(socket, &state) => {}
                _ = closed.changed() => {}
            }
        });
    }
}

/// Serves a connection. Returns `None` when it closes.
async fn serve(socket: TcpStream, state: &EnsembleState) -> Option<()> {
    let tls = state.tls.lock().clone();
    let mut stream = tls::accept(socket, tls.as_ref()).await?;
    let socket = &mut stream;
    let mut sasl = state.sasl.lock().as_ref().map(|start| start());
    let mut connect = read_packet(socket).await?;
    connect.advance(4 + 8 + 4);
    let requested = connect.get_i64();
    let session = {
        let mut data = state.data.lock();
        if requested == 0 {
            data.sessions += 1;
            data.sessions
        } else if requested <= data.expired {
            0
        } else {
            requested
        }
    };
    let mut response = BytesMut::new();
    response.put_i32(0);
    response.put_i32(if session == 0 { 0 } else { SESSION_MS });
    response.put_i64(session);
    response.put_i32(16);
    response.put_bytes(0, 16);
    response.put_u8(0);
    send_packet(socket, &response).await?;
    if session == 0 {
        return None;
    }
    loop {
        let request = read_packet(socket).await?;
        if state.silent.load(Ordering::SeqCst) {
            continue;
        }
        let kind = request.clone().split_off(4).get_i32();
        let error = match kind {
            SASL => {
                let answer = authenticate(&mut sasl, request.slice(8..));
                send_packet(socket, &response_to(&request, answer.0, &answer.1)).await?;
                if answer.0 != 0 {
                    return None;
                }
                continue;
            }
            PING | CLOSE => 0,
            _ if sasl.is_some() => SASL_REQUIRED,
            _ => state.read_error.load(Ordering::SeqCst),
        };
        if error == 0 {
            send_packet(socket, &respond(&request, state)).await?;
        } else {
            send_packet(socket, &response_to(&request, error, &[])).await?;
        }
        if kind == CLOSE || error == SASL_REQUIRED {
            return None;
        }
    }
}

/// Handles a token. Returns error code and body of the response; `sasl` becomes `None` when the session is
/// authenticated.
fn authenticate(sasl: &mut Option<Box<dyn FakeSasl>>, mut body: Bytes) -> (i32, Vec<u8>) {
    let length = body.get_i32() as usize;
    let Some(mechanism) = sasl else { return (AUTH_FAILED, Vec::new()) };
    let token = match mechanism.step(&body[..length]) {
        SaslAnswer::Continue(token) => token,
        SaslAnswer::Done(token) => {
            *sasl = None;
            token
        }
        SaslAnswer::Reject => return (AUTH_FAILED, Vec::new()),
    };
    (0, [&(token.len() as i32).to_be_bytes()[..], &token].concat())
}

/// A response with an error code and a body.
fn response_to(request: &[u8], error: i32, body: &[u8]) -> BytesMut {
    let mut response = BytesMut::from(&request[..4]);
    response.put_i64(1);
    response.put_i32(error);
    response.put_slice(body);
    response
}

/// Names of the znodes below a path; `None` if it does not exist. A znode's parents exist.
fn children<'a>(nodes: &'a BTreeMap<String, Bytes>, path: &str) -> Option<BTreeSet<&'a str>> {
    let parent = format!("{}/", path.trim_end_matches('/'));
    let below = nodes.keys().filter_map(|node| node.strip_prefix(&parent));
    let names: BTreeSet<_> = below.filter_map(|rest| rest.split('/').next()).collect();
    (path == "/" || nodes.contains_key(path) || !names.is_empty()).then_some(names)
}

fn respond(packet: &Bytes, state: &EnsembleState) -> BytesMut {
    let mut request = packet.clone();
    request.advance(4);
    let kind = request.get_i32();
    let mut body = BytesMut::new();
    let error = match kind {
        PING | CLOSE => 0,
        // getData.
        4 => {
            let length = request.get_i32() as usize;
            let path = String::from_utf8(request.split_to(length).to_vec()).unwrap();
            match state.data.lock().nodes.get(&path) {
                Some(data) => {
                    body.put_i32(data.len() as i32);
                    body.put_slice(data);
                    // The znode's Stat: times, versions, owner, sizes.
                    body.put_bytes(0, 68);
                    0
                }
                None => NO_NODE,
            }
        }
        // getChildren.
        8 => {
            let length = request.get_i32() as usize;
            let path = String::from_utf8(request.split_to(length).to_vec()).unwrap();
            match children(&state.data.lock().nodes, &path) {
                Some(names) => {
                    body.put_i32(names.len() as i32);
                    for name in names {
                        body.put_i32(name.len() as i32);
                        body.put_slice(name.as_bytes());
                    }
                    0
                }
                None => NO_NODE,
            }
        }
        _ => UNIMPLEMENTED,
    };
    response_to(packet, error, &body)
}

async fn read_packet(socket: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    let length = socket.read_u32().await.ok()? as usize;
    if length > MAX_PACKET {
        return None;
    }
    let mut packet = vec![0; length];
    socket.read_exact(&mut packet).await.ok()?;
    Some(packet.into())
}

async fn send_packet(socket: &mut (impl AsyncWrite + Unpin), packet: &[u8]) -> Option<()> {
    socket.write_u32(packet.len() as u32).await.ok()?;
    socket.write_all(packet).await.ok()?;
    socket.flush().await.ok()
}
