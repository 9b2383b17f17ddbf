//! Tests deletes on a full disk.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lsm_tree::AbstractTree;
use tsd_files::DiskSpace;
use tsd_model::Family;
use tsd_storage::{FlushTarget, Get, OwnedFlushRow, Storage, StorageError, Table};

use super::fixture::{self, Dir, data, new_dir};
use crate::{LsmConfig, LsmStorage};

const RESERVE: u64 = 8 << 20;
const FULL: u64 = RESERVE + (32 << 10);

fn uid() -> Table {
    Table::new("tsdb-uid")
}

/// A store on a disk with `free` bytes.
fn open(dir: &Dir, free: &Arc<AtomicU64>) -> LsmStorage {
    let free = Arc::clone(free);
    let probe = move || Ok(free.load(Ordering::Relaxed));
    let space = Arc::new(DiskSpace::with_probe(dir.path(), RESERVE, probe));
    let specs = vec![data(), uid()];
    LsmStorage::open(&LsmConfig { space, ..LsmConfig::new(dir.path(), specs) }).unwrap()
}

fn key(row: u32) -> Vec<u8> {
    row.to_be_bytes().to_vec()
}

fn row(row: u32, seed: u32) -> OwnedFlushRow {
    // Bytes that do not compress.
    let value = (0..200_u32)
        .map(|i| ((row ^ seed).wrapping_mul(2_654_435_761).wrapping_add(i * i * 77) >> 9) as u8);
    OwnedFlushRow {
        key: key(row),
        cells: vec![(Family::T, vec![0, 0], value.collect(), i64::from(seed))],
        ..OwnedFlushRow::default()
    }
}

async fn flush(store: &LsmStorage, rows: impl Iterator<Item = u32> + Clone, seed: u32) {
    for table in [data(), uid()] {
        let rows = OwnedFlushRow::flush_rows(rows.clone().map(|i| row(i, seed)));
        store.flush_rows(&table, rows).await.unwrap();
    }
}

fn disk_bytes(dir: &Dir, table: &Table) -> u64 {
    let files = fs::read_dir(dir.path().join(format!("t.{table}/tables"))).unwrap();
    let size = |file: std::io::Result<fs::DirEntry>| match file.and_then(|file| file.metadata()) {
        Ok(metadata) => metadata.len(),
        // Removed by a compaction since the directory was listed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => panic!("{error}"),
    };
    files.map(size).sum()
}

/// Compares gets and scans with the expected rows, each given by the seed of its value.
async fn check(store: &LsmStorage, expected: impl Fn(u32) -> Option<u32>) {
    for table in [data(), uid()] {
        let mut keys = BTreeSet::new();
        for i in 0..1_600 {
            let found = store.get(&table, Get::row(key(i).into())).await.unwrap();
            let found = found.map(|row| row.into_cells().unwrap().remove(0).value.to_vec());
            let value = expected(i).map(|seed| row(i, seed).cells.remove(0).2);
            assert_eq!(found, value, "row {i} of {table}");
            if value.is_some() {
                keys.insert(key(i));
            }
        }
        let scanned = fixture::all_cells(store, &table).await;
        assert_eq!(scanned.into_iter().map(|(key, _)| key.to_vec()).collect::<BTreeSet<_>>(), keys);
    }
}

async fn delete(store: &LsmStorage, rows: impl Iterator<Item = u32> + Clone) {
    for table in [data(), uid()] {
        let deletes = rows.clone().map(|i| OwnedFlushRow {
            key: key(i),
            delete_row: Some(i64::MAX),
            ..OwnedFlushRow::default()
        });
        // Retries like the log, since a reclaim in progress may hold the space.
        while let Err(error) = store.flush_rows(&table, freeing(deletes.clone())).await {
            assert!(matches!(error, StorageError::DiskFull), "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Rows of a flush with deletes, like the log's.
fn freeing(rows: impl Iterator<Item = OwnedFlushRow>) -> Box<dyn tsd_storage::FlushRows> {
    struct Freeing(Box<dyn tsd_storage::FlushRows>);
    impl tsd_storage::FlushRows for Freeing {
        fn frees_space(&self) -> bool {
            true
        }
        fn next_row(&mut self) -> Option<tsd_storage::FlushRow<'_>> {
            self.0.next_row()
        }
        fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {
            self.0.sort_by(compare);
        }
    }
    Box::new(Freeing(OwnedFlushRow::flush_rows(rows)))
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !ready() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn deletes_free_space_on_a_full_disk() {
    // From the oldest to the newest: rows in the last level, and rows in files above it.
    for (deleted, part) in [((0..1_600), 1), ((0..1_560), 1), ((0..1_600), 2), ((200..700), 1)] {
        let (dir, free) = (new_dir(), Arc::new(AtomicU64::new(u64::MAX)));
        let store = open(&dir, &free);
        flush(&store, 0..1_600, 1).await;
        flush(&store, 400..800, 2).await;
        flush(&store, (0..1_600).step_by(7), 3).await;
        fixture::wait_for_compaction(&store);
        let before = [data(), uid()].map(|table| disk_bytes(&dir, &table));
        free.store(FULL, Ordering::Relaxed);
        let full = OwnedFlushRow::flush_rows([row(9_999, 1)]);
        assert!(matches!(store.flush_rows(&data(), full).await, Err(StorageError::DiskFull)));
        let is_deleted = |i: u32| deleted.contains(&i) && i.is_multiple_of(part);
        delete(&store, deleted.clone().filter(|i| i.is_multiple_of(part))).await;
        let left = (0..1_600).filter(|i| !is_deleted(*i)).count() as u64;
        for (table, before) in [data(), uid()].iter().zip(before) {
            // The deletes themselves remain.
            let most = before * left / 1_600 + before / 4;
            wait_until("space is freed", || disk_bytes(&dir, table) <= most);
        }
        let expected = |i: u32| {
            let seed = if i.is_multiple_of(7) {
                3
            } else if (400..800).contains(&i) {
                2
            } else {
                1
            };
            (!is_deleted(i)).then_some(seed)
        };
        check(&store, expected).await;
        for table in [data(), uid()] {
            let table = store.backend().table(&table);
            wait_until("no partial outputs", || table.partial_outputs().is_empty());
        }
        drop(store);
        let store = open(&dir, &free);
        check(&store, expected).await;
        // Writes to the rows, and a compaction of the remaining entries.
        free.store(u64::MAX, Ordering::Relaxed);
        for seed in 4..16 {
            flush(&store, 0..50, seed).await;
        }
        for table in [data(), uid()] {
            let table = store.backend().table(&table);
            wait_until("compaction", || table.tree().l0_run_count() < 8);
        }
        check(&store, |i| if i < 50 { Some(15) } else { expected(i) }).await;
    }
}

#[tokio::test]
async fn a_damaged_file_on_a_full_disk_leaves_no_files_and_deletes_still_free_space() {
    let (dir, free) = (new_dir(), Arc::new(AtomicU64::new(u64::MAX)));
    let store = open(&dir, &free);
    flush(&store, 0..1_600, 1).await;
    flush(&store, 5_000..5_500, 2).await;
    let tables = dir.path().join("t.tsdb/tables");
    let files = || fs::read_dir(&tables).unwrap().map(|file| file.unwrap().path()).collect();
    let before: BTreeSet<_> = files();
    let smallest = before.iter().min_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(smallest).unwrap();
    bytes[1_000] ^= 0x10;
    fs::write(smallest, bytes).unwrap();
    free.store(RESERVE / 2, Ordering::Relaxed);
    let mut failed = 0;
    for i in 5_000..5_500 {
        failed += usize::from(store.get(&data(), Get::row(key(i).into())).await.is_err());
    }
    assert!(failed > 0);
    let table = store.backend().table(&data());
    wait_until("repair fails", || !store.maintenance().health().is_empty());
    for _ in 0..3 {
        table.signal().request();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(table.partial_outputs(), Vec::<u64>::new());
    }
    // The other file has the rows that are deleted.
    let deletes = (0..1_200).map(|i| OwnedFlushRow {
        key: key(i),
        delete_row: Some(i64::MAX),
        ..OwnedFlushRow::default()
    });
    store.flush_rows(&data(), freeing(deletes)).await.unwrap();
    let size = disk_bytes(&dir, &data());
    wait_until("space is freed", || disk_bytes(&dir, &data()) < size * 3 / 4);
    free.store(u64::MAX, Ordering::Relaxed);
    wait_until("the file is repaired", || table.damaged_files().is_empty());
    assert_eq!(store.maintenance().quarantine().unwrap().files().len(), 1);
    wait_until("no partial outputs", || table.partial_outputs().is_empty());
    let left: BTreeSet<_> = files();
    assert_eq!(left.len(), table.tree().table_count());
}

#[tokio::test]
async fn a_disk_that_fills_up_after_deletes_is_freed_by_the_write_that_finds_it_full() {
    let (dir, free) = (new_dir(), Arc::new(AtomicU64::new(u64::MAX)));
    let store = open(&dir, &free);
    flush(&store, 0..1_600, 1).await;
    // With free space deletes wait for a compaction.
    delete(&store, 0..1_600).await;
    fixture::wait_for_compaction(&store);
    let before = disk_bytes(&dir, &data());
    free.store(FULL, Ordering::Relaxed);
    let full = OwnedFlushRow::flush_rows([row(9_999, 1)]);
    assert!(matches!(store.flush_rows(&data(), full).await, Err(StorageError::DiskFull)));
    wait_until("space is freed", || disk_bytes(&dir, &data()) < before / 2);
}
