//! A ZooKeeper in the process: sessions, and nodes that can be read.
//!
//! Enough of its protocol for clients that look things up. Sessions can be cut and made to expire.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
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

/// Milliseconds that every session is granted.
const SESSION_MS: i32 = 6_000;

/// Answer: there is no such node.
const NO_NODE: i32 = -101;

/// Answer: not known here.
const UNIMPLEMENTED: i32 = -6;

/// An ensemble of one, which runs until it is dropped.
#[derive(Debug)]
pub struct FakeEnsemble {
    address: String,
    shared: Arc<Shared>,
    cut: watch::Sender<u64>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether requests stay without an answer.
    silent: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<String, Bytes>,
    /// The last session; those up to `expired` are over.
    sessions: i64,
    expired: i64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeEnsemble {
    /// Starts it, without nodes.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let (cut, cuts) = watch::channel(0);
        let task = tokio::spawn(accept(listener, Arc::clone(&shared), cuts));
        Self { address, shared, cut, task }
    }

    /// Its address, `host:port`.
    #[must_use]
    pub fn quorum(&self) -> &str {
        &self.address
    }

    /// Writes a node.
    pub fn set(&self, path: &str, data: impl Into<Bytes>) {
        self.shared.lock().nodes.insert(path.to_owned(), data.into());
    }

    /// Removes a node.
    pub fn remove(&self, path: &str) {
        self.shared.lock().nodes.remove(path);
    }

    /// Closes all connections; the sessions live on.
    pub fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Ends all sessions and closes their connections.
    pub fn expire(&self) {
        {
            let mut state = self.shared.lock();
            state.expired = state.sessions;
        }
        self.cut();
    }

    /// Leaves requests without an answer, or answers again.
    pub fn silence(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// Sessions that were opened so far.
    #[must_use]
    pub fn sessions(&self) -> i64 {
        self.shared.lock().sessions
    }
}

impl Drop for FakeEnsemble {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, cuts: watch::Receiver<u64>) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (shared, mut cuts) = (Arc::clone(&shared), cuts.clone());
        cuts.mark_unchanged();
        connections.spawn(async move {
            tokio::select! {
                _ = serve(socket, &shared) => {}
                _ = cuts.changed() => {}
            }
        });
    }
}

/// Answers until the client is done. `None` when the connection ends.
async fn serve(mut socket: TcpStream, shared: &Shared) -> Option<()> {
    let mut connect = packet(&mut socket).await?;
    connect.advance(4 + 8 + 4);
    let asked = connect.get_i64();
    let session = {
        let mut state = shared.lock();
        if asked == 0 {
            state.sessions += 1;
            state.sessions
        } else if asked <= state.expired {
            0
        } else {
            asked
        }
    };
    let mut answer = BytesMut::new();
    answer.put_i32(0);
    answer.put_i32(if session == 0 { 0 } else { SESSION_MS });
    answer.put_i64(session);
    answer.put_i32(16);
    answer.put_bytes(0, 16);
    answer.put_u8(0);
    send(&mut socket, &answer).await?;
    if session == 0 {
        return None;
    }
    loop {
        let request = packet(&mut socket).await?;
        if shared.silent.load(Ordering::SeqCst) {
            continue;
        }
        let last = request.clone().split_off(4).get_i32() == -11;
        send(&mut socket, &answer_to(request, shared)).await?;
        if last {
            return None;
        }
    }
}

fn answer_to(mut request: Bytes, shared: &Shared) -> BytesMut {
    let (xid, kind) = (request.get_i32(), request.get_i32());
    let mut body = BytesMut::new();
    let error = match kind {
        // Ping and the end of the session.
        11 | -11 => 0,
        // Data of a node.
        4 => {
            let length = request.get_i32() as usize;
            let path = String::from_utf8(request.split_to(length).to_vec()).unwrap();
            match shared.lock().nodes.get(&path) {
                Some(data) => {
                    body.put_i32(data.len() as i32);
                    body.put_slice(data);
                    // What is known of the node: times, versions, owner, sizes.
                    body.put_bytes(0, 68);
                    0
                }
                None => NO_NODE,
            }
        }
        _ => UNIMPLEMENTED,
    };
    let mut answer = BytesMut::new();
    answer.put_i32(xid);
    answer.put_i64(1);
    answer.put_i32(error);
    answer.put_slice(&body);
    answer
}

async fn packet(socket: &mut TcpStream) -> Option<Bytes> {
    let length = socket.read_u32().await.ok()? as usize;
    let mut packet = vec![0; length];
    socket.read_exact(&mut packet).await.ok()?;
    Some(packet.into())
}

async fn send(socket: &mut TcpStream, packet: &[u8]) -> Option<()> {
    socket.write_u32(packet.len() as u32).await.ok()?;
    socket.write_all(packet).await.ok()
}
