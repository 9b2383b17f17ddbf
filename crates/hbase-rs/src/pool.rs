//! Connections by server, service and purpose, opened when first needed.
//!
//! Calls for data and scans may have several connections to a server each. A call goes to the open one
//! that carries least, and another one is opened, beside the calls, once all there are carry much: so a
//! small answer does not stand behind a long one, and a client with little to do has one socket a
//! server. One that had nothing to do for long is closed by itself.
//!
//! Where none is open, one task at a time connects; the others wait for it, each with its own deadline. A
//! server that could not be connected to is left alone for a while: its callers fail at once instead
//! of queueing for a connect timeout each.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use crate::{
    config::ClientConfig,
    connection::{CallClass, CallError, Connection, DisconnectReason, SilentCloseTracker},
    handshake::Service,
    metrics::{Metrics, PeerMetrics},
    server_name::ServerName,
    stats::ServerStats,
};

/// Load from which on another connection is worth it: a few batches, or many small calls.
const MUCH: usize = 64 << 10;

/// So long a server without connections is remembered.
const MEMORY: Duration = Duration::from_mins(1);

/// Connections that are open or coming up.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    peers: Mutex<HashMap<ServerName, Peer>>,
    /// Whether any server ever said a word to this client.
    heard: Arc<AtomicBool>,
}

/// One server.
#[derive(Debug)]
struct Peer {
    metrics: PeerMetrics,
    groups: HashMap<(Service, CallClass), Arc<ConnectionGroup>>,
    used: Instant,
}

/// Connections for one purpose.
#[derive(Debug)]
struct ConnectionGroup {
    width: usize,
    open: Mutex<Vec<Arc<Connection>>>,
    /// Held by the one who connects.
    opening: tokio::sync::Mutex<()>,
    /// Last time that it did not work.
    failed: Mutex<Option<(Instant, CallError)>>,
    /// Whether another connection is coming up beside those there are.
    growing: AtomicBool,
    silent_closes: Arc<SilentCloseTracker>,
    metrics: PeerMetrics,
}

impl ConnectionPool {
    pub(crate) fn new(config: Arc<ClientConfig>, metrics: Arc<Metrics>) -> Self {
        Self { config, metrics, peers: Mutex::default(), heard: Arc::default() }
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<ServerName, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes to each server and comes from it.
    pub(crate) fn server_stats(&self) -> Vec<ServerStats> {
        let stats = |(server, peer): (&ServerName, &Peer)| ServerStats {
            server: server.clone(),
            traffic: peer.metrics.server.snapshot(),
        };
        self.peers().iter().map(stats).collect()
    }

    /// A connection to the service, at the latest by the deadline.
    pub(crate) async fn connection(
        &self,
        server: &ServerName,
        service: Service,
        class: CallClass,
        deadline: Instant,
    ) -> Result<Arc<Connection>, CallError> {
        let group = self.group(server, service, class);
        if let Some(connection) = self.choose(&group, server, service, class) {
            return Ok(connection);
        }
        let Ok(_opening) = timeout_at(deadline, group.opening.lock()).await else {
            return Err(CallError::Timeout {
                server: server.clone(),
                method: "connect",
                sent: false,
            });
        };
        if let Some(connection) = group.least_loaded() {
            return Ok(connection);
        }
        if let Some(error) = group.failed_lately(self.config.failed_server_pause) {
            return Err(error);
        }
        group.connect(&self.config, server, service, class, deadline).await
    }

    fn group(
        &self,
        server: &ServerName,
        service: Service,
        class: CallClass,
    ) -> Arc<ConnectionGroup> {
        let mut peers = self.peers();
        if !peers.contains_key(server) {
            peers.retain(|_, peer| peer.is_of_use());
        }
        let peer = peers.entry(server.clone()).or_insert_with(|| {
            let metrics = PeerMetrics::new(Arc::clone(&self.metrics));
            Peer { metrics, groups: HashMap::new(), used: Instant::now() }
        });
        peer.used = Instant::now();
        let metrics = &peer.metrics;
        let group = peer
            .groups
            .entry((service, class))
            .or_insert_with(|| Arc::new(self.new_group(metrics.clone(), service, class)));
        Arc::clone(group)
    }

    fn new_group(
        &self,
        metrics: PeerMetrics,
        service: Service,
        class: CallClass,
    ) -> ConnectionGroup {
        let several = service == Service::Client && class != CallClass::Meta;
        ConnectionGroup {
            width: if several { self.config.connections_per_server.max(1) } else { 1 },
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            growing: AtomicBool::new(false),
            silent_closes: Arc::new(SilentCloseTracker::new(Arc::clone(&self.heard))),
            metrics,
        }
    }

    /// The open connection that carries least; another one is begun if that is much.
    fn choose(
        &self,
        group: &Arc<ConnectionGroup>,
        server: &ServerName,
        service: Service,
        class: CallClass,
    ) -> Option<Arc<Connection>> {
        let connection = group.least_loaded()?;
        if group.width > 1
            && connection.load() >= MUCH
            && group.may_grow(self.config.failed_server_pause)
        {
            let (config, group) = (Arc::clone(&self.config), Arc::clone(group));
            let server = server.clone();
            tokio::spawn(async move {
                let deadline = Instant::now() + config.connect_timeout;
                // Calls go on without it.
                let _ = group.connect(&config, &server, service, class, deadline).await;
                group.growing.store(false, Ordering::Release);
            });
        }
        Some(connection)
    }

    /// The server is gone: its connections are closed.
    pub(crate) fn server_gone(&self, server: &ServerName) {
        let peers = self.peers();
        let Some(peer) = peers.get(server) else { return };
        for group in peer.groups.values() {
            for connection in group.open().drain(..) {
                connection.close(&DisconnectReason::Closed);
            }
        }
    }
}

impl Peer {
    /// Whether it is connected to, or was a short while ago. Others are forgotten when a server
    /// comes that is new: the map does not grow with every restart.
    fn is_of_use(&self) -> bool {
        let open = || self.groups.values().any(|group| group.least_loaded().is_some());
        self.used.elapsed() < MEMORY || open()
    }
}

impl ConnectionGroup {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Option<(Instant, CallError)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn least_loaded(&self) -> Option<Arc<Connection>> {
        let mut open = self.open();
        open.retain(|connection| connection.is_open());
        match &open[..] {
            [] => None,
            [only] => Some(Arc::clone(only)),
            several => several.iter().min_by_key(|connection| connection.load()).cloned(),
        }
    }

    fn failed_lately(&self, pause: Duration) -> Option<CallError> {
        let failed = self.failed();
        let (when, error) = failed.as_ref()?;
        (when.elapsed() < pause).then(|| error.clone())
    }

    /// Whether another connection may be opened; if so the caller is the one who does.
    fn may_grow(&self, pause: Duration) -> bool {
        self.open().len() < self.width
            && self.failed_lately(pause).is_none()
            && !self.growing.swap(true, Ordering::AcqRel)
    }

    async fn connect(
        &self,
        config: &ClientConfig,
        server: &ServerName,
        service: Service,
        class: CallClass,
        deadline: Instant,
    ) -> Result<Arc<Connection>, CallError> {
        let silent_closes = Arc::clone(&self.silent_closes);
        let metrics = self.metrics.clone();
        let opened =
            Connection::open(config, server, service, class, silent_closes, metrics, deadline)
                .await;
        match opened {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *self.failed() = None;
                self.open().push(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                if matches!(error, CallError::Connect { .. }) {
                    self.metrics.count(|counts| counts.failed.one());
                    *self.failed() = Some((Instant::now(), error.clone()));
                }
                Err(error)
            }
        }
    }
}
