#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use tsd_model::{Family, TableSchema};
use tsd_storage::{CellBatch, CellRef, FlushTarget, Get, LogMark, Storage, Table, conformance};
use tsd_storage_wal::{WalConfig, WalStorage};

use crate::{EmbeddedConfig, EmbeddedStorage, EmbeddedTable, TableKind};

/// On a memory file system if there is one: on a busy disk each of the many small writes would wait for
/// its syncs.
fn new_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn tables() -> Vec<EmbeddedTable> {
    let [data, uid] = conformance::tables();
    vec![EmbeddedTable::data(data), EmbeddedTable::cells(uid)]
}

fn open(dir: &std::path::Path, tables: Vec<EmbeddedTable>) -> EmbeddedStorage {
    let config = EmbeddedConfig {
        // Which columns a row has is what the suite looks at.
        compacts_rows: false,
        ..EmbeddedConfig::new(dir, TableSchema::opentsdb_default(), tables)
    };
    EmbeddedStorage::open(&config).unwrap()
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let (dir, number) = (new_dir(), AtomicU32::new(0));
    conformance::run_all(async || {
        let number = number.fetch_add(1, Ordering::Relaxed).to_string();
        Arc::new(open(&dir.path().join(number), tables()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_the_conformance_suite_behind_the_log() {
    for memtable_bytes in [1, 1 << 20] {
        let (dir, number) = (new_dir(), AtomicU32::new(0));
        conformance::run_all(async || {
            let dir = dir.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
            let config = WalConfig { memtable_bytes, ..WalConfig::new(dir.join("log")) };
            let store = Arc::new(open(&dir.join("store"), tables()));
            Arc::new(WalStorage::open(config, store).await.unwrap().0)
        })
        .await;
    }
}

#[tokio::test]
async fn a_restart_keeps_rows_the_mark_of_the_log_and_tables_that_are_not_configured() {
    let dir = new_dir();
    let rollups = Table::new("tsdb-rollup-1h");
    let row = Bytes::from_static(b"row of the table");
    let mut all = tables();
    let kind = TableKind::Rollups { row_secs: 31 * 86_400 };
    all.push(EmbeddedTable { table: rollups.clone(), kind });
    for specs in [all.clone(), tables(), all] {
        let store = open(dir.path(), specs);
        for table in conformance::tables().iter().chain([&rollups]) {
            let cell =
                CellRef { family: Family::T, qualifier: &[0, 0], value: &[7], timestamp_ms: None };
            store.put(table, CellBatch::single(&row, cell).unwrap()).await.unwrap();
            assert!(store.get(table, Get::row(row.clone())).await.unwrap().is_some(), "{table}");
        }
        store.set_log_mark(row.clone()).await.unwrap();
        assert_eq!(store.log_mark().await.unwrap(), LogMark::Recorded(row.clone()));
        store.close().await.unwrap();
    }
}

#[test]
fn a_table_stays_of_its_kind() {
    let dir = new_dir();
    drop(open(dir.path(), tables()));
    let [data, uid] = conformance::tables();
    for specs in [EmbeddedTable::cells(data), EmbeddedTable::data(uid)] {
        let schema = TableSchema::opentsdb_default();
        let config = EmbeddedConfig::new(dir.path(), schema, vec![specs]);
        let error = EmbeddedStorage::open(&config).unwrap_err().to_string();
        assert!(error.contains("has another layout"), "{error}");
    }
}
