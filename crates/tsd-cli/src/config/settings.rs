//! The typed configuration. This is the only place that maps keys to settings.

mod audit;
mod authentication;
mod cluster;
mod engine;
mod extra_data;
mod hbase;
mod memory;
mod point_plugins;
mod queries;
mod retention;
mod server;
mod storage;
mod table_names;
mod tls;
mod write_filter;

use std::{path::PathBuf, time::Duration};

use tracing_subscriber::{EnvFilter, filter::LevelFilter};
use tsd_engine::EngineConfig;
use tsd_server::{AuditConfig, ServerConfig};
use tsd_storage::ByteBudget;

pub(crate) use self::{
    audit::AUDIT_FILE,
    authentication::{TOKEN_KEYS_FILE, USERS_FILE},
    server::host_name,
    tls::{TLS_CERTIFICATE, TLS_CLIENT_CA, TLS_KEY},
    write_filter::RULES_FILE,
};
pub use self::{
    authentication::{AuthenticationMethod, AuthenticationSettings, TokenSettings},
    cluster::ClusterNetSettings,
    hbase::{Ack, HBaseSettings},
    point_plugins::{PluginSettings, PointPluginSettings},
    retention::RetentionSettings,
    storage::{EngineKind, StorageSettings},
    tls::TlsSettings,
};
use super::{Config, ConfigError, plugins};
use crate::{
    followed_file::FollowedFile,
    memory_limit::{
        BLOCK_CACHE_KEY, BODIES_KEY, MEMTABLES_KEY, MemoryPlan, QUERY_CACHE_KEY, SERIES_KEY,
        WRITE_QUEUE_KEY,
    },
};

/// Typed and validated settings of the program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that serve sockets.
    pub worker_threads: usize,
    /// How long a shutdown may take before the rest is aborted.
    pub shutdown_timeout: Duration,
    /// Logging.
    pub log: LogSettings,
    /// The store.
    pub storage: StorageSettings,
    /// The engine. It has the configured schema, unless an existing embedded store has another.
    pub engine: EngineConfig,
    /// The server.
    pub server: ServerConfig,
    /// Authentication of clients; `None` if it is off.
    pub authentication: Option<AuthenticationSettings>,
    /// The audit log; `None` if it is off.
    pub audit: Option<AuditConfig>,
    /// TLS of the port; `None` if it is off.
    pub tls: Option<TlsSettings>,
    /// File of the rules of the time series filter, if it is on.
    pub filter_rules: Option<PathBuf>,
    /// The plug-ins that get points.
    pub point_plugins: PointPluginSettings,
    /// Rules of `tsdb import`.
    pub import: ImportSettings,
    /// File of query limits by metric, if one is configured.
    pub limits_file: Option<FollowedFile>,
    /// How long points are kept.
    pub retention: RetentionSettings,
    /// The memory limit and its parts.
    pub memory: MemoryPlan,
    /// Time zone of dates.
    pub zone_name: String,
}

/// Rules of `tsdb import`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportSettings {
    /// Timestamps of a series need not increase.
    pub allow_out_of_order: bool,
    /// UID lookups may reject names.
    pub names_may_be_refused: bool,
}

/// Settings of logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A level, or directives such as `info,tsd_engine=debug`.
    pub level: String,
    /// Format of a line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
impl Settings {
    /// The settings of these keys, or the text of the error.
    pub(crate) fn with(values: &[(&str, &str)]) -> Result<Self, String> {
        let mut config = Config::default();
        for (key, value) in values {
            config.set_flag("test", key, *value);
        }
        Self::from_config(&config).map_err(|error| error.to_string())
    }
}

impl Settings {
    /// Validates and converts every value.
    pub fn from_config(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        plugins::check(config)?;
        let mut storage = storage::storage(config)?;
        let point_plugins = point_plugins::point_plugins(config)?;
        let memory =
            memory::memory(config, storage.engine, storage.schema, point_plugins.queue_bytes())?;
        storage.memtable_bytes = size(memory.memtables);
        storage.cache_bytes = memory.block_cache;
        storage.write_budget = ByteBudget::new(size(memory.write_queues));
        let mut engine = engine::engine(config, storage.schema)?;
        limit_engine(&mut engine, &memory);
        engine.ingest.budget = storage.write_budget.clone();
        if storage.hbase.ack == Ack::Cluster {
            let limit = config.int("tsd.cluster.new_names_per_second");
            engine.uids.max_new_per_second = limit;
        }
        let mut server = server::server(config)?;
        server.limits.all_bodies_bytes = size(memory.bodies);
        for (key, size) in [
            (MEMTABLES_KEY, memory.memtables),
            (BLOCK_CACHE_KEY, memory.block_cache),
            (QUERY_CACHE_KEY, memory.query_cache),
            (SERIES_KEY, memory.series),
            (WRITE_QUEUE_KEY, memory.write_queue),
            (BODIES_KEY, memory.bodies),
        ] {
            server.properties.insert(key.to_owned(), size.to_string());
            if !config.is_set(key) {
                let source = "default, a share of tsd.memory.limit".to_owned();
                server.property_sources.insert(key.to_owned(), source);
            }
        }
        Ok(Self {
            worker_threads: worker_threads(config),
            shutdown_timeout: Duration::from_secs(config.int("tsd.shutdown.timeout")),
            log: LogSettings::from_config(config)?,
            audit: audit::audit(config)?,
            authentication: authentication::authentication(config)?,
            tls: tls::tls(config)?,
            filter_rules: write_filter::filter_rules(config)?,
            point_plugins,
            retention: retention::retention(config, storage.engine)?,
            limits_file: queries::limits_file(config, &engine.query)?,
            engine,
            server,
            memory,
            import: import(config),
            zone_name: server::zone_name(config)?,
            storage,
        })
    }
}

/// Applies the memory plan to the engine.
fn limit_engine(engine: &mut EngineConfig, memory: &MemoryPlan) {
    engine.memory = memory.budget.clone();
    engine.ingest.series_cache_entries = size(memory.series);
    engine.uids.max_cached_names = size(memory.names);
    engine.compaction.max_queue_bytes = size(memory.compaction_queue);
    engine.query.max_total_memory_bytes = memory.queries;
    engine.query.cache_bytes = memory.query_cache;
    engine.query.share_executions = memory.shares_queries;
}

/// A size in memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn worker_threads(config: &Config) -> usize {
    match config.int("tsd.network.worker_threads") {
        0 => std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
        threads => threads,
    }
}

impl LogSettings {
    /// The logging settings, even if other values of the configuration are wrong.
    pub(crate) fn from_config(config: &Config) -> Result<Self, ConfigError> {
        let level = config.string("tsd.log.level");
        if !is_log_level(&level) {
            let expected = "expected trace, debug, info, warn, error or off, or directives such as \
                            info,tsd_engine=debug";
            return Err(config.bad_value("tsd.log.level", expected));
        }
        let format = match config.text("tsd.log.format") {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Text,
        };
        Ok(Self { level, format })
    }
}

/// True for a level, or for directives that name a level each. The filter itself takes a misspelt level for the name
/// of a module, and then logs only the events of that module.
fn is_log_level(text: &str) -> bool {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let names_level = |directive: &str| {
        let level = directive.rsplit(['=', ']', '}']).next().unwrap_or_default().trim();
        // A directive with a span needs no level.
        is_level(level) || directive.contains(['[', '{'])
    };
    !text.is_empty()
        && EnvFilter::try_new(text).is_ok()
        && text.split(',').filter(|directive| !directive.trim().is_empty()).all(names_level)
}

fn import(config: &Config) -> ImportSettings {
    ImportSettings {
        allow_out_of_order: config.bool("tsd.core.bulk.allow_out_of_order_timestamps"),
        names_may_be_refused: config.bool("tsd.uidfilter.enable")
            || config.bool("tsd.timeseriesfilter.enable")
            || !config.bool("tsd.core.auto_create_metrics")
            || !config.bool("tsd.core.auto_create_tagks")
            || !config.bool("tsd.core.auto_create_tagvs"),
    }
}
