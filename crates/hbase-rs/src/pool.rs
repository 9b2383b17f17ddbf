//! Connection pool: connections by server, service and call class, opened on first use.
//!
//! Data calls and scans may have several connections to a server. A call uses the open connection
//! with the least load. When all of them are loaded, another one is opened in the background. So a
//! short response does not queue behind a long one, while an idle client has one socket to a server.
//! Idle connections close themselves.
//!
//! Without an open connection one task at a time connects, and the others wait for it, each until its
//! own deadline. After a failed connect, calls to the server fail immediately for a while instead of
//! waiting for a connect timeout each.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use crate::{
    config::ClientConfig,
    connection::{
        CallClass, CallError, Connection, DisconnectReason, Endpoint, SilentCloseTracker,
    },
    handshake::Service,
    metrics::{Metrics, PeerMetrics},
    server_name::ServerName,
    stats::ServerStats,
    transport::Role,
};

/// Load in bytes above which another connection is opened: a few batches, or many small calls.
const HIGH_LOAD: usize = 64 << 10;

/// How long a server without connections is kept.
const UNUSED_SERVER_TIME: Duration = Duration::from_mins(1);

/// The connections of a client.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    peers: Mutex<HashMap<ServerName, Peer>>,
}

/// Connections to one server.
#[derive(Debug)]
struct Peer {
    metrics: PeerMetrics,
    groups: HashMap<(Service, CallClass), Arc<ConnectionGroup>>,
    used: Instant,
}

/// Connections of one service and call class.
#[derive(Debug)]
struct ConnectionGroup {
    endpoint: Endpoint,
    max_connections: usize,
    open: Mutex<Vec<Arc<Connection>>>,
    /// Locked while a task connects.
    connecting: tokio::sync::Mutex<()>,
    /// Time and error of the last failed connect.
    failed: Mutex<Option<(Instant, CallError)>>,
    /// True while another connection is opened in the background.
    growing: AtomicBool,
}

impl ConnectionPool {
    pub(crate) fn new(config: Arc<ClientConfig>, metrics: Arc<Metrics>) -> Self {
        Self { config, metrics, peers: Mutex::default() }
    }

    /// Returns the traffic of each server.
    pub(crate) fn server_stats(&self) -> Vec<ServerStats> {
        let stats = |(server, peer): (&ServerName, &Peer)| ServerStats {
            server: server.clone(),
            traffic: peer.metrics.server.snapshot(),
            failed: peer.metrics.server_calls.failed(),
            latency: peer.metrics.server_calls.latency(),
        };
        self.peers.lock().iter().map(stats).collect()
    }

    /// Returns an open connection to the service; connects if necessary.
    pub(crate) async fn connection(
        &self,
        server: &ServerName,
        service: Service,
        class: CallClass,
        deadline: Instant,
    ) -> Result<Arc<Connection>, CallError> {
        let group = self.group(server, service, class);
        if let Some(connection) = group.choose() {
            return Ok(connection);
        }
        let Ok(_connecting) = timeout_at(deadline, group.connecting.lock()).await else {
            return Err(CallError::not_sent(server, "connect"));
        };
        if let Some(connection) = group.least_loaded() {
            return Ok(connection);
        }
        if let Some(error) = group.failed_recently() {
            return Err(error);
        }
        group.connect(deadline).await
    }

    fn group(
        &self,
        server: &ServerName,
        service: Service,
        class: CallClass,
    ) -> Arc<ConnectionGroup> {
        let mut peers = self.peers.lock();
        if !peers.contains_key(server) {
            peers.retain(|_, peer| peer.is_used());
        }
        let peer = peers.entry(server.clone()).or_insert_with(|| {
            let metrics = PeerMetrics::new(Arc::clone(&self.metrics));
            Peer { metrics, groups: HashMap::new(), used: Instant::now() }
        });
        peer.used = Instant::now();
        let group = peer.groups.entry((service, class)).or_insert_with(|| {
            let several = service == Service::Client && class != CallClass::Meta;
            let endpoint = Endpoint {
                config: Arc::clone(&self.config),
                server: server.clone(),
                service,
                role: if service == Service::Master { Role::Master } else { Role::RegionServer },
                class,
                silent_closes: Arc::new(SilentCloseTracker::new(
                    self.config.transport.description(),
                )),
                metrics: peer.metrics.clone(),
            };
            Arc::new(ConnectionGroup {
                endpoint,
                max_connections: if several {
                    self.config.connections_per_server.max(1)
                } else {
                    1
                },
                open: Mutex::default(),
                connecting: tokio::sync::Mutex::default(),
                failed: Mutex::default(),
                growing: AtomicBool::new(false),
            })
        });
        Arc::clone(group)
    }

    /// Closes all connections to a server.
    pub(crate) fn server_gone(&self, server: &ServerName) {
        let peers = self.peers.lock();
        let Some(peer) = peers.get(server) else { return };
        for group in peer.groups.values() {
            for connection in group.open.lock().drain(..) {
                connection.close(&DisconnectReason::Closed);
            }
        }
    }
}

impl Peer {
    /// True if the server has a connection, or had one recently. Unused servers are removed when a
    /// server is added, so that the map does not grow with every restart of a server.
    fn is_used(&self) -> bool {
        let open = || self.groups.values().any(|group| group.least_loaded().is_some());
        self.used.elapsed() < UNUSED_SERVER_TIME || open()
    }
}

impl ConnectionGroup {
    /// Returns the open connection with the least load. If that load is high, opens another
    /// connection in the background.
    fn choose(self: &Arc<Self>) -> Option<Arc<Connection>> {
        let connection = self.least_loaded()?;
        if self.max_connections > 1 && connection.load() >= HIGH_LOAD && self.start_growing() {
            let group = Arc::clone(self);
            tokio::spawn(async move {
                let deadline = Instant::now() + group.endpoint.config.connect_timeout;
                // A failure is recorded in the group.
                let _ = group.connect(deadline).await;
                group.growing.store(false, Ordering::Release);
            });
        }
        Some(connection)
    }

    fn least_loaded(&self) -> Option<Arc<Connection>> {
        let mut open = self.open.lock();
        open.retain(|connection| connection.is_open());
        match &open[..] {
            [] => None,
            [only] => Some(Arc::clone(only)),
            several => several.iter().min_by_key(|connection| connection.load()).cloned(),
        }
    }

    fn failed_recently(&self) -> Option<CallError> {
        let failed = self.failed.lock();
        let (when, error) = failed.as_ref()?;
        (when.elapsed() < self.endpoint.config.failed_server_pause).then(|| error.clone())
    }

    /// True if the caller should open another connection.
    fn start_growing(&self) -> bool {
        self.open.lock().len() < self.max_connections
            && self.failed_recently().is_none()
            && !self.growing.swap(true, Ordering::AcqRel)
    }

    async fn connect(&self, deadline: Instant) -> Result<Arc<Connection>, CallError> {
        match Connection::open(&self.endpoint, deadline).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *self.failed.lock() = None;
                self.open.lock().push(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                if matches!(error, CallError::Connect { .. }) {
                    self.endpoint.metrics.count(|counts| counts.failed.one());
                    *self.failed.lock() = Some((Instant::now(), error.clone()));
                }
                Err(error)
            }
        }
    }
}
