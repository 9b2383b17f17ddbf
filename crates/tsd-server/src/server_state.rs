//! State shared by all connections of a server.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tracing::warn;
use tsd_engine::{EngineHandle, LogLimit, ProcessMemory, QueryClock};
use tsd_protocol::{ApiError, RollupRules, SeriesRules};

use crate::{
    ServerConfig,
    audit::{ActOutcome, AuditLine, Protocol},
    auth::{AuthError, Identity, Permission},
    body_memory::BodyMemory,
    client::Client,
    health::{HealthAge, HealthMonitor, HealthReport},
    identity_limits::{IdentityTable, LimitedSender},
    metrics::{ReadableCounter, ServerMetrics},
    open_connections::OpenConnections,
    port_tls::REQUIRED_KEY,
    reader_pace::MemoryPressure,
    refused_points::RefusedPointLog,
    rollups,
    tls_failure::TlsFailure,
};

/// Minimum interval between two messages about unstored points.
const UNSTORED_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the log messages about refused requests.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the log messages about failed TLS handshakes.
const TLS_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Why a sender may not administer the daemon.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotAdmin {
    /// The address of the sender is not in the list.
    #[error("{operation} is not allowed from {peer}, which is not in tsd.core.admin.peers")]
    Peer { operation: &'static str, peer: IpAddr },
    /// The user lacks the role.
    #[error("{operation} is not allowed to {user}: it needs the role ADMINISTRATOR")]
    User { operation: &'static str, user: String },
    /// An untrusted proxy forwarded the request, or a proxy that does not name its client.
    #[error(
        "{operation} is not allowed: {proxy} forwarded the request without naming its client, or is not in \
         tsd.http.trusted_proxies"
    )]
    Forwarded { operation: &'static str, proxy: IpAddr },
}

/// An attempt to sign in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignIn<'a> {
    /// The name that the client claims.
    pub(crate) user: Option<&'a str>,
    pub(crate) client: SocketAddr,
    pub(crate) protocol: Protocol,
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
    pub(crate) connections: Arc<OpenConnections>,
    unstored_log: LogLimit,
    refusal_log: LogLimit,
    pub(crate) tls_log: LogLimit,
    pub(crate) refused_points: RefusedPointLog,
    identities: IdentityTable,
    limit_log: LogLimit,
    failure_log: LogLimit,
    /// Cancelled when load balancers should send no more clients.
    pub(crate) leaving: CancellationToken,
    /// Cancelled when shutdown starts.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when a client requests a stop.
    pub(crate) stop_requested: CancellationToken,
}

impl MemoryPressure for ServerState {
    fn is_memory_awaited(&self) -> bool {
        self.body_memory.is_awaited() || self.engine.reads().queries_wait_for_memory()
    }
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
        let stopping = CancellationToken::new();
        let memory = settings.memory.clone();
        let connections = OpenConnections::new(&config.limits, memory, stopping.clone());
        let identities = IdentityTable::new(config.identity_limits, Arc::clone(&settings.clock));
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
            connections: Arc::new(connections),
            unstored_log: LogLimit::new(UNSTORED_LOG_INTERVAL),
            refusal_log: LogLimit::new(REFUSAL_LOG_INTERVAL),
            tls_log: LogLimit::new(TLS_LOG_INTERVAL),
            refused_points: RefusedPointLog::default(),
            identities,
            limit_log: LogLimit::new(REFUSAL_LOG_INTERVAL),
            failure_log: LogLimit::new(REFUSAL_LOG_INTERVAL),
            leaving: CancellationToken::new(),
            stopping,
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

    /// If a sender may not administer the daemon, fails, logs, and counts by `refused`. With users, only
    /// their roles decide: a proxy on this host has a loopback address, too.
    pub(crate) fn check_admin(
        &self,
        client: Client,
        identity: Option<&Identity>,
        operation: &'static str,
        refused: &ReadableCounter,
    ) -> Result<(), NotAdmin> {
        let peer = client.address.ip().to_canonical();
        let authentication = self.config.authentication.as_ref();
        let error = if authentication.is_some_and(|a| a.authenticator.decides_administration()) {
            if identity.is_some_and(|identity| identity.may(Permission::Administer)) {
                return Ok(());
            }
            let user = identity.map_or("unknown users".to_owned(), |identity| {
                format!("user {:?}", identity.name())
            });
            NotAdmin::User { operation, user }
        } else if !client.is_known && !self.config.admin_peers.allow_unknown() {
            NotAdmin::Forwarded { operation, proxy: peer }
        } else if self.config.admin_peers.allows(peer) {
            return Ok(());
        } else {
            NotAdmin::Peer { operation, peer }
        };
        self.log_refusal(peer, refused, &error);
        Err(error)
    }

    /// Counts and logs a client that was refused because it does not use TLS.
    pub(crate) fn log_plain(&self, peer: SocketAddr) {
        self.metrics.tls_failed(TlsFailure::Required).increment(1);
        if let Some(suppressed) = self.tls_log.admit() {
            warn!(%peer, suppressed, "a client without TLS was refused ({REQUIRED_KEY})");
        }
    }

    /// Returns the sender of a request or of telnet points; `None` if nothing limits or counts it.
    pub(crate) fn limited_sender(
        &self,
        identity: Option<&Identity>,
        peer: IpAddr,
    ) -> Option<LimitedSender> {
        let authentication = self.config.authentication.as_ref();
        // Otherwise a client could choose its name.
        let has_users = authentication.is_some_and(|a| !a.authenticator.accepts_anything());
        self.identities.sender(identity.filter(|_| has_users), peer)
    }

    /// Logs a request that its sender may make later.
    pub(crate) fn log_limited(&self, peer: IpAddr, reason: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.limit_log.admit() {
            warn!(%peer, %reason, suppressed, "a request exceeded a limit of its sender");
        }
    }

    /// Counts and logs a request that its sender may not make.
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

    /// Counts, logs and audits a refused sign-in. A client that sent no credentials did not try to sign in.
    pub(crate) async fn refuse_sign_in(&self, attempt: SignIn<'_>, error: &AuthError) {
        let SignIn { user, client, protocol } = attempt;
        let refused = match (protocol, error) {
            (Protocol::Http, AuthError::NoRole { .. }) => &self.metrics.forbidden_http,
            (Protocol::Http, _) => &self.metrics.unauthorized_http,
            (Protocol::Telnet, _) => &self.metrics.unauthorized_telnet,
        };
        self.log_refusal(client.ip(), refused, error);
        if let (Some(log), false) = (&self.config.audit, *error == AuthError::Missing) {
            let outcome = ActOutcome::Refused { status: None, reason: error.to_string() };
            let line = AuditLine::new("sign-in").sent_by(user, client, protocol).ended(&outcome);
            log.write_refusal(line).await;
        }
    }

    /// Logs a request that failed inside the daemon.
    pub(crate) fn log_failed(&self, peer: IpAddr, path: &str, error: &ApiError) {
        if let Some(suppressed) = self.failure_log.admit() {
            let ApiError { status, message, details, .. } = error;
            warn!(
                %peer, path, status, ?message, ?details, suppressed, "a request failed"
            );
        }
    }

    /// Returns the age of the last check of the health, as it changes.
    pub(crate) fn health_age(&self) -> HealthAge {
        self.health.age()
    }

    /// Returns the health of the daemon, within half a second.
    pub(crate) async fn health(&self) -> HealthReport {
        let stopping = self.leaving.is_cancelled() || self.stopping.is_cancelled();
        self.health.report(stopping).await
    }
}
