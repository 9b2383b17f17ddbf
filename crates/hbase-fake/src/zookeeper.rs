//! A ZooKeeper ensemble of one server in this process: sessions and readable znodes.
//!
//! It implements connect, ping, close, getData and getChildren. Tests close connections and expire sessions.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// Timeout of every session, in milliseconds.
const SESSION_MS: i32 = 6_000;

/// Error code: no such node.
const NO_NODE: i32 = -101;

/// Error code: unsupported request.
const UNIMPLEMENTED: i32 = -6;

/// A ZooKeeper ensemble; dropping it closes its sockets.
#[derive(Debug)]
pub struct FakeEnsemble {
    address: String,
    state: Arc<EnsembleState>,
    closes: watch::Sender<u64>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct EnsembleState {
    data: Mutex<EnsembleData>,
    /// True if requests get no response.
    silent: AtomicBool,
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

    /// Writes a znode.
    pub fn set(&self, path: &str, data: impl Into<Bytes>) {
        self.state.data.lock().nodes.insert(path.to_owned(), data.into());
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
async fn serve(mut socket: TcpStream, state: &EnsembleState) -> Option<()> {
    let mut connect = read_packet(&mut socket).await?;
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
    send_packet(&mut socket, &response).await?;
    if session == 0 {
        return None;
    }
    loop {
        let request = read_packet(&mut socket).await?;
        if state.silent.load(Ordering::SeqCst) {
            continue;
        }
        let closes_session = request.clone().split_off(4).get_i32() == -11;
        send_packet(&mut socket, &respond(request, state)).await?;
        if closes_session {
            return None;
        }
    }
}

/// Names of the znodes below a path; `None` if it does not exist. A znode's parents exist.
fn children<'a>(nodes: &'a BTreeMap<String, Bytes>, path: &str) -> Option<BTreeSet<&'a str>> {
    let parent = format!("{}/", path.trim_end_matches('/'));
    let below = nodes.keys().filter_map(|node| node.strip_prefix(&parent));
    let names: BTreeSet<_> = below.filter_map(|rest| rest.split('/').next()).collect();
    (path == "/" || nodes.contains_key(path) || !names.is_empty()).then_some(names)
}

fn respond(mut request: Bytes, state: &EnsembleState) -> BytesMut {
    let (xid, kind) = (request.get_i32(), request.get_i32());
    let mut body = BytesMut::new();
    let error = match kind {
        // Ping, close.
        11 | -11 => 0,
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
    let mut response = BytesMut::new();
    response.put_i32(xid);
    response.put_i64(1);
    response.put_i32(error);
    response.put_slice(&body);
    response
}

async fn read_packet(socket: &mut TcpStream) -> Option<Bytes> {
    let length = socket.read_u32().await.ok()? as usize;
    let mut packet = vec![0; length];
    socket.read_exact(&mut packet).await.ok()?;
    Some(packet.into())
}

async fn send_packet(socket: &mut TcpStream, packet: &[u8]) -> Option<()> {
    socket.write_u32(packet.len() as u32).await.ok()?;
    socket.write_all(packet).await.ok()
}
