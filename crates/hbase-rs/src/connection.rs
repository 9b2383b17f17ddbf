//! One connection to one service of one server, shared by many calls.
//!
//! ```text
//! callers ─► permits (calls, bytes) ─► queue ─► writer: one write for all that waits
//!    ▲                                              │ call map
//!    └── answer or error, own timer ◄──── reader: frames, by call id
//! ```
//!
//! * Each caller waits with its own timer, for a permit as well as for the answer. When it is over
//!   the id is forgotten and the connection left alone: servers drop late calls without a word. A
//!   late answer to a forgotten id is passed over.
//! * A connection is dead when calls run out of time one after the other and not a byte was read in
//!   between. Then it is closed, which frees the writer too, should the peer have stopped reading.
//! * When it ends, each call learns whether its request had gone out: only those are in doubt.

mod calls;
mod error;
mod reader;
mod writer;

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use prost::Message;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout_at},
};

pub use self::error::{CallError, DisconnectReason};
use self::{calls::Calls, writer::Outgoing};
use crate::{
    config::ClientConfig,
    frame::{Answer, Request},
    handshake::{AuthMethod, Service, connection_header},
    server_name::ServerName,
};

/// Room in the queue to the writer. Permits bound what is under way; this only spares wake-ups.
const QUEUE: usize = 256;

/// Silence on the socket after which the system asks whether the peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A connection that answers calls until it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    server: ServerName,
    calls: Arc<Calls>,
    queue: mpsc::Sender<Outgoing>,
    call_permits: Arc<Semaphore>,
    byte_permits: Arc<Semaphore>,
    max_call_bytes: u32,
}

/// What a call asks, apart from its message.
#[derive(Clone, Debug)]
pub(crate) struct CallSpec {
    pub(crate) method: &'static str,
    pub(crate) priority: Option<u32>,
    pub(crate) deadline: Instant,
}

impl Connection {
    /// Connects. The handshake leaves with the first call. So many connections before ended without
    /// a word.
    pub(crate) async fn open(
        config: &ClientConfig,
        server: &ServerName,
        service: Service,
        silent_before: u32,
        deadline: Instant,
    ) -> Result<Self, CallError> {
        let failed =
            |source| CallError::Connect { server: server.clone(), source: Arc::new(source) };
        let patience = Instant::now() + config.connect_timeout;
        let connecting = TcpStream::connect(config.address(server));
        let socket = match timeout_at(patience.min(deadline), connecting).await {
            Ok(socket) => socket.and_then(prepare).map_err(failed)?,
            // A caller in a hurry does not speak against the server.
            Err(_) if deadline < patience => {
                return Err(CallError::Timeout {
                    server: server.clone(),
                    method: "connect",
                    sent: false,
                });
            }
            Err(_) => return Err(failed(std::io::ErrorKind::TimedOut.into())),
        };
        let mut handshake = BytesMut::from(&AuthMethod::Simple.preamble()[..]);
        handshake.extend_from_slice(&connection_header(&config.user, service, config.compressor));
        let (read, write) = socket.into_split();
        let calls = Arc::new(Calls::new(silent_before));
        let (queue, outgoing) = mpsc::channel(QUEUE);
        tokio::spawn(writer::run(write, handshake.freeze(), outgoing, Arc::clone(&calls)));
        tokio::spawn(reader::run(read, config.max_frame, config.idle_timeout, Arc::clone(&calls)));
        let max_call_bytes = u32::try_from(config.max_call_bytes.max(1)).unwrap_or(u32::MAX);
        Ok(Self {
            server: server.clone(),
            calls,
            queue,
            call_permits: Arc::new(Semaphore::new(config.max_calls.max(1))),
            byte_permits: Arc::new(Semaphore::new(max_call_bytes as usize)),
            max_call_bytes,
        })
    }

    /// Whether calls can still be made.
    pub(crate) fn is_open(&self) -> bool {
        self.calls.is_open()
    }

    /// Connections in a row that ended without a word, with this one.
    pub(crate) fn silent(&self) -> u32 {
        self.calls.silent()
    }

    /// Ends the connection; calls under way fail.
    pub(crate) fn close(&self, reason: &DisconnectReason) {
        self.calls.close(reason);
    }

    /// Makes a call and waits for its answer, at most until the deadline.
    pub(crate) async fn call(
        &self,
        spec: &CallSpec,
        message: &impl Message,
        block: Bytes,
    ) -> Result<Answer, CallError> {
        let size = message.encoded_len() + block.len();
        let _permits = match timeout_at(spec.deadline, self.permits(size)).await {
            Ok(permits) => permits?,
            Err(_) => return Err(self.timed_out(spec, false)),
        };
        let timeout = spec.deadline.saturating_duration_since(Instant::now());
        let mut call = self.calls.begin().map_err(|reason| self.disconnected(false, reason))?;
        let mut head = BytesMut::new();
        let (method, priority) = (spec.method, spec.priority);
        Request { call_id: call.id(), method, priority, timeout, block: &block }
            .encode_head(message, &mut head);
        let outgoing = Outgoing { call_id: call.id(), head: head.freeze(), block };
        // A writer that is gone has its reason, and the call learns it below.
        if timeout_at(spec.deadline, self.queue.send(outgoing)).await.is_err() {
            return Err(self.timed_out(spec, false));
        }
        // A little later than the server gives up, so that its last word can arrive.
        let grace = spec.deadline + timeout.min(Duration::from_secs(2)) / 10;
        if let Ok(answer) = timeout_at(grace, call.answer()).await {
            return answer.map_err(|end| end.into_error(&self.server));
        }
        let sent = call.give_up();
        Err(self.timed_out(spec, sent))
    }

    async fn permits(
        &self,
        size: usize,
    ) -> Result<(OwnedSemaphorePermit, OwnedSemaphorePermit), CallError> {
        let size = u32::try_from(size).unwrap_or(u32::MAX).clamp(1, self.max_call_bytes);
        let closed = |_| self.disconnected(false, DisconnectReason::Closed);
        let calls = Arc::clone(&self.call_permits).acquire_owned().await.map_err(closed)?;
        let bytes =
            Arc::clone(&self.byte_permits).acquire_many_owned(size).await.map_err(closed)?;
        Ok((calls, bytes))
    }

    fn timed_out(&self, spec: &CallSpec, sent: bool) -> CallError {
        CallError::Timeout { server: self.server.clone(), method: spec.method, sent }
    }

    fn disconnected(&self, sent: bool, reason: DisconnectReason) -> CallError {
        CallError::Disconnected { server: self.server.clone(), sent, reason }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.calls.close(&DisconnectReason::Closed);
    }
}

fn prepare(socket: TcpStream) -> std::io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
    Ok(socket)
}
