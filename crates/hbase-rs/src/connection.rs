//! A connection to one service of one server, multiplexed by many calls.
//!
//! ```text
//! callers ─► permits (calls, bytes) ─► queue ─► writer: one write per batch of requests
//!    ▲                                              │ call map
//!    └── response or error, timeout ◄──── reader: frames, by call id
//! ```
//!
//! * Each call has its own deadline for its permits and for its response. A timeout removes the id of
//!   the call and keeps the connection, because servers drop late calls silently. A late response to a
//!   removed id is ignored.
//! * Consecutive timeouts without received data mark the connection as dead. It is closed, which also
//!   cancels a write to a peer that has stopped reading.
//! * When the connection ends, each pending call learns whether its request was sent: only sent calls
//!   are in doubt.

mod error;
mod pending_calls;
mod reader;
mod sasl_failure;
mod silent_close;
mod writer;

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Semaphore, SemaphorePermit, mpsc},
    time::{Instant, timeout_at},
};

pub use self::error::{CallError, DisconnectReason};
pub(crate) use self::silent_close::SilentCloseTracker;
use self::{pending_calls::PendingCalls, writer::QueuedRequest};
use crate::{
    config::ClientConfig,
    frame::{CallMessage, Request, ResponseBody},
    handshake::{Service, connection_header},
    metrics::{META_METHOD, PeerMetrics},
    server_name::ServerName,
    transport::{
        Channel, Destination, Established, Identity, Role, TransportError, TransportErrorKind,
    },
};

/// Capacity of the queue to the writer. The number of calls is bounded by permits.
const QUEUE_CAPACITY: usize = 256;

/// Load of a call in addition to the bytes of its request.
const CALL_LOAD: usize = 4 << 10;

/// A connection; dropping it fails its pending calls.
#[derive(Debug)]
pub(crate) struct Connection {
    server: ServerName,
    calls: Arc<PendingCalls>,
    queue: mpsc::Sender<QueuedRequest>,
    call_permits: Semaphore,
    byte_permits: Semaphore,
    max_calls: usize,
    max_call_bytes: u32,
    class: CallClass,
    metrics: PeerMetrics,
}

/// Class of a call. Each class has its own connections, so that long responses do not delay short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallClass {
    /// Single calls and batches.
    Data,
    /// Scans.
    Scans,
    /// hbase:meta.
    Meta,
}

/// Parameters of a call other than its message.
#[derive(Clone, Debug)]
pub(crate) struct CallSpec {
    pub(crate) method: &'static str,
    pub(crate) priority: Option<u32>,
    pub(crate) deadline: Instant,
}

/// What all connections to a server for one service and call class have in common.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server: ServerName,
    pub(crate) service: Service,
    pub(crate) role: Role,
    pub(crate) class: CallClass,
    pub(crate) silent_closes: Arc<SilentCloseTracker>,
    pub(crate) metrics: PeerMetrics,
}

impl Connection {
    /// Connects. The handshake is sent with the first request.
    pub(crate) async fn open(endpoint: &Endpoint, deadline: Instant) -> Result<Self, CallError> {
        let Endpoint { config, server, silent_closes, metrics, .. } = endpoint;
        let (service, class) = (endpoint.service, endpoint.class);
        let failed =
            |source| CallError::Connect { server: server.clone(), source: Arc::new(source) };
        let not_built = config.compressor.and_then(|compressor| compressor.check().err());
        if let Some(error) = not_built {
            return Err(failed(TransportError::new(
                TransportErrorKind::Permanent,
                error.to_string(),
            )));
        }
        let transport = &config.transport;
        let timeout = config.connect_timeout + transport.login_timeout();
        let connect_deadline = Instant::now() + timeout;
        let address = config.address(server);
        let to = Destination {
            server,
            address: &address,
            service,
            role: endpoint.role,
            user: &config.user,
            connect_timeout: config.connect_timeout,
        };
        let connecting = transport.connect(to);
        let Established { stream, preamble, identity } =
            match timeout_at(connect_deadline.min(deadline), connecting).await {
                Ok(established) => established.map_err(failed)?,
                // A deadline that passes before the connect timeout says nothing about the server.
                Err(_) if deadline < connect_deadline => {
                    return Err(CallError::not_sent(server, "connect"));
                }
                Err(_) => {
                    return Err(failed(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
                }
            };
        let user = match &identity {
            Identity::None => None,
            Identity::User => Some(&config.user[..]),
            Identity::Principal(principal) => Some(&principal[..]),
        };
        let mut handshake = BytesMut::from(&preamble[..]);
        handshake.extend_from_slice(&connection_header(user, service, config.compressor));
        let handshake = handshake.freeze();
        let calls = Arc::new(PendingCalls::new(server.clone(), Arc::clone(silent_closes)));
        let (queue, outgoing) = mpsc::channel(QUEUE_CAPACITY);
        let (read, write) = split(stream);
        tokio::spawn(writer::run(write, handshake, outgoing, Arc::clone(&calls), metrics.clone()));
        let (max_frame, idle) = (config.max_frame, config.idle_timeout);
        let (read_calls, read_metrics) = (Arc::clone(&calls), metrics.clone());
        tokio::spawn(async move {
            reader::run(read, max_frame, idle, read_calls, &read_metrics).await;
            read_metrics.count(|counts| counts.closed.one());
        });
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
            metrics: metrics.clone(),
        })
    }

    /// Returns the load: bytes of pending requests plus [`CALL_LOAD`] per call.
    pub(crate) fn load(&self) -> usize {
        let calls = self.max_calls.saturating_sub(self.call_permits.available_permits());
        let bytes =
            (self.max_call_bytes as usize).saturating_sub(self.byte_permits.available_permits());
        bytes + calls * CALL_LOAD
    }

    /// True until the connection is closed.
    pub(crate) fn is_open(&self) -> bool {
        self.calls.is_open()
    }

    /// Closes the connection; pending calls fail.
    pub(crate) fn close(&self, reason: &DisconnectReason) {
        self.calls.close(reason);
    }

    /// Sends a request and waits for its response, at most until the deadline plus a short grace.
    pub(crate) async fn call(
        &self,
        spec: &CallSpec,
        message: &impl CallMessage,
        block: Bytes,
    ) -> Result<ResponseBody, CallError> {
        let start = Instant::now();
        let result = self.execute(spec, message, block).await;
        let method = if self.class == CallClass::Meta { META_METHOD } else { spec.method };
        self.metrics.called(method, start.elapsed(), result.is_ok());
        result
    }

    async fn execute(
        &self,
        spec: &CallSpec,
        message: &impl CallMessage,
        block: Bytes,
    ) -> Result<ResponseBody, CallError> {
        let size = message.length() + block.len();
        let _permits = match timeout_at(spec.deadline, self.acquire_permits(size)).await {
            Ok(permits) => permits?,
            Err(_) => return Err(CallError::not_sent(&self.server, spec.method)),
        };
        let _in_flight = self.metrics.in_flight(size as u64);
        let start = Instant::now();
        let timeout = spec.deadline.saturating_duration_since(start);
        let mut call = self.calls.register()?;
        let mut head = BytesMut::new();
        let (method, priority) = (spec.method, spec.priority);
        let request = Request { call_id: call.id(), method, priority, timeout, block: &block };
        let message = message.frame(&request, &mut head);
        let request = QueuedRequest { call_id: call.id(), head: head.freeze(), message, block };
        // If the writer has ended, the call fails below with the reason.
        if timeout_at(spec.deadline, self.queue.send(request)).await.is_err() {
            return Err(CallError::not_sent(&self.server, spec.method));
        }
        // Later than the server's own timeout, so that its exception can arrive.
        let grace_deadline = spec.deadline + timeout.min(Duration::from_secs(2)) / 10;
        if let Ok(result) = timeout_at(grace_deadline, call.result()).await {
            return result;
        }
        let sent = call.time_out(start.elapsed());
        Err(CallError::Timeout { server: self.server.clone(), method: spec.method, sent })
    }

    async fn acquire_permits(
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
        let closed = |_| self.calls.error(false, DisconnectReason::Closed);
        let calls = self.call_permits.acquire().await.map_err(closed)?;
        let bytes = self.byte_permits.acquire_many(size).await.map_err(closed)?;
        Ok((calls, bytes))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.calls.close(&DisconnectReason::Closed);
    }
}

/// Splits a stream for the reader and the writer task.
fn split(
    stream: Channel,
) -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) {
    match stream {
        Channel::Plain(socket) => {
            let (read, write) = socket.into_split();
            (Box::new(read), Box::new(write))
        }
        Channel::Layered { read, write } => (read, write),
    }
}

/// Decodes the message of a response and decompresses its cells.
pub(crate) fn read_response<M: Message + Default>(
    config: &ClientConfig,
    server: &ServerName,
    response: &ResponseBody,
) -> Result<(M, Bytes), CallError> {
    let block = || response.block(config.compressor, config.max_frame);
    let read = response.message().and_then(|message| Ok((message, block()?)));
    read.map_err(|source| CallError::invalid_response(server, source))
}
