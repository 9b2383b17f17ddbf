#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use tsd_files::{SnapshotList, SnapshotProgress, SnapshotRequest, SnapshotTarget};
use tsd_model::{Family, TableSchema};
use tsd_storage::{
    CellBatch, CellRef, FlushTarget, Get, LogMark, PinnedFiles, RepairAction, RetainedStorage,
    Retention, RetentionRules, Storage, StorageError, StorageExt, Table, VerifyFinding, VerifyRun,
    conformance,
};
use tsd_storage_lsm::SealedLinesFile;
use tsd_storage_wal::{WalConfig, WalStorage};

use crate::{
    EmbeddedConfig, EmbeddedStorage, EmbeddedTable, TableKind, accept_older_table, forget_table,
    verify_directory, verify_restored,
};

const DAY_MS: i64 = 86_400_000;

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
        // The suite checks the columns of rows.
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

/// Pins the files of a store while rows of both tables are put. The snapshot has the same rows of
/// both tables, and all rows that were put before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_files_are_of_one_moment_between_two_memtables() {
    let dir = new_dir();
    let backend = Arc::new(open(&dir.path().join("store"), tables()));
    // Each put nearly fills a memtable.
    let config = WalConfig { memtable_bytes: 4_000, ..WalConfig::new(dir.path().join("log")) };
    let store = Arc::new(WalStorage::open(config, backend).await.unwrap().0);
    let done = Arc::new(AtomicU32::new(0));
    let writer = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        tokio::spawn(async move {
            for number in 0..400_u32 {
                // As UIDs: the name first, then what uses it.
                for table in conformance::tables().iter().rev() {
                    put(&*store, table, number).await;
                }
                done.store(number + 1, Ordering::SeqCst);
            }
        })
    };
    for number in 0..6 {
        let before = done.load(Ordering::SeqCst);
        while done.load(Ordering::SeqCst) == before && !writer.is_finished() {
            tokio::task::yield_now().await;
        }
        let before = done.load(Ordering::SeqCst);
        let pinned = store.maintenance().pin_files().await.unwrap();
        let target = dir.path().join(format!("snapshot-{number}"));
        let restored = write_and_restore(&pinned, &target);
        drop(pinned);
        let restored = open(&restored.join("store"), tables());
        assert_eq!(restored.log_mark().await.unwrap(), LogMark::Absent);
        let mut count = [0; 2];
        for (count, table) in count.iter_mut().zip(conformance::tables()) {
            while restored.get(&table, Get::row(row(*count))).await.unwrap().is_some() {
                *count += 1;
            }
            let beyond = restored.get(&table, Get::row(row(*count + 1))).await.unwrap();
            assert!(beyond.is_none(), "{table} lacks {count}");
        }
        let [data, uid] = count;
        assert!(data >= before, "{data} of {before}");
        assert!(uid == data || uid == data + 1, "{uid} names of {data} rows");
    }
    writer.await.unwrap();
    store.close().await.unwrap();
}

fn row(number: u32) -> Bytes {
    Bytes::copy_from_slice(&[&[0; 7][..], &number.to_be_bytes()].concat())
}

async fn put(store: &dyn Storage, table: &Table, number: u32) {
    let cell = CellRef { family: Family::T, qualifier: &[0, 0], value: &[7], timestamp_ms: None };
    store.put(table, CellBatch::single(&row(number), cell).unwrap()).await.unwrap();
}

/// Writes a snapshot; returns a verified copy of its directory.
fn write_and_restore(pinned: &PinnedFiles, target: &std::path::Path) -> std::path::PathBuf {
    let request = SnapshotRequest { target: target.to_owned(), ..SnapshotRequest::default() };
    let (schema, progress) = (TableSchema::opentsdb_default(), SnapshotProgress::default());
    let mut elsewhere = PinnedFiles::default();
    elsewhere.files.clone_from(&pinned.files);
    SnapshotTarget::create(request).unwrap().write(&elsewhere, schema, "test", &progress).unwrap();
    let list = SnapshotList::read(target).unwrap();
    let restored = target.with_extension("restored");
    for file in &list.files {
        let to = restored.join(&file.path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(target.join(&file.path), to).unwrap();
    }
    verify_restored(&restored, &list.files, &SnapshotProgress::default()).unwrap();
    restored
}

fn clock() -> i64 {
    100 * DAY_MS
}

/// A store with points of each day from the 90th on, at the 100th.
fn open_retained(dir: &std::path::Path, days: Option<u64>) -> RetainedStorage<EmbeddedStorage> {
    let schema = TableSchema::opentsdb_default();
    let default_secs = days.map(|days| days * 86_400);
    let rules = RetentionRules { rules: Vec::new(), default_secs };
    let retention = Arc::new(Retention::new(&schema, rules));
    let config = EmbeddedConfig {
        clock,
        retention: Some(Arc::clone(&retention)),
        ..EmbeddedConfig::new(dir, schema, tables())
    };
    RetainedStorage::new(retention, Arc::new(EmbeddedStorage::open(&config).unwrap()))
}

fn row_of_day(day: u32) -> Bytes {
    let base = (day * 86_400).to_be_bytes();
    Bytes::copy_from_slice(&[&[0, 0, 1][..], &base, &[0, 0, 1, 0, 0, 1]].concat())
}

/// Days with a row from the 90th on.
async fn days_of(store: &dyn Storage) -> Vec<u32> {
    let [table, _] = conformance::tables();
    let mut days = Vec::new();
    for day in 90..101 {
        if store.get(&table, Get::row(row_of_day(day))).await.unwrap().is_some() {
            days.push(day);
        }
    }
    days
}

#[tokio::test]
async fn a_snapshot_has_what_the_retention_has_recorded() {
    let dir = new_dir();
    let [table, _] = conformance::tables();
    let store = open_retained(&dir.path().join("store"), None);
    let cell = CellRef { family: Family::T, qualifier: &[0, 0], value: &[7], timestamp_ms: None };
    for day in 90..101 {
        store.put(&table, CellBatch::single(&row_of_day(day), cell).unwrap()).await.unwrap();
    }
    assert_eq!(days_of(&store).await.len(), 11);
    store.close().await.unwrap();
    drop(store);
    let store = open_retained(&dir.path().join("store"), Some(5));
    assert_eq!(days_of(&store).await, [95, 96, 97, 98, 99, 100]);
    let pinned = store.maintenance().pin_files().await.unwrap();
    assert!(pinned.files.iter().any(|file| file.path == "store/points/retention"));
    let restored = write_and_restore(&pinned, &dir.path().join("snapshot")).join("store");
    // The first days are hidden whatever is configured, and the next ones follow the settings.
    for (days, first) in [(None, 95), (Some(50), 95), (Some(2), 98)] {
        let store = open_retained(&restored, days);
        assert_eq!(days_of(&store).await, (first..101).collect::<Vec<_>>());
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

/// Findings of the files of a store, without the finding that keys without tags are missing in the
/// series index.
fn found_in(dir: &std::path::Path) -> Vec<VerifyFinding> {
    let [data, _] = conformance::tables();
    let run = VerifyRun::new(false);
    verify_directory(dir, &data, TableSchema::opentsdb_default(), &run).unwrap();
    let mut found = run.findings();
    found.retain(|finding| !finding.file.ends_with("points/series/t.tsdb"));
    found
}

#[tokio::test]
async fn a_table_of_points_of_which_nothing_is_left_refuses_the_start_until_the_loss_is_accepted() {
    let [table, _] = conformance::tables();
    let remove_table = |dir: &std::path::Path| {
        std::fs::remove_dir_all(dir.join("points/t.tsdb")).unwrap();
    };
    let remove_all = |dir: &std::path::Path| std::fs::remove_dir_all(dir.join("points")).unwrap();
    let empty_table = |dir: &std::path::Path| {
        std::fs::remove_dir_all(dir.join("points/t.tsdb")).unwrap();
        std::fs::create_dir(dir.join("points/t.tsdb")).unwrap();
    };
    let removals: [fn(&std::path::Path); 3] = [remove_table, remove_all, empty_table];
    for remove in removals {
        let dir = new_dir();
        let store = open(dir.path(), tables());
        for table in conformance::tables() {
            put(&store, &table, 7).await;
        }
        store.close().await.unwrap();
        drop(store);
        assert_eq!(found_in(dir.path()), []);
        remove(dir.path());
        let found = found_in(dir.path());
        let [VerifyFinding { file, action: Some(action), .. }] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(file.ends_with(&format!("points/t.{table}")), "{file}");
        assert_eq!(*action, RepairAction::ForgetTable { table: table.clone() });
        // Also if it is not configured: the log may have rows of it.
        for specs in [tables(), Vec::new()] {
            let config = EmbeddedConfig::new(dir.path(), TableSchema::opentsdb_default(), specs);
            let error = EmbeddedStorage::open(&config).unwrap_err();
            assert!(matches!(error, StorageError::Damaged(_)), "{error:?}");
            assert!(error.to_string().contains(&format!("table {table} ")), "{error}");
        }
        forget_table(dir.path(), &table).unwrap();
        let store = open(dir.path(), tables());
        assert!(store.get(&table, Get::row(row(7))).await.unwrap().is_none());
        let [_, uid] = conformance::tables();
        assert!(store.get(&uid, Get::row(row(7))).await.unwrap().is_some());
        put(&store, &table, 8).await;
        store.close().await.unwrap();
        drop(store);
        assert_eq!(found_in(dir.path()), []);
        // It is listed again, and a table that is there is not forgotten.
        forget_table(dir.path(), &table).unwrap();
        remove(dir.path());
        assert_eq!(found_in(dir.path()).len(), 1);
    }
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn an_older_copy_of_a_table_refuses_the_start_until_the_loss_is_accepted() {
    let [data, uid] = conformance::tables();
    for (table, path) in [(&data, "points/t.tsdb"), (&uid, "cells/t.tsdb-uid"), (&data, "points")] {
        let dir = new_dir();
        let (store_dir, older) = (dir.path().join("store"), dir.path().join("older"));
        for number in [1, 2] {
            let store = open(&store_dir, tables());
            for table in &conformance::tables() {
                put(&store, table, number).await;
            }
            store.set_log_mark(row(number)).await.unwrap();
            // Newer than the mark: the log has the rows that a copy lacks.
            put(&store, &data, 10 + number).await;
            put(&store, &uid, 10 + number).await;
            store.close().await.unwrap();
            drop(store);
            if number == 1 {
                copy_all(&store_dir, &older);
            }
        }
        assert_eq!(found_in(&store_dir), []);
        std::fs::remove_dir_all(store_dir.join(path)).unwrap();
        copy_all(&older.join(path), &store_dir.join(path));
        let found = found_in(&store_dir);
        let [VerifyFinding { file, what, action: Some(action), .. }] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(file.contains(path) && what.contains("an older copy"), "{file}: {what}");
        assert_eq!(*action, RepairAction::AcceptOlderTable { table: table.clone() });
        // Also if it is not configured: the log may have rows of it.
        for specs in [tables(), Vec::new()] {
            let config = EmbeddedConfig::new(&store_dir, TableSchema::opentsdb_default(), specs);
            let error = EmbeddedStorage::open(&config).unwrap_err();
            assert!(matches!(error, StorageError::Damaged(_)), "{error:?}");
            assert!(error.to_string().contains(&format!("table {table} ")), "{error}");
        }
        accept_older_table(&store_dir, table).unwrap();
        let store = open(&store_dir, tables());
        assert!(store.get(table, Get::row(row(1))).await.unwrap().is_some());
        assert!(store.get(table, Get::row(row(2))).await.unwrap().is_none());
        // The UIDs of the lost names are to be searched.
        assert_eq!(
            store.maintenance().quarantine().unwrap().has_unchecked_loss(&uid),
            *table == uid
        );
        store.set_log_mark(row(3)).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        assert_eq!(found_in(&store_dir), []);
        open(&store_dir, tables()).close().await.unwrap();
    }
}

#[tokio::test]
async fn an_older_copy_of_the_series_index_is_built_again() {
    let [data, _] = conformance::tables();
    let dir = new_dir();
    let (store_dir, older) = (dir.path().join("store"), dir.path().join("older"));
    let index = store_dir.join("points/series");
    for tagv in [1, 2] {
        let store = open(&store_dir, tables());
        let base = (90_u32 * 86_400).to_be_bytes();
        let row = Bytes::from([&[0, 0, 1][..], &base, &[0, 0, 1, 0, 0, tagv]].concat());
        let cell =
            CellRef { family: Family::T, qualifier: &[0, 0], value: &[7], timestamp_ms: None };
        store.put(&data, CellBatch::single(&row, cell).unwrap()).await.unwrap();
        store.set_log_mark(row).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        if tagv == 1 {
            copy_all(&index, &older);
        }
    }
    let verify = || {
        let run = VerifyRun::new(false);
        let schema = TableSchema::opentsdb_default();
        verify_directory(&store_dir, &data, schema, &run).unwrap();
        run.findings()
    };
    assert_eq!(verify(), []);
    std::fs::remove_dir_all(&index).unwrap();
    copy_all(&older, &index);
    assert_eq!(verify().len(), 1, "an index without the second series");
    let store = open(&store_dir, tables());
    while !store.series().series_index(&data).is_some_and(|index| index.is_complete()) {
        tokio::task::yield_now().await;
    }
    store.close().await.unwrap();
    drop(store);
    assert_eq!(verify(), []);
}

#[tokio::test]
async fn copies_from_after_the_mark_are_opened_and_damaged_progress_is_made_again() {
    let [data, uid] = conformance::tables();
    let dir = new_dir();
    let (store_dir, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let progress = store_dir.join("cells/PROGRESS");
    let store = open(&store_dir, tables());
    put(&store, &data, 1).await;
    put(&store, &uid, 1).await;
    assert!(!progress.exists());
    store.set_log_mark(row(1)).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    copy_all(&store_dir, &copy);
    let store = open(&store_dir, tables());
    put(&store, &data, 2).await;
    put(&store, &uid, 2).await;
    store.close().await.unwrap();
    drop(store);
    for path in ["points", "cells/t.tsdb-uid"] {
        std::fs::remove_dir_all(store_dir.join(path)).unwrap();
        copy_all(&copy.join(path), &store_dir.join(path));
    }
    assert_eq!(found_in(&store_dir), []);
    open(&store_dir, tables()).close().await.unwrap();
    let intact = std::fs::read_to_string(&progress).unwrap();
    assert!(intact.starts_with("saltern progress 1\n"), "{intact}");
    let mut flipped = intact.clone().into_bytes();
    *flipped.get_mut(25).unwrap() ^= 1;
    std::fs::write(&progress, flipped).unwrap();
    let found = found_in(&store_dir);
    let [VerifyFinding { file, action: Some(RepairAction::Reopen), .. }] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(file.ends_with("cells/PROGRESS"), "{file}");
    open(&store_dir, tables()).close().await.unwrap();
    assert_eq!(found_in(&store_dir), []);
    let other_release = SealedLinesFile::new(progress, "saltern progress 2");
    other_release.write(["manifest 1 tsdb"]).unwrap();
    let config = EmbeddedConfig::new(&store_dir, TableSchema::opentsdb_default(), tables());
    let error = EmbeddedStorage::open(&config).unwrap_err();
    assert!(matches!(error, StorageError::UnknownVersion(_)), "{error:?}");
}

#[tokio::test]
async fn a_directory_without_a_list_of_tables_of_points_gets_one() {
    let dir = new_dir();
    let [table, _] = conformance::tables();
    let list = dir.path().join("POINTS");
    let write_list = |text: &str| std::fs::write(&list, text).unwrap();
    for plant in [None, Some("saltern points 1\ntsdb\nsum 0\n")] {
        let store = open(dir.path(), tables());
        put(&store, &table, 7).await;
        store.close().await.unwrap();
        drop(store);
        let written = std::fs::read(&list).unwrap();
        match plant {
            None => std::fs::remove_file(&list).unwrap(),
            Some(damaged) => write_list(damaged),
        }
        assert_eq!(found_in(dir.path()).len(), usize::from(plant.is_some()));
        let store = open(dir.path(), tables());
        assert!(store.get(&table, Get::row(row(7))).await.unwrap().is_some());
        assert_eq!(std::fs::read(&list).unwrap(), written);
        store.close().await.unwrap();
    }
}
