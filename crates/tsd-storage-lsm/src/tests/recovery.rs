//! Tests stores that were reopened, copied during a write, damaged, or out of disk space.

use std::{fs, path::Path, sync::Arc};

use tsd_files::DiskSpace;
use tsd_model::Family;
use tsd_storage::{FlushTarget, Get, OwnedFlushRow, Recovery, Scan, Storage, StorageError, Table};

use super::fixture::{all_cells, data, new_dir, open_data, wait_for_compaction};
use crate::{LsmConfig, LsmStorage};

fn points(key: &[u8], offsets: std::ops::Range<u16>, value: u8) -> OwnedFlushRow {
    let cells = offsets
        .map(|o| (Family::T, (o << 4).to_be_bytes().to_vec(), vec![value], i64::from(value)))
        .collect();
    OwnedFlushRow { key: key.to_vec(), cells, ..OwnedFlushRow::default() }
}

#[tokio::test]
async fn order_of_runs_survives_a_restart() {
    let dir = new_dir();
    // Each run replaces all columns, so a wrong order of runs would be visible.
    for value in 1..30_u8 {
        let store = open_data(&dir);
        store
            .flush_rows(&data(), OwnedFlushRow::flush_rows([points(b"row", 0..10, value)]))
            .await
            .unwrap();
        wait_for_compaction(&store);
        let rows = all_cells(&store, &data()).await;
        assert_eq!(rows.len(), 1);
        assert!(rows[0].1.iter().all(|c| c.value[0] == value), "{value}: {:?}", rows[0].1);
        assert_eq!(rows[0].1.len(), 10);
    }
}

#[tokio::test]
async fn lsm_compaction_does_not_change_reads() {
    let dir = new_dir();
    let store = open_data(&dir);
    let mut open_scans = Vec::new();
    for round in 0..40_u8 {
        let rows = (0..20_u8).map(|i| {
            let mut row = points(&[0, i], u16::from(round) * 4..u16::from(round) * 4 + 4, round);
            row.delete_row = (round % 13 == 12).then_some(i64::MAX);
            row
        });
        store.flush_rows(&data(), OwnedFlushRow::flush_rows(rows)).await.unwrap();
        if round % 10 == 5 {
            let mut scanner = store.scan(&data(), Scan { batch_rows: Some(1), ..Scan::default() });
            assert_eq!(scanner.next_rows().await.unwrap().unwrap().len(), 1);
            open_scans.push((round, scanner));
        }
    }
    wait_for_compaction(&store);
    let since = |round: u8| ((round + 1) / 13 * 13).saturating_sub(1);
    for (key, cells) in all_cells(&store, &data()).await {
        let first = since(39);
        assert_eq!(cells.len(), usize::from(39 - first + 1) * 4, "{key:?}");
    }
    // An open scan reads the snapshot it started with.
    for (round, mut scanner) in open_scans {
        let mut rows = 1;
        while let Some(batch) = scanner.next_rows().await.unwrap() {
            for row in batch {
                rows += 1;
                assert_eq!(
                    row.into_cells().unwrap().len(),
                    usize::from(round - since(round) + 1) * 4
                );
            }
        }
        assert_eq!(rows, 20);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn copy_during_an_ingestion_has_the_previous_state() {
    struct CopyingRows<'a> {
        rows: Box<dyn tsd_storage::FlushRows>,
        returned: usize,
        from: &'a Path,
        to: &'a Path,
    }
    impl tsd_storage::FlushRows for CopyingRows<'_> {
        fn next_row(&mut self) -> Option<tsd_storage::FlushRow<'_>> {
            self.returned += 1;
            if self.returned == 5_000 {
                copy(self.from, self.to);
            }
            self.rows.next_row()
        }
        fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {
            self.rows.sort_by(compare);
        }
    }
    let (dir, copied) = (new_dir(), new_dir());
    let store = open_data(&dir);
    store
        .flush_rows(&data(), OwnedFlushRow::flush_rows([points(b"before", 0..10, 1)]))
        .await
        .unwrap();
    let many = (0..10_000_u32).map(|i| points(&i.to_be_bytes(), 0..20, 2));
    let mut rows = CopyingRows {
        rows: OwnedFlushRow::flush_rows(many),
        returned: 0,
        from: dir.path(),
        to: copied.path(),
    };
    let table = store.backend().table(&data());
    table.ingest(&table.writer(), &mut rows).unwrap();
    assert_eq!(all_cells(&store, &data()).await.len(), 10_001);

    let store = open_data(&copied);
    let rows = all_cells(&store, &data()).await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].0.as_ref(), b"before");
    store
        .flush_rows(&data(), OwnedFlushRow::flush_rows([points(b"after", 0..10, 1)]))
        .await
        .unwrap();
    assert_eq!(all_cells(&store, &data()).await.len(), 2);
}

#[tokio::test]
async fn full_disk_rejects_writes_and_serves_reads() {
    let dir = new_dir();
    let table = Table::new("tsdb");
    {
        let store = open_data(&dir);
        store
            .flush_rows(&table, OwnedFlushRow::flush_rows([points(b"row", 0..10, 1)]))
            .await
            .unwrap();
    }
    let mut config = LsmConfig::new(dir.path(), vec![table.clone()]);
    config.space = Arc::new(DiskSpace::new(dir.path(), u64::MAX / 2));
    let store = LsmStorage::open(&config).unwrap();
    let error = store
        .flush_rows(&table, OwnedFlushRow::flush_rows([points(b"row", 10..20, 2)]))
        .await
        .unwrap_err();
    assert!(matches!(error, StorageError::DiskFull));
    assert_eq!(error.recovery(), Recovery::RetryLater);
    let row = store.get(&table, Get::row("row".into())).await.unwrap().unwrap();
    assert_eq!(row.into_cells().unwrap().len(), 10);
    drop(store);
    let store = open_data(&dir);
    store.flush_rows(&table, OwnedFlushRow::flush_rows([points(b"row", 10..20, 2)])).await.unwrap();
    assert_eq!(all_cells(&store, &table).await[0].1.len(), 20);
}

#[tokio::test]
async fn an_ingestion_asks_the_disk_for_what_it_writes() {
    const RESERVE: u64 = 64 << 20;
    let dir = new_dir();
    let mut config = LsmConfig::new(dir.path(), vec![data()]);
    let probe = || Ok(RESERVE + (1 << 20));
    config.space = Arc::new(DiskSpace::with_probe(dir.path(), RESERVE, probe));
    let store = LsmStorage::open(&config).unwrap();
    let rows = |count: u32| {
        let row = |key: u32| OwnedFlushRow {
            key: key.to_be_bytes().to_vec(),
            cells: vec![(tsd_model::Family::T, vec![0, 0], vec![7; 1_000], 1)],
            ..OwnedFlushRow::default()
        };
        OwnedFlushRow::flush_rows((0..count).map(row))
    };
    store.flush_rows(&data(), rows(100)).await.unwrap();
    store.flush_rows(&data(), rows(400)).await.unwrap();
    let error = store.flush_rows(&data(), rows(4_000)).await.unwrap_err();
    assert!(matches!(error, StorageError::DiskFull), "{error}");
    assert_eq!(all_cells(&store, &data()).await.len(), 400);
}

#[tokio::test]
async fn rows_out_of_order_are_rejected_completely() {
    let dir = new_dir();
    let store = open_data(&dir);
    for keys in [[b"b", b"a"], [b"a", b"a"]] {
        let rows = OwnedFlushRow::flush_rows(keys.map(|key| points(key, 0..3, 1)));
        assert!(matches!(store.flush_rows(&data(), rows).await, Err(StorageError::Backend(_))));
    }
    assert!(all_cells(&store, &data()).await.is_empty());
}

#[tokio::test]
async fn closed_store_unlocks_its_directory() {
    let dir = new_dir();
    let store = open_data(&dir);
    store.flush_rows(&data(), OwnedFlushRow::flush_rows([points(b"row", 0..3, 1)])).await.unwrap();
    let scanner = store.scan(&data(), Scan::default());
    store.close().await.unwrap();
    let next = open_data(&dir);
    assert_eq!(all_cells(&next, &data()).await.len(), 1);
    drop((scanner, store));
    assert!(LsmStorage::open(&LsmConfig::new(dir.path(), vec![data()])).is_err());
}
