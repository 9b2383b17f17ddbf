//! State shared by all connections of a server.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tracing::warn;
use tsd_engine::{EngineHandle, LogLimit, ProcessMemory, QueryClock};
use tsd_protocol::{RollupRules, SeriesRules};

use crate::{
    ServerConfig,
    auth::{Identity, Permission},
    health::{HealthMonitor, HealthReport},
    http::BodyMemory,
    metrics::{ReadableCounter, ServerMetrics},
    refused_points::RefusedPointLog,
    rollups,
};

/// Minimum interval between two messages about unstored points.
const UNSTORED_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the log messages about refused requests.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A sender may not administer the daemon.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotAdmin {
    /// By its address.
    #[error("{operation} is not allowed from {peer}, which is not in tsd.core.admin.peers")]
    Peer { operation: &'static str, peer: IpAddr },
    /// By its user.
    #[error("{operation} is not allowed to {user}: it needs the role ADMINISTRATOR")]
    User { operation: &'static str, user: String },
}

/// State of a server.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) address: SocketAddr,
    pub(crate) engine: EngineHandle,
    /// Rules for series names.
    pub(crate) rules: Arc<SeriesRules>,
    /// Rules for rolled-up points; `None` if rollups are not configured.
    pub(crate) rollups: Option<Arc<RollupRules>>,
    clock: QueryClock,
    pub(crate) metrics: ServerMetrics,
    pub(crate) body_memory: BodyMemory,
    health: HealthMonitor,
    pub(crate) open_connections: AtomicUsize,
    unstored_log: LogLimit,
    refusal_log: LogLimit,
    pub(crate) refused_points: RefusedPointLog,
    /// Cancelled when shutdown starts.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when a client requests a stop.
    pub(crate) stop_requested: CancellationToken,
}

impl ServerState {
    pub(crate) fn new(
        config: ServerConfig,
        address: SocketAddr,
        engine: EngineHandle,
        clock: QueryClock,
    ) -> io::Result<Self> {
        let settings = engine.config();
        let rules = SeriesRules::new(settings.ingest.max_tags, &settings.uids.allow_specialchars);
        let rollups = rollups::rollup_rules(settings).map(Arc::new);
        Ok(Self {
            health: HealthMonitor::start(engine.clone())?,
            rules: Arc::new(rules),
            rollups,
            body_memory: BodyMemory::new(&config.limits, settings.memory.clone()),
            config,
            address,
            engine,
            clock,
            metrics: ServerMetrics::default(),
            open_connections: AtomicUsize::new(0),
            unstored_log: LogLimit::new(UNSTORED_LOG_INTERVAL),
            refusal_log: LogLimit::new(REFUSAL_LOG_INTERVAL),
            refused_points: RefusedPointLog::default(),
            stopping: CancellationToken::new(),
            stop_requested: CancellationToken::new(),
        })
    }

    /// The memory budget of the process.
    pub(crate) fn memory(&self) -> &ProcessMemory {
        &self.engine.config().memory
    }

    /// Returns the current time and the default time zone of queries.
    pub(crate) fn clock(&self) -> QueryClock {
        QueryClock { now_ms: self.engine.config().clock.now_ms(), ..self.clock.clone() }
    }

    /// Logs that a telnet connection ended with points that were not stored.
    pub(crate) fn log_unstored(&self, points: u64, reason: &str) {
        if let Some(suppressed) = self.unstored_log.admit() {
            warn!(points, reason, suppressed, "a telnet connection ended with unstored points");
        }
    }

    /// Fails, counts by `refused` and logs if a sender may not administer the daemon. With users, their
    /// roles decide, whatever their addresses are: a proxy on this host has a loopback address, too.
    pub(crate) fn check_admin(
        &self,
        peer: IpAddr,
        identity: Option<&Identity>,
        operation: &'static str,
        refused: &ReadableCounter,
    ) -> Result<(), NotAdmin> {
        let peer = peer.to_canonical();
        let authentication = self.config.authentication.as_ref();
        let error = if authentication.is_some_and(|a| a.authenticator.decides_administration()) {
            if identity.is_some_and(|identity| identity.may(Permission::Administer)) {
                return Ok(());
            }
            let user = identity.map_or("unknown users".to_owned(), |identity| {
                format!("user {:?}", identity.name())
            });
            NotAdmin::User { operation, user }
        } else if self.config.admin_peers.allows(peer) {
            return Ok(());
        } else {
            NotAdmin::Peer { operation, peer }
        };
        self.log_refusal(peer, refused, &error);
        Err(error)
    }

    /// Counts and logs a request that is refused because of its sender.
    pub(crate) fn log_refusal(
        &self,
        peer: IpAddr,
        refused: &ReadableCounter,
        reason: &dyn std::fmt::Display,
    ) {
        refused.add(1);
        if let Some(suppressed) = self.refusal_log.admit() {
            warn!(%peer, %reason, suppressed, "a request was refused");
        }
    }

    /// Returns the health of the daemon, within half a second.
    pub(crate) async fn health(&self) -> HealthReport {
        self.health.report(self.stopping.is_cancelled()).await
    }
}
