//! Opens a store on HBase, directly or with a log in front.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use hbase_rs::{Client, ClientConfig, discovery::DiscoveryError};
use tracing::{info, warn};
use tsd_cluster_log::{ClusterLog, ClusterLogConfig, OpenLogError};
use tsd_cluster_net::NetConfig;
use tsd_files::DiskSpace;
use tsd_storage::{MeteredStorage, Recovery, Standstills, Storage, StorageError, Table};
use tsd_storage_hbase::{HBaseConfig, HBaseStorage, SeriesIndexConfig};
use tsd_storage_wal::{
    BackendSharing, CommitLog, LoggedTables, OpenError, WalConfig, WalStorage, holds_log,
};

use super::{
    cluster::{self, PeerListener},
    found_hbase::{PAUSE, find_cluster, find_tables, needed_tables},
    joining, log_mark, log_owner,
    log_reports::{explain_damage, warn_of},
    log_types::{HBaseLog, Metered},
    on_hbase::{OnHBase, end_mark},
    open_store::{OpenStore, Purpose, Replayed},
    slot_tags,
    tables::all_tables,
};
use crate::config::{Ack, Settings, UnusableConfiguration};

/// How long a start waits for HBase if it can serve without HBase.
const GLANCE: Duration = Duration::from_secs(3);

/// Bytes of a group with `ack = cluster`. With its last request the group fits into few cells of 96 KiB.
const CLUSTER_GROUP_BYTES: usize = 88 << 10;
/// Shortest time between two small groups with `ack = cluster` (docs/decisions/015).
const CLUSTER_GROUP_INTERVAL: Duration = Duration::from_millis(5);

/// Directory of a daemon's log, in the data directory.
const LOG: &str = "hbase-log";
/// Directory of an import's log.
const IMPORT_LOG: &str = "hbase-import-log";

pub(super) async fn open(settings: &Settings, purpose: Purpose) -> anyhow::Result<OpenStore> {
    let hbase = &settings.storage.hbase;
    let client = hbase.client()?;
    // Read-backs put cells again with a later time. So they are off for cells with the times of their points, and for
    // copies, whose cells keep their times.
    let is_copy = matches!(purpose, Purpose::Copy { .. });
    let has_cell_times = settings.engine.rows.use_otsdb_timestamp || is_copy;
    let compacted_table =
        (!has_cell_times).then(|| (settings.engine.tables.data.clone(), settings.storage.schema));
    // Twice the hold time, because a flush takes time and clocks differ.
    let max_hold = hbase.hold * 2;
    let series_index = series_index(settings);
    let cluster = HBaseConfig { compacted_table, max_hold, series_index, ..hbase.cluster.clone() };
    let below = HBaseStorage::with_client(client.clone(), cluster)?;
    if !is_copy {
        below.start_read_backs();
    }
    if purpose == Purpose::Daemon {
        below.start_series_index();
        if hbase.ack != Ack::Storage {
            below.start_table_watch(needed_tables(settings));
        }
    }
    let below = Arc::new(MeteredStorage::new("hbase", Arc::new(below)));
    let HBaseConfig { discovery, user, .. } = &hbase.cluster;
    info!(%discovery, user, ack = ?hbase.ack, "using HBase");
    let directory = |name: &str| settings.storage.data_directory.join(name);
    if purpose == Purpose::Daemon && hbase.ack == Ack::Log {
        return logged(settings, client, below, &directory(LOG)).await;
    }
    find_cluster(&client, settings, hbase.start_timeout).await?;
    find_tables(settings, below.inner(), purpose, hbase.start_timeout).await?;
    if matches!(purpose, Purpose::Import { .. }) {
        return import_log(settings, client, below, &directory(IMPORT_LOG)).await;
    }
    if purpose == Purpose::Daemon {
        let log = directory(LOG);
        log_mark::check(&log, settings.storage.accept_damage)?;
        if holds_log(&log).with_context(|| format!("cannot read {}", log.display()))? {
            drain_former_log(settings, &below, &log).await?;
        }
        if hbase.ack == Ack::Cluster {
            return cluster_logged(settings, client, below).await;
        }
        refuse_cluster_log(&client, &hbase.cluster_log).await?;
    }
    Ok(straight(settings, client, below))
}

/// The index of the series of the data table, if it is on.
fn series_index(settings: &Settings) -> Option<SeriesIndexConfig> {
    let (engine, hbase) = (&settings.engine, &settings.storage.hbase);
    let tracks = engine.meta_tracking != tsd_engine::MetaTracking::Off;
    Some(SeriesIndexConfig {
        mode: hbase.series_index?,
        data: engine.tables.data.clone(),
        schema: settings.storage.schema,
        registrations: hbase.series_table.clone(),
        meta: tracks.then(|| engine.tables.meta.clone()),
        max_bytes: usize::try_from(settings.memory.series_index).unwrap_or(usize::MAX),
        scan_rows_per_second: hbase.series_scan_rate,
    })
}

fn straight(settings: &Settings, client: Client, below: Arc<Metered>) -> OpenStore {
    let hbase = Some(OnHBase::new(client));
    OpenStore { hbase, ..OpenStore::new(below, settings.storage.schema) }
}

/// Tables whose rows go through the log: points and rollups. UIDs, meta data and trees go to HBase directly.
fn held(settings: &Settings) -> Vec<Table> {
    let others = &settings.engine.tables;
    all_tables(settings)
        .into_iter()
        .filter(|table| ![&others.uid, &others.meta, &others.tree].contains(&table))
        .collect()
}

fn wal_config(settings: &Settings, directory: &Path, tables: Vec<Table>) -> WalConfig {
    let (storage, hbase) = (&settings.storage, &settings.storage.hbase);
    WalConfig {
        logged: LoggedTables::Only(tables),
        memtable_bytes: storage.memtable_bytes,
        budget: storage.write_budget.clone(),
        max_age: hbase.hold,
        // Several segments, so that flushed segments can be deleted.
        segment_bytes: storage.segment_bytes.min(hbase.max_log_bytes / 4).max(1 << 16),
        max_log_bytes: Some(hbase.max_log_bytes),
        // A longer cell would stay in the log for ever and block trimming.
        max_cell_bytes: ClientConfig::DEFAULT_MAX_CELL,
        backend: BackendSharing::MultiWriter,
        accept_damage: storage.accept_damage,
        space: Some(Arc::new(DiskSpace::new(directory, storage.reserve_bytes))),
        ..WalConfig::new(directory)
    }
}

/// As [`wal_config`], for a log with a cost per group.
fn cluster_wal_config(settings: &Settings) -> WalConfig {
    WalConfig {
        space: None,
        group_bytes: CLUSTER_GROUP_BYTES,
        group_interval: CLUSTER_GROUP_INTERVAL,
        ..wal_config(settings, Path::new(""), held(settings))
    }
}

async fn open_log(
    settings: &Settings,
    below: &Arc<Metered>,
    directory: &Path,
    tables: Vec<Table>,
) -> anyhow::Result<OpenLog> {
    log_mark::check(directory, settings.storage.accept_damage)?;
    log_owner::claim(directory, &settings.storage.hbase)?;
    let config = wal_config(settings, directory, tables);
    let (log, report) =
        WalStorage::open(config, Arc::clone(below)).await.map_err(explain_damage)?;
    warn_of(&report);
    if let Err(error) = log_mark::begin(directory) {
        log.stop().await;
        return Err(error.into());
    }
    let replayed = Replayed { cells: report.cells, bytes: report.bytes };
    Ok(OpenLog { log, replayed, directory: Some(directory.to_owned()) })
}

/// Opens the store of a daemon with `ack = log`. The daemon starts as soon as the log is replayed, even if HBase is
/// unavailable.
async fn logged(
    settings: &Settings,
    client: Client,
    below: Arc<Metered>,
    directory: &Path,
) -> anyhow::Result<OpenStore> {
    warn_of_appends(settings, "log");
    let opened = open_log(settings, &below, directory, held(settings)).await?;
    let cluster_log =
        ClusterLogConfig { start_timeout: GLANCE, ..settings.storage.hbase.cluster_log.clone() };
    let found = async {
        find_cluster(&client, settings, Duration::ZERO).await?;
        find_tables(settings, below.inner(), Purpose::Daemon, GLANCE).await?;
        refuse_cluster_log(&client, &cluster_log).await
    };
    match found.await {
        Ok(()) => {}
        Err(error) if is_unavailable(&error) => {
            warn!("{error:#}; starting anyway: points of series with cached UIDs are accepted");
        }
        Err(error) => {
            opened.log.stop().await;
            return Err(error);
        }
    }
    Ok(opened.into_store(settings, client, false))
}

/// Opens the store of a daemon with `ack = cluster`, which takes over its log in HBase.
async fn cluster_logged(
    settings: &Settings,
    client: Client,
    below: Arc<Metered>,
) -> anyhow::Result<OpenStore> {
    warn_of_appends(settings, "cluster");
    let hbase = &settings.storage.hbase;
    // Separate connections, so that a record does not wait behind a flush.
    let log_client = hbase.client()?;
    let standstills = Some(Standstills::of_process().context("cannot start a thread")?);
    let net = NetConfig { standstills, ..cluster::net_config(&hbase.cluster_net)? };
    let listener = PeerListener::bind(&hbase.cluster_net).await?;
    let log_config = ClusterLogConfig {
        shared: cluster::shared_settings(settings),
        ..hbase.cluster_log.clone()
    };
    let uids = slot_tags::uid_table(settings, Arc::<Metered>::clone(&below));
    let log_config = slot_tags::with_uids(&log_client, log_config, &uids, false).await?;
    let forward = cluster::forward_config(settings, &log_config.shared, held(settings))?;
    let address = listener.advertised.clone();
    let opened = match Box::pin(tsd_cluster_log::open(&log_client, log_config.clone())).await {
        Ok(opened) => opened,
        Err(error) => {
            joining::note_refusal(&log_client, &log_config, &net, &error).await;
            return Err(error.into());
        }
    };
    let config = cluster_wal_config(settings);
    let table = Arc::clone(&opened.log);
    let commit_log: Arc<dyn CommitLog> = Arc::<ClusterLog>::clone(&table);
    let opening = WalStorage::open_on(config, commit_log, opened.former, Arc::clone(&below));
    let (log, report) = opening.await.context("cannot replay the log in HBase")?;
    let replayed = Replayed { cells: report.cells, bytes: report.bytes };
    let mut open = OpenLog { log, replayed, directory: None }.into_store(settings, client, false);
    if let Some(hbase) = &mut open.hbase
        && let Some((log, _)) = &hbase.log
    {
        let (table, log) = (Arc::clone(&table), Arc::clone(log));
        let (storage, node) = cluster::join(settings, (listener, net), table, log, forward)?;
        open.storage = storage;
        hbase.cluster_node = Some(node);
        hbase.cluster_log = Some(opened.log);
    }
    let admitted = match open.hbase.as_ref().and_then(|hbase| hbase.cluster_node.as_ref()) {
        Some(node) => {
            let admitting = async {
                joining::admit(node, &address, &hbase.cluster_net).await?;
                Ok(table.join().await?)
            };
            tokio::select! {
                admitted = admitting => admitted,
                // A later incarnation can join.
                reason = table.ended() => Err(anyhow::anyhow!(reason)),
            }
        }
        None => Ok(table.join().await?),
    };
    if let Err(error) = admitted {
        // The node has acknowledged nothing. Its replayed rows are flushed, or stay in its log.
        if let Err(error) = open.close(settings.shutdown_timeout).await {
            warn!("{error:#}");
        }
        return Err(error);
    }
    Ok(open)
}

/// Fails if the log in HBase may have points that are nowhere else. A daemon that does not use the log would miss
/// them.
async fn refuse_cluster_log(client: &Client, log: &ClusterLogConfig) -> anyhow::Result<()> {
    let is_in_use = Box::pin(tsd_cluster_log::is_in_use(client, log)).await?;
    let table = &log.table;
    if !is_in_use {
        return Ok(());
    }
    Err(UnusableConfiguration::new(format!(
        "table {table} may have acknowledged points that are nowhere else; start once with tsd.storage.ack = cluster \
         and stop that daemon; if another daemon uses the table, name another \
         tsd.cluster.log_table"
    ))
    .into())
}

fn warn_of_appends(settings: &Settings, ack: &str) {
    if settings.engine.ingest.enable_appends {
        warn!(
            "tsd.storage.enable_appends is not needed with tsd.storage.ack = {ack}: points are put, and rows are flushed as compacted columns"
        );
    }
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    if let Some(error) = error.downcast_ref::<DiscoveryError>() {
        return !error.is_permanent();
    }
    let of_log = match error.downcast_ref() {
        Some(OpenLogError::Storage(error)) => Some(error),
        _ => None,
    };
    of_log
        .or_else(|| error.downcast_ref::<StorageError>())
        .is_some_and(|error| error.recovery() == Recovery::RetryLater)
}

/// A log that was opened and replayed.
struct OpenLog {
    log: HBaseLog,
    replayed: Replayed,
    /// `None` if the log is in HBase.
    directory: Option<PathBuf>,
}

impl OpenLog {
    /// The store behind the log. With `must_drain`, remaining rows in the log are an error at the close.
    fn into_store(self, settings: &Settings, client: Client, must_drain: bool) -> OpenStore {
        let Self { log, replayed, directory } = self;
        let log = Arc::new(log);
        let storage = Arc::new(MeteredStorage::new("log", Arc::clone(&log)));
        let hbase =
            Some(OnHBase { log: Some((log, directory)), must_drain, ..OnHBase::new(client) });
        OpenStore { replayed, hbase, ..OpenStore::new(storage, settings.storage.schema) }
    }
}

/// Flushes the log of a former `ack = log` before the daemon starts.
async fn drain_former_log(
    settings: &Settings,
    below: &Arc<Metered>,
    directory: &Path,
) -> anyhow::Result<()> {
    info!(log = %directory.display(), "flushing the rows of a former tsd.storage.ack = log");
    let OpenLog { log, .. } = open_log(settings, below, directory, Vec::new()).await?;
    let patience = settings.storage.hbase.start_timeout;
    let started = Instant::now();
    let drained = loop {
        let left = patience.saturating_sub(started.elapsed());
        let flushed = tokio::time::timeout(left, log.flush()).await;
        match flushed {
            Ok(Ok(())) => break Ok(()),
            Ok(Err(error)) if started.elapsed() < patience => {
                warn!(%error, "cannot flush the log; retrying");
                tokio::time::sleep(PAUSE).await;
            }
            Ok(Err(error)) => break Err(error),
            Err(_) => break Err(StorageError::Timeout("HBase did not accept all rows in time")),
        }
    };
    log.stop().await;
    drained.map_err(anyhow::Error::new).and_then(|()| end_mark(directory)).with_context(|| {
        format!(
            "the log in {} contains acknowledged points that HBase does not accept; fix the cause, or start with tsd.storage.ack = log",
            directory.display()
        )
    })
}

/// Opens the log of an import, so that rows are flushed whole and an interrupted import keeps its points. A second
/// concurrent import writes to HBase directly.
async fn import_log(
    settings: &Settings,
    client: Client,
    below: Arc<Metered>,
    directory: &Path,
) -> anyhow::Result<OpenStore> {
    match open_log(settings, &below, directory, held(settings)).await {
        Ok(opened) => Ok(opened.into_store(settings, client, true)),
        Err(error) if matches!(error.downcast_ref(), Some(OpenError::InUse { .. })) => {
            warn!("{error:#}; writing rows to HBase directly");
            Ok(straight(settings, client, below))
        }
        Err(error) => Err(error),
    }
}

/// Locates the regions of the tables before the first calls.
pub(crate) async fn prefetch(client: Client, tables: Vec<Table>) {
    for table in tables {
        let Ok(name) = table.as_str().parse() else { continue };
        match client.table(name).prefetch().await {
            Ok(regions) => info!(table = table.as_str(), regions, "regions located"),
            Err(error) => warn!(table = table.as_str(), %error, "regions could not be located"),
        }
    }
}
