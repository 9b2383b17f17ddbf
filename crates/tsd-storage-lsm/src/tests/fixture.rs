//! Stores, rows and reads for the tests.

use bytes::Bytes;
use tsd_model::{Cell, Row};
use tsd_storage::{Scan, Storage, Table};

use crate::{LsmConfig, LsmStorage};

pub(super) type Dir = tempfile::TempDir;

/// On a memory file system if there is one: on a busy disk each of the many small ingestions would
/// wait for its syncs.
pub(super) fn new_dir() -> Dir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(super) fn open(dir: &Dir, tables: Vec<Table>) -> LsmStorage {
    LsmStorage::open(&LsmConfig::new(dir.path(), tables)).unwrap()
}

pub(super) fn data() -> Table {
    Table::new("tsdb")
}

pub(super) fn open_data(dir: &Dir) -> LsmStorage {
    open(dir, vec![data()])
}

pub(super) async fn scan(store: &dyn Storage, table: &Table, scan: Scan) -> Vec<Row> {
    let mut scanner = store.scan(table, scan);
    let mut rows = Vec::new();
    while let Some(batch) = scanner.next_rows().await.unwrap() {
        rows.extend(batch);
    }
    rows
}

pub(super) async fn all_cells(store: &dyn Storage, table: &Table) -> Vec<(Bytes, Vec<Cell>)> {
    let rows = scan(store, table, Scan::default()).await;
    rows.into_iter().map(|row| (row.key.clone(), row.into_cells().unwrap())).collect()
}

/// Waits until LSM compaction is idle.
pub(super) fn wait_for_compaction(store: &LsmStorage) {
    let gauges = || {
        let gauges = store.maintenance().gauges();
        let of = |name| gauges.iter().find(|(n, _)| *n == name).unwrap().1;
        (of("tsd_lsm_l0_runs"), of("tsd_lsm_compaction_steps_total"))
    };
    let mut before = gauges();
    loop {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = gauges();
        if now == before && now.0 < 8.0 {
            return;
        }
        before = now;
    }
}
