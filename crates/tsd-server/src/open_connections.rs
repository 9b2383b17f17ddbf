//! The open connections, and the eviction of idle connections for new ones.
//!
//! A collector may keep thousands of connections open and never use them again. If a limit is reached (the number of
//! connections, or the memory of the process), the server closes the connections that have been idle for the longest
//! time. A connection is idle while it has neither a request in progress nor a half-read request. An evicted connection
//! counts until its socket is closed.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, counter, gauge};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tsd_engine::{LogLimit, MEMORY_LIMIT_KEY, MemoryConsumer, MemoryPermit, ProcessMemory};

use crate::{Limits, connection_memory::NEW_BYTES, timeout_io::RequestTracker};

/// Maximum connections to close for one new connection, which may need the memory of several.
const MOST_CLOSED: usize = 4;
/// How long a new connection waits for the end of an evicted connection.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long an evicted connection may send the rest of a response.
const REST_PATIENCE: Duration = Duration::from_millis(500);
/// How long a connection with a half-read request, and no further bytes, does not count as idle.
const HALF_READ_PATIENCE: Duration = Duration::from_secs(30);
/// Minimum interval between two messages about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct OpenConnections {
    list: Mutex<ConnectionList>,
    limit: usize,
    /// Minimum idle time of a connection to evict.
    least_idle: Duration,
    memory: ProcessMemory,
    stopping: CancellationToken,
    /// Notified when a connection leaves the list.
    ended: Notify,
    open: Gauge,
    idle_closed: Counter,
    closed_log: LogLimit,
}

#[derive(Debug, Default)]
struct ConnectionList {
    by_id: HashMap<u64, Arc<OpenConnection>>,
    next_id: u64,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    pub(crate) tracker: Arc<RequestTracker>,
    /// Cancelled when the connection must close, after it has processed its received bytes.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the connection is evicted.
    evicted: CancellationToken,
    memory: Mutex<MemoryPermit>,
    /// Bytes of TLS, which the connection keeps beyond those of its protocol.
    base: AtomicUsize,
    /// Name in the certificate of the client.
    certificate_name: OnceLock<String>,
}

/// Keeps a connection in the list until it is dropped.
#[derive(Debug)]
pub(crate) struct ListedConnection {
    connections: Arc<OpenConnections>,
    id: u64,
    pub(crate) connection: Arc<OpenConnection>,
}

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// The limit of connections is reached.
    #[error("too many connections: {0} are open")]
    Connections(usize),
    /// The memory limit is reached.
    #[error("no memory is left ({MEMORY_LIMIT_KEY})")]
    Memory,
}

impl OpenConnections {
    /// `stopping` is cancelled when the server stops.
    pub(crate) fn new(limits: &Limits, memory: ProcessMemory, stopping: CancellationToken) -> Self {
        Self {
            list: Mutex::default(),
            limit: limits.connections.map_or(usize::MAX, std::num::NonZero::get),
            least_idle: limits.evict_idle_after,
            memory,
            stopping,
            ended: Notify::new(),
            open: gauge!("tsd_server_connections_open"),
            idle_closed: counter!("tsd_server_connections_idle_closed_total"),
            closed_log: LogLimit::new(LOG_INTERVAL),
        }
    }

    /// Number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.list.lock().by_id.len()
    }

    /// Adds a new connection. If necessary, evicts idle connections and waits briefly for their end.
    pub(crate) async fn admit(self: &Arc<Self>) -> Result<ListedConnection, NoRoom> {
        let mut closed = 0;
        loop {
            let ended = self.ended.notified();
            match self.try_add() {
                Ok(listed) => return Ok(listed),
                Err(no_room) if closed < MOST_CLOSED && self.close_oldest_idle() => {
                    closed += 1;
                    if no_room != NoRoom::Memory {
                        // After a timeout, the loop evicts another connection.
                        let _ = timeout(END_PATIENCE, ended).await;
                    }
                }
                Err(no_room) => {
                    if no_room == NoRoom::Memory {
                        self.memory.record_refusal(MemoryConsumer::Connections);
                    }
                    return Err(no_room);
                }
            }
        }
    }

    fn try_add(self: &Arc<Self>) -> Result<ListedConnection, NoRoom> {
        let mut list = self.list.lock();
        if list.by_id.len() >= self.limit {
            return Err(NoRoom::Connections(self.limit));
        }
        let memory = self.memory.try_reserve(MemoryConsumer::Connections, NEW_BYTES);
        let connection = Arc::new(OpenConnection {
            tracker: Arc::default(),
            closing: self.stopping.child_token(),
            evicted: CancellationToken::new(),
            memory: Mutex::new(memory.ok_or(NoRoom::Memory)?),
            base: AtomicUsize::new(0),
            certificate_name: OnceLock::new(),
        });
        list.next_id += 1;
        let id = list.next_id;
        list.by_id.insert(id, Arc::clone(&connection));
        self.open.increment(1.0);
        Ok(ListedConnection { connections: Arc::clone(self), id, connection })
    }

    /// Evicts the connection that has been idle for the longest time; false if no connection has been idle for long
    /// enough. Its memory is free at once, its slot when its socket is closed.
    fn close_oldest_idle(&self) -> bool {
        let list = self.list.lock();
        let open = list.by_id.values().filter(|connection| !connection.evicted.is_cancelled());
        let idle = open.filter_map(|connection| {
            let idle = connection.tracker.idle_time(HALF_READ_PATIENCE)?;
            (idle >= self.least_idle).then_some((idle, connection))
        });
        let oldest = idle.max_by_key(|(idle, _)| *idle);
        let Some((idle, connection)) = oldest.map(|(idle, it)| (idle, Arc::clone(it))) else {
            return false;
        };
        connection.evicted.cancel();
        drop(list);
        connection.closing.cancel();
        connection.lock_memory().shrink(0);
        self.idle_closed.increment(1);
        if let Some(suppressed) = self.closed_log.admit() {
            let idle_s = idle.as_secs();
            info!(idle_s, suppressed, "an idle connection is closed to make room for another one");
        }
        true
    }

    fn remove(&self, id: u64) {
        if self.list.lock().by_id.remove(&id).is_some() {
            self.open.decrement(1.0);
            self.ended.notify_waiters();
        }
    }

    /// Reserves memory of a connection up to `bytes` in all and the bytes of TLS, and evicts idle connections for it;
    /// false if there is not enough.
    pub(crate) fn reserve_memory(&self, connection: &OpenConnection, bytes: usize) -> bool {
        let bytes = bytes + connection.base.load(Ordering::Relaxed);
        let mut closed = 0;
        loop {
            if connection.lock_memory().try_grow(bytes) {
                return true;
            }
            if closed == MOST_CLOSED || !self.close_oldest_idle() {
                self.memory.record_refusal(MemoryConsumer::Connections);
                return false;
            }
            closed += 1;
        }
    }
}

impl OpenConnection {
    /// Completes when the connection was evicted, has no request in progress, and has had the time to send the rest of
    /// its last response.
    pub(crate) async fn overdue(&self) {
        self.evicted.cancelled().await;
        loop {
            sleep(REST_PATIENCE).await;
            if !self.tracker.has_active_request() {
                return;
            }
        }
    }

    /// Keeps `bytes` of memory and the bytes of TLS, and releases the rest.
    pub(crate) fn keep_memory(&self, bytes: usize) {
        self.lock_memory().shrink(bytes + self.base.load(Ordering::Relaxed));
    }

    /// Sets the bytes of TLS. They are reserved with the next reservation.
    pub(crate) fn set_base(&self, bytes: usize) {
        self.base.store(bytes, Ordering::Relaxed);
    }

    /// Name in the certificate of the client; `None` if it has shown no certificate with a name.
    pub(crate) fn certificate_name(&self) -> Option<&str> {
        self.certificate_name.get().map(String::as_str)
    }

    /// Records the name in the certificate of the client, at most once.
    pub(crate) fn set_certificate_name(&self, name: Option<String>) {
        if let Some(name) = name {
            let _ = self.certificate_name.set(name);
        }
    }

    fn lock_memory(&self) -> MutexGuard<'_, MemoryPermit> {
        self.memory.lock()
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.connections.remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::num::NonZeroUsize;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn connections() -> Arc<OpenConnections> {
        let limits = Limits {
            connections: NonZeroUsize::new(1),
            evict_idle_after: Duration::ZERO,
            ..Limits::default()
        };
        let memory = ProcessMemory::unlimited();
        Arc::new(OpenConnections::new(&limits, memory, CancellationToken::new()))
    }

    /// Issue 37: new connections took the slots of evicted connections whose sockets were still open.
    #[tokio::test(start_paused = true)]
    async fn a_closed_connection_counts_until_its_socket_is_closed() {
        let connections = connections();
        let first = connections.admit().await.unwrap();
        assert_eq!(connections.admit().await.unwrap_err(), NoRoom::Connections(1));
        assert!(first.connection.closing.is_cancelled());
        assert_eq!(connections.len(), 1);
        drop(first);
        let second = connections.admit().await.unwrap();
        let closed = second.connection.closing.clone();
        tokio::spawn(async move {
            closed.cancelled().await;
            drop(second);
        });
        assert!(connections.admit().await.is_ok(), "it waits for the end of the second");
    }

    /// Issue 37.
    #[tokio::test(start_paused = true)]
    async fn a_closed_connection_is_overdue_after_its_request() {
        let connections = connections();
        let first = connections.admit().await.unwrap();
        assert!(connections.admit().await.is_err());
        let (began, request) = (Instant::now(), first.connection.tracker.request_received());
        tokio::spawn(async move {
            sleep(REST_PATIENCE * 10).await;
            drop(request);
        });
        first.connection.overdue().await;
        assert!(began.elapsed() >= REST_PATIENCE * 10);
    }
}
