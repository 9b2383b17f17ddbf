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
mod first_words;
mod reader;
mod writer;

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{Semaphore, SemaphorePermit, mpsc},
    time::{Instant, timeout_at},
};

pub use self::error::{CallError, DisconnectReason};
pub(crate) use self::first_words::FirstWords;
use self::{calls::Calls, writer::Outgoing};
use crate::{
    config::ClientConfig,
    frame::{Answer, CallMessage, Request},
    handshake::{Service, connection_header},
    metrics::{Method, PeerMetrics},
    server_name::ServerName,
    transport::{Channel, Destination, Established},
};

/// Room in the queue to the writer. Permits bound what is under way; this only pool wake-ups.
const QUEUE: usize = 256;

/// What a call counts beside its bytes when the load of connections is compared.
const CALL_LOAD: usize = 4 << 10;

/// Silence on the socket after which the system asks whether the peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A connection that answers calls until it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    server: ServerName,
    calls: Arc<Calls>,
    queue: mpsc::Sender<Outgoing>,
    call_permits: Semaphore,
    byte_permits: Semaphore,
    max_calls: usize,
    max_call_bytes: u32,
    class: CallClass,
    metrics: PeerMetrics,
}

/// Class of a call. Each class has connections of its own, so that a long response delays no
/// short one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallClass {
    /// Single calls and batches.
    Data,
    /// Scans.
    Scans,
    /// hbase:meta.
    Meta,
}

/// What a call asks, apart from its message.
#[derive(Clone, Debug)]
pub(crate) struct CallSpec {
    pub(crate) method: &'static str,
    pub(crate) priority: Option<u32>,
    pub(crate) deadline: Instant,
}

impl Connection {
    /// Connects. The handshake leaves with the first call.
    pub(crate) async fn open(
        config: &ClientConfig,
        server: &ServerName,
        service: Service,
        class: CallClass,
        first_words: Arc<FirstWords>,
        metrics: PeerMetrics,
        deadline: Instant,
    ) -> Result<Self, CallError> {
        let failed =
            |source| CallError::Connect { server: server.clone(), source: Arc::new(source) };
        let patience = Instant::now() + config.connect_timeout;
        let connecting = async {
            let socket = prepare(TcpStream::connect(config.address(server)).await?)?;
            let to = Destination { server, service, user: &config.user };
            config.transport.establish(socket, to).await
        };
        let Established { stream, first } =
            match timeout_at(patience.min(deadline), connecting).await {
                Ok(established) => established.map_err(failed)?,
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
        let mut handshake = BytesMut::from(&first[..]);
        handshake.extend_from_slice(&connection_header(&config.user, service, config.compressor));
        let handshake = handshake.freeze();
        let calls = Arc::new(Calls::new(first_words));
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let halves = Halves { config, handshake, outgoing, calls: &calls, metrics: &metrics };
        match stream {
            Channel::Plain(socket) => {
                let (read, write) = socket.into_split();
                halves.run(read, write);
            }
            Channel::Layered(stream) => {
                let (read, write) = tokio::io::split(stream);
                halves.run(read, write);
            }
        }
        metrics.count(|counts| counts.opened.one());
        let max_call_bytes = u32::try_from(config.max_call_bytes.max(1)).unwrap_or(u32::MAX);
        let max_calls = config.max_calls.max(1);
        Ok(Self {
            server: server.clone(),
            calls,
            queue,
            call_permits: Semaphore::new(max_calls),
            byte_permits: Semaphore::new(max_call_bytes as usize),
            max_calls,
            max_call_bytes,
            class,
            metrics,
        })
    }

    /// How much it carries: bytes of requests, and something for each call.
    pub(crate) fn load(&self) -> usize {
        let calls = self.max_calls.saturating_sub(self.call_permits.available_permits());
        let bytes =
            (self.max_call_bytes as usize).saturating_sub(self.byte_permits.available_permits());
        bytes + calls * CALL_LOAD
    }

    /// Whether calls can still be made.
    pub(crate) fn is_open(&self) -> bool {
        self.calls.is_open()
    }

    /// Ends the connection; calls under way fail.
    pub(crate) fn close(&self, reason: &DisconnectReason) {
        self.calls.close(reason);
    }

    /// Makes a call and waits for its answer, at most until the deadline.
    pub(crate) async fn call(
        &self,
        spec: &CallSpec,
        message: &impl CallMessage,
        block: Bytes,
    ) -> Result<Answer, CallError> {
        let begun = Instant::now();
        let answer = self.make(spec, message, block).await;
        let method =
            if self.class == CallClass::Meta { Method::Meta } else { Method::named(spec.method) };
        self.metrics.client.called(method, begun.elapsed(), answer.is_ok());
        answer
    }

    async fn make(
        &self,
        spec: &CallSpec,
        message: &impl CallMessage,
        block: Bytes,
    ) -> Result<Answer, CallError> {
        let size = message.length() + block.len();
        let _permits = match timeout_at(spec.deadline, self.permits(size)).await {
            Ok(permits) => permits?,
            Err(_) => return Err(self.timed_out(spec, false)),
        };
        let _in_flight = self.metrics.in_flight(size as u64);
        let begun = Instant::now();
        let timeout = spec.deadline.saturating_duration_since(begun);
        let mut call = self.calls.begin().map_err(|reason| self.disconnected(false, reason))?;
        let mut head = BytesMut::new();
        let (method, priority) = (spec.method, spec.priority);
        let request = Request { call_id: call.id(), method, priority, timeout, block: &block };
        let message = message.frame(&request, &mut head);
        let outgoing = Outgoing { call_id: call.id(), head: head.freeze(), message, block };
        // A writer that is gone has its reason, and the call learns it below.
        if timeout_at(spec.deadline, self.queue.send(outgoing)).await.is_err() {
            return Err(self.timed_out(spec, false));
        }
        // A little later than the server gives up, so that its last word can arrive.
        let grace = spec.deadline + timeout.min(Duration::from_secs(2)) / 10;
        if let Ok(answer) = timeout_at(grace, call.answer()).await {
            return answer.map_err(|end| end.into_error(&self.server));
        }
        let sent = call.give_up(begun.elapsed());
        Err(self.timed_out(spec, sent))
    }

    async fn permits(
        &self,
        size: usize,
    ) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), CallError> {
        let size = u32::try_from(size).unwrap_or(u32::MAX).clamp(1, self.max_call_bytes);
        if let Ok(calls) = self.call_permits.try_acquire()
            && let Ok(bytes) = self.byte_permits.try_acquire_many(size)
        {
            return Ok((calls, bytes));
        }
        self.metrics.count(|counts| counts.waits.one());
        let closed = |_| self.disconnected(false, DisconnectReason::Closed);
        let calls = self.call_permits.acquire().await.map_err(closed)?;
        let bytes = self.byte_permits.acquire_many(size).await.map_err(closed)?;
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

/// What the two halves of a connection are started with.
struct Halves<'a> {
    config: &'a ClientConfig,
    handshake: Bytes,
    outgoing: mpsc::Receiver<Outgoing>,
    calls: &'a Arc<Calls>,
    metrics: &'a PeerMetrics,
}

impl Halves<'_> {
    fn run(
        self,
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) {
        let (calls, metrics) = (Arc::clone(self.calls), self.metrics.clone());
        tokio::spawn(writer::run(write, self.handshake, self.outgoing, calls, metrics));
        let (calls, metrics) = (Arc::clone(self.calls), self.metrics.clone());
        let (max_frame, idle) = (self.config.max_frame, self.config.idle_timeout);
        tokio::spawn(async move {
            reader::run(read, max_frame, idle, calls, &metrics).await;
            metrics.count(|counts| counts.closed.one());
        });
    }
}

fn prepare(socket: TcpStream) -> std::io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
    Ok(socket)
}
