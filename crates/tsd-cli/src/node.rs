//! A running daemon: store, engine and server.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::Context;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::task::AbortOnDropHandle;
use tsd_engine::{
    Engine, EngineConfig, EngineHandle, FilterRules, Standstills, WeakEngineHandle, plugin_queue,
};
use tsd_server::{
    AuditLog, BindError, ClusterNodes, HealthAge, PluginTask, Server, install_metrics,
    start_publisher, start_spool,
};
use tsd_storage::Storage;
use tsd_storage_hbase::publish_metrics;

use crate::{
    authentication,
    config::{AUDIT_FILE, Config, ConfigError, PointPluginSettings, RULES_FILE, Settings},
    daemon_url::PublishedUrl,
    data_directory::DataDirectory,
    followed_file::{FileFollower, FollowedFile},
    hbase_stats,
    limits_file::parse_limits,
    logging, open_files, port_tls,
    retention_file::parse_rules,
    store::{self, OpenStore, Purpose},
};

/// Minimum time for a plug-in to deliver its queue at the shutdown.
const LEAST_PLUGIN_STOP: Duration = Duration::from_secs(1);

/// Timeout for the requests of a fenced daemon, which all fail.
const ABANDON_LIMIT: Duration = Duration::from_secs(2);
/// Timeout for the requests in progress of a daemon that leaves its cluster.
const LEAVE_LIMIT: Duration = Duration::from_millis(300);
/// Interval of checking whether the memtables of a fenced node are dropped.
const RELEASE_LOOK: Duration = Duration::from_millis(20);

/// A daemon in this process.
#[derive(Debug)]
pub struct Node {
    server: Server,
    open: OpenEngine,
    shutdown_timeout: Duration,
    /// How long a node of a cluster serves at least after it became unready.
    drain_linger: Duration,
    /// Publishes the metrics of the HBase client.
    client_metrics: Option<AbortOnDropHandle<()>>,
    /// Follow the files that are read again while the daemon runs.
    followers: Vec<FileFollower>,
    /// The URL of a node of a cluster, for tools.
    _published_url: Option<PublishedUrl>,
}

/// What a watchdog sees of a node, without keeping it running.
#[derive(Debug)]
pub(crate) struct WatchedNode {
    /// The engine, whose threads can be probed.
    pub(crate) engine: WeakEngineHandle,
    /// Age of the last check of the health.
    pub(crate) health: HealthAge,
}

/// A store with an engine, for tools that need no server.
#[derive(Debug)]
pub(crate) struct OpenEngine {
    pub(crate) engine: EngineHandle,
    store: OpenStore,
    /// The rules of the time series filter, if it is on.
    filter_rules: Option<FollowedFile>,
    /// The plug-ins that get points.
    plugins: Vec<PluginTask>,
}

impl Node {
    /// Opens the store, starts the engine and the server.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        Self::start_again(config, None).await
    }

    /// As [`Self::start`], for a node that was removed from its cluster: it joins again when the connections to the
    /// other nodes have held for a time.
    pub(crate) async fn start_again(
        config: &Config,
        held_for: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let mut settings = Settings::from_config(config)?;
        settings.storage.hbase.cluster_net.held_for = held_for;
        let descriptors = open_files::plan()?;
        settings.storage.open_files = descriptors.store;
        let metrics = metrics_recorder();
        let audit = open_audit(config, &settings)?;
        let mut open = OpenEngine::open(config, &settings, Purpose::Daemon).await?;
        let mut server = settings.server.clone();
        server.audit.clone_from(&audit);
        server.metrics = metrics.cloned();
        let mut followers = Vec::new();
        if let Some(authentication) = &settings.authentication {
            match authentication::start(config, authentication, open.engine.config(), audit) {
                Ok(started) => {
                    server.authentication = Some(started.config);
                    followers.extend(started.followers);
                }
                Err(error) => {
                    open.close(settings.shutdown_timeout).await?;
                    return Err(error);
                }
            }
        }
        if let Some(tls) = &settings.tls {
            let problems = open.engine.config().file_problems.clone();
            match port_tls::start(config, tls, problems) {
                Ok((tls, follower)) => {
                    server.tls = Some(tls);
                    followers.push(follower);
                }
                Err(error) => {
                    open.close(settings.shutdown_timeout).await?;
                    return Err(error.into());
                }
            }
        }
        server.log = logging::control();
        let cluster = open.store.hbase.as_ref().and_then(|hbase| hbase.cluster_node.clone());
        if let Some(cluster) = &cluster {
            cluster.attach(&open.engine);
        }
        if cluster.is_some() {
            server.standstills = Some(Standstills::of_process()?);
        }
        server.cluster = cluster.map(|node| node as Arc<dyn ClusterNodes>);
        server.static_root = server.static_root.filter(|root| is_static_root(root));
        let limits = &mut server.limits;
        limits.connections = Some(descriptors.connections(limits.connections));
        let server = match Server::bind(server, open.engine.clone()).await {
            Ok(server) => server,
            Err(error) => {
                open.close(settings.shutdown_timeout).await?;
                return Err(explain_bind(error));
            }
        };
        let urls = urls(server.local_addrs());
        let published_url = urls.first().and_then(|url| publish(&open.store, &settings, url));
        let client_metrics = open.store.hbase.as_ref().map(|hbase| {
            if settings.storage.hbase.prefetch {
                tokio::spawn(store::prefetch(
                    hbase.client.clone(),
                    store::needed_tables(&settings),
                ));
            }
            AbortOnDropHandle::new(tokio::spawn(publish_metrics(hbase.client.clone())))
        });
        followers.extend(follow_files(&mut open, settings.limits_file, settings.retention.file));
        Ok(Self {
            server,
            open,
            shutdown_timeout: settings.shutdown_timeout,
            drain_linger: settings.storage.hbase.cluster_net.drain_linger,
            client_metrics,
            followers,
            _published_url: published_url,
        })
    }

    /// Address of the first listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// URLs that clients on this host can use, one for each listener.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        urls(self.server.local_addrs())
    }

    /// What a watchdog sees of this node.
    pub(crate) fn watched(&self) -> WatchedNode {
        WatchedNode { engine: self.open.engine.downgrade(), health: self.server.health_age() }
    }

    /// Reads the followed files now instead of at the end of their interval.
    pub fn read_files_again(&self) {
        self.followers.iter().for_each(FileFollower::read_again);
    }

    /// The store.
    #[must_use]
    pub const fn storage(&self) -> &Arc<dyn Storage> {
        &self.open.store.storage
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &EngineHandle {
        &self.open.engine
    }

    /// Directory of the store, if it is on disk.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.open.store.directory.as_ref().map(DataDirectory::path)
    }

    /// Cells and bytes replayed from the log.
    #[must_use]
    pub const fn replayed(&self) -> (u64, u64) {
        (self.open.store.replayed.cells, self.open.store.replayed.bytes)
    }

    /// Completes when a client requests a shutdown.
    pub async fn stop_requested(&self) {
        self.server.stop_requested().await;
    }

    /// Completes when another node of the cluster has taken over the log of this one, with the reason.
    pub(crate) async fn fenced(&self) -> String {
        match self.open.store.hbase.as_ref().and_then(|hbase| hbase.cluster_log.as_ref()) {
            Some(log) => log.fenced().await,
            None => std::future::pending().await,
        }
    }

    /// Completes when this node has to leave its cluster because of broken connections, with the reason.
    pub(crate) async fn removed(&self) -> String {
        match self.open.store.hbase.as_ref().and_then(|hbase| hbase.cluster_log.as_ref()) {
            Some(log) => log.removed().await,
            None => std::future::pending().await,
        }
    }

    /// True once another node of the cluster has connected to this one.
    pub(crate) fn was_reached(&self) -> bool {
        let cluster = self.open.store.hbase.as_ref().and_then(|hbase| hbase.cluster_node.as_ref());
        cluster.is_some_and(|node| node.was_reached())
    }

    /// Stops a fenced daemon without a flush, because it can no longer store its rows.
    pub(crate) async fn abandon(mut self) {
        let storage = Arc::downgrade(self.storage());
        self.shutdown_timeout = ABANDON_LIMIT;
        self.drain_linger = Duration::ZERO;
        if let Err(error) = self.shutdown().await {
            tracing::debug!(%error, "a fenced node has ended");
        }
        let released = async {
            while storage.strong_count() > 0 {
                tokio::time::sleep(RELEASE_LOOK).await;
            }
        };
        if tokio::time::timeout(ABANDON_LIMIT, released).await.is_err() {
            tracing::warn!(
                "the rows of the fenced node still take memory, because a request uses them"
            );
        }
    }

    /// Leaves the cluster at once: gives the slots away, flushes the rows and ends the log. Requests in progress get
    /// little time, because reads of all other nodes wait for the end.
    pub(crate) async fn leave(mut self) -> anyhow::Result<()> {
        self.drain_linger = Duration::ZERO;
        self.stop(LEAVE_LIMIT).await
    }

    /// Stops accepting requests, completes those in progress, and flushes all data.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        // Clients get half of the time, the store the other half.
        let half = self.shutdown_timeout / 2;
        self.stop(half).await
    }

    /// Stops. `for_clients` bounds the requests in progress.
    async fn stop(self, for_clients: Duration) -> anyhow::Result<()> {
        drop(self.followers);
        drop(self.client_metrics);
        let cluster = self.open.store.hbase.as_ref().and_then(|hbase| hbase.cluster_node.clone());
        if let Some(cluster) = cluster {
            // The listener stays open until other nodes have the slots, and load balancers have seen that this node
            // is not ready.
            self.server.leave();
            let seen = tokio::time::sleep(self.drain_linger);
            tokio::join!(seen, cluster.drain(self.shutdown_timeout / 2));
        }
        self.server.shutdown(for_clients).await;
        self.open.close(self.shutdown_timeout / 2).await
    }
}

/// Opens the audit log before the store, since its file may be a wrong setting.
fn open_audit(config: &Config, settings: &Settings) -> Result<Option<Arc<AuditLog>>, ConfigError> {
    let Some(audit) = settings.audit.clone() else { return Ok(None) };
    let problems = settings.engine.file_problems.clone();
    let opened = AuditLog::open(audit, problems);
    let log = opened.map_err(|error| {
        config.bad_value(AUDIT_FILE, format!("the audit log cannot be opened: {error}"))
    })?;
    Ok(Some(log))
}

impl OpenEngine {
    /// Opens the store and starts the engine.
    pub(crate) async fn open(
        config: &Config,
        settings: &Settings,
        purpose: Purpose,
    ) -> anyhow::Result<Self> {
        let mut engine = settings.engine.clone();
        let plugins = if purpose == Purpose::Daemon {
            start_plugins(&settings.point_plugins, &mut engine).await?
        } else {
            // Tools have no plug-ins, as in OpenTSDB.
            Vec::new()
        };
        let store = store::open(config, settings, purpose).await?;
        engine.schema = store.schema;
        // Closing the store flushes; a log keeps the rows that cannot be flushed.
        engine.flush_on_shutdown = store.log.is_none();
        engine.retention.clone_from(&store.retention);
        if let Some(hbase) = &store.hbase {
            // Already checked, with retries and a better error.
            engine.check_tables = false;
            // Held rows are safe in the log.
            engine.flush_on_shutdown = hbase.log.is_none();
            engine.multi_writer = true;
            engine.name_peers = store::name_peers(hbase, settings, purpose);
            engine.client_stats = Some(hbase_stats::stats_of(hbase.client.clone()));
            // Held rows are flushed as compacted columns.
            engine.ingest.enable_appends &= hbase.log.is_none();
        }
        let storage = Arc::clone(&store.storage);
        let engine = tokio::task::spawn_blocking(move || Engine::start(engine, storage)).await?;
        let engine = engine.context("cannot start the engine")?;
        if settings.retention.file.is_some() {
            engine.learn_metrics().await.context("cannot read the names of metrics")?;
        }
        let mut filter_rules = None;
        if let Some(path) = &settings.filter_rules {
            let opened = FollowedFile::open(path, "rules of the filter", FilterRules::parse);
            let (file, rules) = opened.map_err(|error| config.bad_value(RULES_FILE, error))?;
            engine.set_write_filter(Some(Arc::new(rules)));
            filter_rules = Some(file);
        }
        Ok(Self { engine, store, filter_rules, plugins })
    }

    /// Stops the engine and closes the store.
    pub(crate) async fn close(self, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        let in_time = self.engine.shutdown(limit).await;
        drop(self.engine);
        for plugin in self.plugins {
            let left = deadline.saturating_duration_since(Instant::now());
            plugin.stop(left.max(LEAST_PLUGIN_STOP)).await;
        }
        self.store.close(limit).await?;
        anyhow::ensure!(
            in_time,
            "some data was not written before the shutdown timeout (tsd.shutdown.timeout)"
        );
        Ok(())
    }
}

/// Starts the plug-ins that get points, and gives the engine their queues.
async fn start_plugins(
    settings: &PointPluginSettings,
    engine: &mut EngineConfig,
) -> anyhow::Result<Vec<PluginTask>> {
    let mut tasks = Vec::new();
    if let Some(publisher) = &settings.publisher {
        let (queue, items) = plugin_queue("publish", publisher.queue_bytes, publisher.on_full);
        let started = start_publisher(publisher.config.clone(), items).await;
        tasks.push(started.context("cannot start the real-time publisher")?);
        engine.plugins.publisher = Some(queue);
    }
    if let Some(spool) = &settings.spool {
        let (queue, items) =
            plugin_queue("storageExceptionHandler", spool.queue_bytes, spool.on_full);
        let started = start_spool(spool.config.clone(), engine.rollups.clone(), items).await;
        tasks.push(started.context("cannot start the storage exception handler")?);
        engine.plugins.exception_handler = Some(queue);
    }
    Ok(tasks)
}

/// Follows the files of query limits, of retention, and of the time series filter.
fn follow_files(
    open: &mut OpenEngine,
    limits_file: Option<FollowedFile>,
    retention_file: Option<FollowedFile>,
) -> impl Iterator<Item = FileFollower> {
    let problems = open.engine.config().file_problems.clone();
    let limits = limits_file.map(|file| {
        let limits = open.engine.config().query.overrides.clone();
        file.follow(problems.clone(), parse_limits, move |rules| limits.replace(rules))
    });
    let retention = retention_file.zip(open.store.retention.clone());
    let retention = retention.map(|(file, retention)| {
        file.follow(problems.clone(), parse_rules, move |rules| retention.set_rules(rules))
    });
    let filter = open.filter_rules.take().map(|file| {
        let engine = open.engine.clone();
        file.follow(problems.clone(), FilterRules::parse, move |rules| {
            engine.set_write_filter(Some(Arc::new(rules)));
        })
    });
    [limits, retention, filter].into_iter().flatten()
}

/// True if static files can be served from a path. A missing directory is only a warning: a configuration of OpenTSDB
/// names the directory of its installation, which need not exist here.
fn is_static_root(root: &Path) -> bool {
    let is_directory = root.is_dir();
    if !is_directory {
        tracing::warn!(
            path = %root.display(),
            "tsd.http.staticroot is not a directory: serving only the files of the program"
        );
    }
    is_directory
}

/// Writes the URL of a daemon to its data directory, for tools. A node of a cluster writes it to the lock of a
/// separate directory.
fn publish(store: &OpenStore, settings: &Settings, url: &str) -> Option<PublishedUrl> {
    let is_node = store.hbase.as_ref().is_some_and(|hbase| hbase.cluster_node.is_some());
    let published = match &store.directory {
        Some(directory) => directory.publish(url).map(|()| None).map_err(anyhow::Error::new),
        None if is_node => PublishedUrl::publish(&settings.storage.data_directory, url)
            .map(Some)
            .map_err(anyhow::Error::new),
        None => Ok(None),
    };
    published.unwrap_or_else(|error| {
        let error = format!("{error:#}");
        tracing::warn!(error, "tools will not find this daemon by its data directory");
        None
    })
}

/// URLs of listeners. A listener on all addresses gets the URL of its loopback address, the IPv4 one if it serves
/// both families.
fn urls(addresses: &[SocketAddr]) -> Vec<String> {
    let has_own_v4 = addresses.iter().any(|address| address.ip() == Ipv4Addr::UNSPECIFIED);
    let url = |address: &SocketAddr| {
        let ip = match address.ip() {
            IpAddr::V6(ip) if ip.is_unspecified() && has_own_v4 => Ipv6Addr::LOCALHOST.into(),
            ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("http://{}/", SocketAddr::new(ip, address.port()))
    };
    addresses.iter().map(url).collect()
}

/// Adds advice for the operator.
fn explain_bind(error: BindError) -> anyhow::Error {
    let advice = match &error {
        BindError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => {
                "another process listens there; stop it, or choose another port (--port)"
            }
            io::ErrorKind::PermissionDenied => {
                "this user may not use that port; choose a port above 1023 (--port)"
            }
            io::ErrorKind::AddrNotAvailable => "this host has no such address (--bind)",
            _ => "",
        },
        _ => "",
    };
    if advice.is_empty() {
        return error.into();
    }
    // One line: what failed, why, and the advice.
    anyhow::anyhow!("{:#}; {advice}", anyhow::Error::new(error))
}

/// The recorder of the process, shared by its nodes.
fn metrics_recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    RECORDER
        .get_or_init(|| {
            install_metrics()
                .inspect_err(|error| tracing::warn!(%error, "no metrics will be rendered"))
                .ok()
        })
        .as_ref()
}
