//! Opens the configured store. Only this module names backends.

mod cluster;
mod cluster_settings;
mod found_hbase;
mod hbase;
mod joining;
mod log_mark;
mod log_owner;
mod log_reports;
mod log_types;
mod names;
mod node_names;
pub(crate) mod offline;
mod on_hbase;
mod open_store;
mod slot_tags;
mod tables;

use std::sync::Arc;

use tsd_files::DiskSpace;
use tsd_storage::{
    MemoryStorage, MeteredStorage, RetainedStorage, Retention, StorageError, UnknownVersion,
};
use tsd_storage_embedded::{EmbeddedConfig, EmbeddedStorage, log_mark_file, recorded_log_mark};
use tsd_storage_wal::{WalConfig, WalStorage, unknown_mark_version};

pub(crate) use self::{
    cluster_settings::ClusterSettings,
    found_hbase::{find_cluster, needed_tables},
    hbase::prefetch,
    joining::JoinError,
    log_owner::LogOwnerError,
    names::name_peers,
    open_store::{OpenStore, Purpose, Replayed},
    tables::all_tables,
};
use self::{
    log_reports::{explain_damage, warn_of},
    tables::tables,
};
use crate::{
    config::{Config, EngineKind, Settings},
    data_directory::DataDirectory,
};

/// Opens the store.
pub(crate) async fn open(
    config: &Config,
    settings: &Settings,
    purpose: Purpose,
) -> anyhow::Result<OpenStore> {
    match settings.storage.engine {
        EngineKind::Memory => Ok(memory(settings)),
        EngineKind::Embedded => {
            let create = matches!(
                purpose,
                Purpose::Daemon | Purpose::Import { create: true } | Purpose::Copy { create: true }
            );
            embedded(config, settings, create).await
        }
        EngineKind::HBase => hbase::open(settings, purpose).await,
    }
}

fn memory(settings: &Settings) -> OpenStore {
    let storage = MemoryStorage::new(tables(settings).into_iter().map(|spec| spec.table));
    let storage = Arc::new(MeteredStorage::new("memory", Arc::new(storage)));
    OpenStore::new(storage, settings.storage.schema)
}

async fn embedded(config: &Config, settings: &Settings, create: bool) -> anyhow::Result<OpenStore> {
    let storage = &settings.storage;
    let directory = DataDirectory::prepare(storage, config, create)?;
    // The store checks its own files, but the log is opened after the store.
    if let Some(unknown) = unknown_in_log(&directory)? {
        return Err(unknown.into());
    }
    // Log, flushes and merges share one account of the disk, so that together they keep the reserve.
    let space = Arc::new(DiskSpace::new(directory.path(), storage.reserve_bytes));
    // Needed without rules too: points that earlier rules discarded stay hidden.
    let rules = settings.retention.rules.clone();
    let retention = Arc::new(Retention::new(&directory.schema(), rules));
    if settings.retention.accept_clock {
        retention.accept_clock();
    }
    let config = EmbeddedConfig {
        retention: Some(Arc::clone(&retention)),
        ..embedded_config(settings, &directory, &space)
    };
    let store = tokio::task::spawn_blocking(move || EmbeddedStorage::open(&config)).await??;
    let wal = WalConfig {
        memtable_bytes: storage.memtable_bytes,
        budget: storage.write_budget.clone(),
        max_age: storage.memtable_max_age,
        segment_bytes: storage.segment_bytes,
        accept_damage: storage.accept_damage,
        space: Some(space),
        ..WalConfig::new(directory.log())
    };
    let store = MeteredStorage::new("store", Arc::new(store));
    let (held, report) = WalStorage::open(wal, Arc::new(store)).await.map_err(explain_damage)?;
    warn_of(&report);
    // If the disk is full, the next start writes the record.
    if let Err(error) = directory.mark_opened() {
        tracing::warn!(%error, "cannot record that there is a store in the data directory");
    }
    let log = Arc::new(held);
    let storage = MeteredStorage::new("log", Arc::clone(&log));
    Ok(OpenStore {
        storage: Arc::new(RetainedStorage::new(Arc::clone(&retention), Arc::new(storage))),
        retention: Some(retention),
        schema: directory.schema(),
        replayed: Replayed { cells: report.cells, bytes: report.bytes },
        directory: Some(directory),
        log: Some(log),
        hbase: None,
    })
}

/// The first file of the log that another release wrote, or such a mark of the log in the store.
fn unknown_in_log(directory: &DataDirectory) -> Result<Option<UnknownVersion>, StorageError> {
    let (log, store) = (directory.log(), directory.store());
    let unknown = tsd_storage_wal::unknown_version(&log)
        .map_err(|source| StorageError::io(format!("reading {}", log.display()), source))?;
    let mark = recorded_log_mark(&store)?;
    Ok(unknown.or_else(|| unknown_mark_version(&mark, &log_mark_file(&store))))
}

fn embedded_config(
    settings: &Settings,
    directory: &DataDirectory,
    space: &Arc<DiskSpace>,
) -> EmbeddedConfig {
    let (storage, engine) = (&settings.storage, &settings.engine);
    EmbeddedConfig {
        cache_bytes: storage.cache_bytes,
        space: Arc::clone(space),
        open_files: storage.open_files,
        needed_files: vec![directory.schema_file()],
        // Compacts rows as the engine's row compactor would.
        compacts_rows: engine.compaction.enabled && !engine.rows.use_otsdb_timestamp,
        ..EmbeddedConfig::new(directory.store(), directory.schema(), tables(settings))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;
    use tsd_model::Family;
    use tsd_storage::{CellBatch, CellRef, Get, StorageExt, Table};

    use super::*;

    const ROLLUPS: &str = r#"{"aggregationIds":{"sum":0},"intervals":[{"table":"tsdb","preAggregationTable":"agg","interval":"1m","rowSpan":"1h","defaultInterval":true},{"table":"r1h","preAggregationTable":"a1h","interval":"1h","rowSpan":"1n"}]}"#;

    async fn open_in(directory: &std::path::Path, rollups: bool) -> OpenStore {
        let mut config = Config::default();
        config.set_flag("test", "tsd.storage.data_directory", directory.to_str().unwrap());
        config.set_flag("test", "tsd.rollups.enable", if rollups { "true" } else { "false" });
        config.set_flag("test", "tsd.rollups.config", ROLLUPS);
        let settings = Settings::from_config(&config).unwrap();
        // A dropped store releases its directory when its last thread ends.
        for _ in 0..1_000 {
            match open(&config, &settings, Purpose::Daemon).await {
                Err(error) if error.to_string().contains("in use") => {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                opened => return opened.unwrap(),
            }
        }
        panic!("the directory stays in use")
    }

    fn copy(from: &std::path::Path, to: &std::path::Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn log_and_store_of_different_times_do_not_start_without_consent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let put = async |qualifier: u8| {
            let cell = CellRef {
                family: Family::T,
                qualifier: &[qualifier, 0x70],
                value: &[42],
                timestamp_ms: None,
            };
            let store = open_in(path, false).await;
            let batch = CellBatch::single(b"row", cell).unwrap();
            store.storage.put(&Table::new("tsdb"), batch).await.unwrap();
            store.storage.close().await.unwrap();
        };
        put(1).await;
        let old = path.join("old");
        for part in ["log", "store"] {
            copy(&path.join(part), &old.join(part));
        }
        put(2).await;
        let new = path.join("new");
        for part in ["log", "store"] {
            copy(&path.join(part), &new.join(part));
        }
        for (replaced, other, text) in [
            ("store", "log", "the log begins after what the store contains"),
            ("log", "store", "the log ends before what the store contains"),
        ] {
            for (part, source) in [(replaced, &old), (other, &new)] {
                std::fs::remove_dir_all(path.join(part)).unwrap();
                copy(&source.join(part), &path.join(part));
            }
            let mut config = Config::default();
            let data = path.to_str().unwrap();
            config.set_flag("test", "tsd.storage.data_directory", data);
            let settings = Settings::from_config(&config).unwrap();
            let error = open(&config, &settings, Purpose::Daemon).await.unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(text) && error.contains("--accept-damage"), "{error}");
            config.set_flag("test", "tsd.storage.accept_damage", "true");
            let settings = Settings::from_config(&config).unwrap();
            let accepted = open(&config, &settings, Purpose::Daemon).await.unwrap();
            accepted.storage.close().await.unwrap();
            drop(accepted);
            open_in(path, false).await.storage.close().await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_missing_log_directory_of_the_embedded_store_stops_the_start() {
        let directory = tempfile::tempdir().unwrap();
        open_in(directory.path(), false).await.storage.close().await.unwrap();
        let mut config = Config::default();
        config.set_flag("test", "tsd.storage.data_directory", directory.path().to_str().unwrap());
        let settings = Settings::from_config(&config).unwrap();
        std::fs::remove_dir_all(directory.path().join("log")).unwrap();
        let error = open(&config, &settings, Purpose::Daemon).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("state of the log"), "{error}");
        assert!(error.contains("--accept-damage"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rollup_tables_are_created_and_stay_readable_without_their_settings() {
        let directory = tempfile::tempdir().unwrap();
        let (table, row) = (Table::new("r1h"), Bytes::from_static(b"row"));
        let first = open_in(directory.path(), true).await;
        for table in ["tsdb", "tsdb-uid", "agg", "r1h", "a1h"].map(Table::new) {
            assert!(first.storage.table_exists(&table).await.unwrap(), "{table}");
        }
        let cell = CellRef {
            family: Family::T,
            qualifier: &[0, 8, 0x70],
            value: &[42],
            timestamp_ms: None,
        };
        first.storage.put(&table, CellBatch::single(&row, cell).unwrap()).await.unwrap();
        // As after a kill, only the log has the put.
        drop(first);
        for rollups in [false, true] {
            let again = open_in(directory.path(), rollups).await;
            let stored = again.storage.get(&table, Get::row(row.clone())).await.unwrap().unwrap();
            let stored = stored.into_cells().unwrap();
            assert_eq!(stored.first().map(|cell| cell.value.to_vec()), Some(vec![42]));
            again.storage.close().await.unwrap();
        }
    }
}
