//! What every connection of a listener shares.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tsd_engine::{EngineHandle, QueryClock, UidKind};
use tsd_protocol::{Health, RollupRules, SeriesRules};

use crate::{ServerConfig, http::BodyMemory, metrics::ServerMetrics, rollups};

/// How long the store may take to show that it lives.
const PROBE: Duration = Duration::from_secs(1);

/// State of a listener.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) address: SocketAddr,
    pub(crate) engine: EngineHandle,
    /// Which series names points may have.
    pub(crate) rules: Arc<SeriesRules>,
    /// Which rolled-up points are taken; `None` takes none.
    pub(crate) rollups: Option<Arc<RollupRules>>,
    clock: QueryClock,
    pub(crate) metrics: ServerMetrics,
    pub(crate) body_memory: BodyMemory,
    pub(crate) open_connections: AtomicUsize,
    /// The listener is being shut down.
    pub(crate) stopping: CancellationToken,
    /// A client asked for it.
    pub(crate) stop_requested: CancellationToken,
}

impl ServerState {
    pub(crate) fn new(
        config: ServerConfig,
        address: SocketAddr,
        engine: EngineHandle,
        clock: QueryClock,
    ) -> Self {
        let settings = engine.config();
        let rules = SeriesRules::new(settings.ingest.max_tags, &settings.uids.allow_specialchars);
        let rollups = rollups::rules(settings).map(Arc::new);
        Self {
            rules: Arc::new(rules),
            rollups,
            body_memory: BodyMemory::new(config.limits.all_bodies_bytes),
            config,
            address,
            engine,
            clock,
            metrics: ServerMetrics::default(),
            open_connections: AtomicUsize::new(0),
            stopping: CancellationToken::new(),
            stop_requested: CancellationToken::new(),
        }
    }

    /// The present, in the zone of dates that name none.
    pub(crate) fn clock(&self) -> QueryClock {
        QueryClock { now_ms: self.engine.config().clock.now_ms(), ..self.clock.clone() }
    }

    /// Whether the daemon can do its work, as one small read of the store shows.
    pub(crate) async fn health(&self) -> Health {
        if self.stopping.is_cancelled() {
            return Health::ShuttingDown;
        }
        match timeout(PROBE, self.engine.suggest(UidKind::Metric, "", 1)).await {
            Ok(Ok(_)) => Health::Ok,
            Ok(Err(_)) | Err(_) => Health::Error,
        }
    }
}
