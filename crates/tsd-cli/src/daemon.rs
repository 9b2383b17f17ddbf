//! `tsdb tsd`: runs the daemon from start to shutdown.

mod rejoin;
mod service_manager;
mod watchdog;

use std::{
    process,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing::{info, warn};

use self::{
    rejoin::{Departure, Rejoins},
    service_manager::ServiceManager,
    watchdog::Watchdog,
};
use crate::{
    config::{Config, ConfigError, EngineKind, LogSettings, Settings},
    console::StopSignals,
    logging,
    memory_limit::{LimitSource, MemoryLimit, MemoryPlan, SMALLEST_LIMIT},
    node::Node,
    open_files, version,
};

/// Number of scheduler ticks between two polls for I/O events.
const SOCKET_INTERVAL: u32 = 8;
/// Key of the only setting that a reload applies.
const LOG_LEVEL: &str = "tsd.log.level";

/// The service manager and the signals of a daemon.
struct Supervision {
    manager: Arc<ServiceManager>,
    watchdog: Option<Watchdog>,
    stop: StopSignals,
    hang_up: Signal,
    /// How long a stop may take.
    stop_limit: Duration,
}

/// Runs a daemon until a signal or a client stops it. `reload` reads the configuration again.
pub(crate) fn run(
    config: &Config,
    settings: &Settings,
    reload: impl Fn() -> Result<Config, ConfigError>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    log_start(config, settings);
    log_memory(&settings.memory);
    open_files::raise_limit();
    // Checks the limit first: threads and files would fail without a reason.
    open_files::plan()?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.worker_threads)
        // Bounds the I/O latency while large responses keep every thread busy.
        .event_interval(SOCKET_INTERVAL)
        .enable_all()
        .build()?
        .block_on(serve(config, reload, started, settings.shutdown_timeout))
}

/// Logs the facts of the start, so that they precede every later failure.
fn log_start(config: &Config, settings: &Settings) {
    let build = version::build_facts();
    let storage = &settings.storage;
    let store = match storage.engine {
        EngineKind::Embedded => "embedded".to_owned(),
        EngineKind::Memory => "memory; the data is lost at exit".to_owned(),
        EngineKind::HBase => format!("HBase at {}", storage.hbase.cluster.discovery),
    };
    let file = config.file().map_or_else(|| "none".into(), |file| file.to_string_lossy());
    info!(
        version = build.version,
        revision = build.short_revision,
        pid = process::id(),
        %store,
        directory = %storage.data_directory.display(),
        configuration = %file,
        "starting"
    );
}

/// Logs how much memory the process may use, and why.
fn log_memory(plan: &MemoryPlan) {
    let MemoryLimit { bytes, source } = plan.limit;
    if source != LimitSource::Configured && bytes == SMALLEST_LIMIT {
        warn!(limit = bytes, "using the smallest limit that works, which is more than {source}");
    }
    let fixed: u64 = plan.budget.fixed().iter().map(|(_, bytes)| bytes).sum();
    info!(
        limit = bytes,
        %source,
        memtables = plan.memtables,
        block_cache = plan.block_cache,
        series_cache = plan.series,
        connections_and_queries = bytes.saturating_sub(fixed),
        "memory limit"
    );
}

async fn serve(
    config: &Config,
    reload: impl Fn() -> Result<Config, ConfigError>,
    started: Instant,
    stop_limit: Duration,
) -> anyhow::Result<()> {
    let mut supervision = Supervision::start(stop_limit)?;
    supervision.manager.status("opening the store");
    let node = tokio::select! {
        node = Node::start(config) => node?,
        signal = supervision.stop.next() => {
            info!(signal = signal.to_string(), "stopped during start-up");
            return Ok(());
        }
    };
    say_ready(&node, started);
    let Some(node) = run_until_stopped(node, config, reload, &mut supervision).await? else {
        return Ok(());
    };
    supervision.stopping();
    let stopping = Instant::now();
    let second = tokio::spawn(async move {
        let signal = supervision.stop.next().await.to_string();
        warn!(signal, "exiting at once; unacknowledged points may be lost");
        process::exit(1);
    });
    node.shutdown().await?;
    second.abort();
    info!(took_ms = stopping.elapsed().as_millis() as u64, "stopped");
    Ok(())
}

impl Supervision {
    /// Finds the manager and installs the handlers of signals. A SIGHUP waits until the daemon serves.
    fn start(stop_limit: Duration) -> anyhow::Result<Self> {
        let manager = Arc::new(ServiceManager::from_environment());
        Ok(Self {
            watchdog: Watchdog::start(&manager, runtime::Handle::current())?,
            manager,
            stop: StopSignals::new()?,
            hang_up: signal(SignalKind::hangup())?,
            stop_limit,
        })
    }

    /// The node serves: watches its threads too.
    fn serving(&self, node: &Node) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.watch(Some(node.watched()));
        }
        self.manager.ready(&format!("serving {}", node.urls().join(" ")));
    }

    /// The node ends, and its threads with it.
    fn leave(&self, status: &str) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.watch(None);
        }
        self.manager.status(status);
    }

    /// The daemon ends.
    fn stopping(&self) {
        self.leave("stopping");
        self.manager.stopping(self.stop_limit);
    }
}

/// Logs and prints the addresses of the daemon.
fn say_ready(node: &Node, started: Instant) {
    let (replayed_cells, replayed_bytes) = node.replayed();
    let urls = node.urls();
    info!(
        address = %node.address(),
        urls = urls.join(" "),
        data = %node.directory().map_or_else(|| "memory".into(), |path| path.to_string_lossy()),
        replayed_cells,
        replayed_bytes,
        took_ms = started.elapsed().as_millis() as u64,
        "ready to serve"
    );
    // OpenTSDB's text, which scripts wait for.
    let ready = format!("Ready to serve on {}", node.address());
    if let Some(url) = urls.first() {
        info!(
            "{ready}: open {url} in a browser; points by telnet or {url}api/put, metrics at {url}metrics"
        );
    } else {
        info!("{ready}");
    }
}

/// Serves until a signal or a client stops the daemon. `None` if it was stopped while it rejoined its cluster.
async fn run_until_stopped(
    mut node: Node,
    config: &Config,
    reload: impl Fn() -> Result<Config, ConfigError>,
    supervision: &mut Supervision,
) -> anyhow::Result<Option<Node>> {
    let mut running = config.clone();
    let mut rejoins = Rejoins::new();
    supervision.serving(&node);
    loop {
        let departure = tokio::select! {
            biased;
            signal = supervision.stop.next() => {
                info!(signal = signal.to_string(), "stopping; a second signal exits at once");
                return Ok(Some(node));
            }
            () = node.stop_requested() => {
                info!("stopping: requested by a client");
                return Ok(Some(node));
            }
            _ = supervision.hang_up.recv() => {
                supervision.manager.reloading();
                reload_config(&mut running, &node, &reload);
                supervision.serving(&node);
                continue;
            }
            reason = node.removed() => Departure::Removed(reason),
            reason = node.fenced() => Departure::Fenced(reason),
        };
        supervision.leave("joining the cluster again");
        node = tokio::select! {
            joined = rejoins.join_again(config, node, departure) => joined?,
            signal = supervision.stop.next() => {
                info!(signal = signal.to_string(), "stopped while joining the cluster again");
                return Ok(None);
            }
        };
        supervision.serving(&node);
    }
}

/// Handles SIGHUP: reads each followed file again, and applies the log level. Other values of the configuration are
/// not applied, so wrong ones do not prevent the reload.
fn reload_config(
    running: &mut Config,
    node: &Node,
    reload: &impl Fn() -> Result<Config, ConfigError>,
) {
    node.read_files_again();
    let reloaded = reload().and_then(|config| {
        let log = LogSettings::from_config(&config)?;
        Ok((config, log.level))
    });
    let (config, log_level) = match reloaded {
        Ok(reloaded) => reloaded,
        Err(error) => {
            warn!("SIGHUP: {LOG_LEVEL} is unchanged: {:#}", anyhow::Error::from(error));
            return;
        }
    };
    if let Err(error) = logging::set_level(&log_level) {
        warn!("SIGHUP: {LOG_LEVEL} is unchanged: {error:#}");
    }
    if let Err(error) = Settings::from_config(&config) {
        warn!("SIGHUP: the next start would fail: {:#}", anyhow::Error::from(error));
    }
    let (before, after) = (running.effective(), config.effective());
    let changed: Vec<&str> = before
        .keys()
        .chain(after.keys().filter(|key| !before.contains_key(*key)))
        .filter(|key| *key != LOG_LEVEL && before.get(*key) != after.get(*key))
        .map(String::as_str)
        .collect();
    if changed.is_empty() {
        info!(log_level, "SIGHUP: reloaded the log level and the followed files");
    } else {
        warn!(
            log_level,
            restart_for = changed.join(", "),
            "SIGHUP: reloaded the log level and the followed files; other changes need a restart"
        );
    }
    // The next signal reports keys that need a restart again.
    running.copy_value(&config, LOG_LEVEL);
}
