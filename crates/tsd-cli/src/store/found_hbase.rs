//! Finds HBase, its tables and the rights on them at a start.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use anyhow::Context;
use hbase_rs::{Client, security::Authentication};
use tracing::warn;
use tsd_model::Family;
use tsd_server::ServerMode;
use tsd_storage::{Recovery, StorageError, Table};
use tsd_storage_hbase::{HBaseDiscovery, HBaseStorage, Rights};

use super::{open_store::Purpose, tables::all_tables};
use crate::config::{HBaseSettings, Settings};

/// Timeout of one attempt.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Time between two reports of the same failure.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Waits until ZooKeeper knows a server of HBase. Reports the cause of a failure at once, and then once per
/// [`REPORT_INTERVAL`].
pub(crate) async fn find_cluster(
    client: &Client,
    settings: &Settings,
    patience: Duration,
) -> anyhow::Result<()> {
    let hbase = &settings.storage.hbase;
    let started = Instant::now();
    let mut reported: Option<Instant> = None;
    loop {
        let Err(error) = client.discover().await else { return Ok(()) };
        if error.is_permanent() || started.elapsed() >= patience {
            return Err(error).with_context(|| unreachable_text(hbase));
        }
        if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            reported = Some(Instant::now());
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            let left = patience.saturating_sub(started.elapsed()).as_secs();
            warn!(%error, cause, "HBase is not found; retrying for {left} s");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Checks the tables, and the rights on them; retries until HBase responds.
pub(super) async fn find_tables(
    settings: &Settings,
    store: &HBaseStorage,
    purpose: Purpose,
    patience: Duration,
) -> anyhow::Result<()> {
    let hbase = &settings.storage.hbase;
    let started = Instant::now();
    for table in needed_tables(settings) {
        loop {
            let left = patience.saturating_sub(started.elapsed());
            let attempt = left.clamp(Duration::from_millis(100), ATTEMPT);
            let error = match find_table(settings, store, &table, purpose, attempt).await {
                Ok(FoundTable::Usable) => break,
                Ok(FoundTable::Missing) => return Err(no_table(&table, hbase)),
                Ok(FoundTable::Denied(reason)) => return Err(denied(&table, &reason)),
                Err(error) => error,
            };
            if error.recovery() == Recovery::GiveUp || started.elapsed() >= patience {
                return Err(error).with_context(|| unreachable_text(hbase));
            }
            let place = &hbase.cluster.discovery;
            warn!(%error, %place, "HBase does not respond; retrying");
            tokio::time::sleep(PAUSE.min(patience.saturating_sub(started.elapsed()))).await;
        }
    }
    Ok(())
}

/// What the start found of a table.
enum FoundTable {
    /// It exists, and the user may do what the process does.
    Usable,
    /// It does not exist.
    Missing,
    /// The user lacks a right, which no wait mends. The text is HBase's.
    Denied(String),
}

/// Looks for a table and, on a secured cluster, for the rights on it.
async fn find_table(
    settings: &Settings,
    store: &HBaseStorage,
    table: &Table,
    purpose: Purpose,
    timeout: Duration,
) -> Result<FoundTable, StorageError> {
    if !store.table_exists_within(table, timeout).await? {
        return Ok(FoundTable::Missing);
    }
    let security = &settings.storage.hbase.cluster.security;
    if security.authentication == Authentication::Simple {
        return Ok(FoundTable::Usable);
    }
    let reads_only = match purpose {
        Purpose::Daemon => settings.server.mode == ServerMode::ReadOnly,
        Purpose::Query => true,
        Purpose::Import { .. } | Purpose::Copy { .. } => false,
    };
    let family = family_of(settings, table);
    Ok(match store.check_rights(table, family, !reads_only, timeout).await? {
        Rights::Granted => FoundTable::Usable,
        Rights::Missing(reason) => FoundTable::Denied(reason),
    })
}

/// A family of a table.
fn family_of(settings: &Settings, table: &Table) -> Family {
    let (tables, hbase) = (&settings.engine.tables, &settings.storage.hbase);
    if [&tables.uid, &tables.meta, &hbase.series_table].contains(&table) {
        Family::Name
    } else {
        Family::T
    }
}

fn denied(table: &Table, reason: &str) -> anyhow::Error {
    anyhow::anyhow!("{reason}").context(format!(
        "the user of this process lacks a right on table {table}: tools that read need READ, daemons and other tools \
         READ and WRITE; grant them in HBase's shell"
    ))
}

/// Tables that must exist.
pub(crate) fn needed_tables(settings: &Settings) -> Vec<Table> {
    let (engine, hbase) = (&settings.engine, &settings.storage.hbase);
    let tracks = engine.meta_tracking != tsd_engine::MetaTracking::Off;
    all_tables(settings)
        .into_iter()
        .filter(|table| engine.tree_processing || *table != engine.tables.tree)
        .filter(|table| tracks || *table != engine.tables.meta)
        .chain(hbase.registers_series().then(|| hbase.series_table.clone()))
        .collect()
}

fn no_table(table: &Table, settings: &HBaseSettings) -> anyhow::Error {
    anyhow::anyhow!(
        "table {table} does not exist in the HBase at {}; `tsdb table create` creates the tables",
        settings.cluster.discovery
    )
}

fn unreachable_text(settings: &HBaseSettings) -> String {
    match &settings.cluster.discovery {
        HBaseDiscovery::ZooKeeper { quorum, root, .. } => format!(
            "cannot reach HBase through ZooKeeper at {quorum} (znode {root}); check \
             tsd.storage.hbase.zk_quorum, zk_basedir and hosts"
        ),
        registry @ HBaseDiscovery::Registry { .. } => format!(
            "cannot reach HBase through its servers at {registry}; check hbase.masters, \
             hbase.client.bootstrap.servers and tsd.storage.hbase.hosts"
        ),
    }
}
