//! A multi-writer backend that may be unavailable.

pub(crate) mod row_fault_backend;
mod stuck_tables;

use std::sync::atomic::{AtomicI64, Ordering};

use tsd_storage::{Fault, Operation, StorageExt};

use self::row_fault_backend::RowFaultBackend;
use super::*;
use crate::memtable::MAX_ADDED_MS;

type Store = WalStorage<RowFaultBackend>;

/// Limits that cause no flush unless a test requests it.
fn config() -> WalConfig {
    WalConfig { backend: BackendSharing::MultiWriter, max_age: Duration::from_hours(10), ..lazy() }
}

async fn open(disk: &FaultyDisk, backend: &Arc<RowFaultBackend>, config: WalConfig) -> Store {
    Store::open_in(config, Arc::new(disk.clone()), Arc::clone(backend)).await.unwrap().0
}

async fn open_new(config: WalConfig) -> (Store, Arc<RowFaultBackend>, FaultyDisk) {
    let (disk, backend) = (FaultyDisk::new(1), Arc::new(RowFaultBackend::new()));
    (open(&disk, &backend, config).await, backend, disk)
}

fn column(row: &'static [u8], qualifier: &'static [u8]) -> Column {
    let (row, qualifier) = (Bytes::from_static(row), Bytes::from_static(qualifier));
    Column { row, family: Family::T, qualifier }
}

fn gauge(store: &Store, name: &str) -> u64 {
    store.maintenance().gauges().into_iter().find(|(n, _)| *n == name).unwrap().1 as u64
}

/// Flushes all rows and stops the store; the backend stays open.
async fn flush_and_stop(store: Store) {
    // A flush that began while the backend was unavailable may still fail.
    while let Err(error) = store.flush().await {
        assert!(matches!(error, StorageError::Unavailable(_)), "{error}");
    }
    store.stop().await;
}

/// Makes all flushes fail.
fn make_unavailable(backend: &RowFaultBackend) {
    let unavailable = Fault::Error(StorageError::Unavailable("backend".into()));
    backend.inner.script(Operation::FlushRows, vec![unavailable; 100_000]);
}

#[tokio::test]
async fn conditional_writes_are_executed_by_the_backend() {
    let (store, backend, disk) = open_new(config()).await;
    let table = data();
    // Another process wrote this.
    backend
        .put(&table, cells(b"row", &[(b"set", b"theirs"), (b"\x05\0\0", b"one")]))
        .await
        .unwrap();
    store.append(&table, cells(b"row", &[(b"\x05\0\0", b"two")])).await.unwrap();
    assert_eq!(store.increment(&table, column(b"row", b"n"), 5).await.unwrap(), 5);
    let set = store.compare_and_set(&table, column(b"row", b"set"), None, "ours".into());
    assert!(!set.await.unwrap());
    let theirs = Some(Bytes::from_static(b"theirs"));
    let set = store.compare_and_set(&table, column(b"row", b"set"), theirs, "ours".into());
    assert!(set.await.unwrap());
    assert!(disk.contents_without("log.state").is_empty(), "nothing is logged");
    let stored = contents(&*backend, &table).await;
    let values: Vec<&[u8]> = stored[0].1.iter().map(|cell| cell.value.as_ref()).collect();
    assert_eq!(values, [&b"onetwo"[..], &5_i64.to_be_bytes(), b"ours"]);
    flush_and_stop(store).await;
}

#[tokio::test]
async fn conditional_writes_of_memtable_columns_are_executed_by_the_committer() {
    let (store, backend, _) = open_new(config()).await;
    let table = data();
    let count = 7_i64.to_be_bytes();
    store.put(&table, cells(b"row", &[(b"n", &count), (b"a", b"one")])).await.unwrap();
    assert_eq!(store.increment(&table, column(b"row", b"n"), 1).await.unwrap(), 8);
    // One column is in the memtable, the other column is not.
    store.append(&table, cells(b"row", &[(b"a", b"two"), (b"b", b"three")])).await.unwrap();
    let one_two = Bytes::from_static(b"onetwo");
    let deleted = store.compare_and_delete(&table, column(b"row", b"a"), one_two);
    assert!(deleted.await.unwrap());
    let stored = contents(&*backend, &table).await;
    assert_eq!(stored[0].1.len(), 1, "only b");
    store.flush().await.unwrap();
    let stored = contents(&*backend, &table).await;
    let qualifiers: Vec<&[u8]> = stored[0].1.iter().map(|c| c.qualifier.as_ref()).collect();
    assert_eq!(qualifiers, [b"b", b"n"]);
    // The column is flushed, so the backend decides and sees the increments of other writers.
    backend.increment(&table, column(b"row", b"n"), 10).await.unwrap();
    assert_eq!(store.increment(&table, column(b"row", b"n"), 1).await.unwrap(), 19);
    flush_and_stop(store).await;
}

#[tokio::test]
async fn row_compaction_waits_for_the_flush_of_its_row() {
    let (store, backend, _) = open_new(config()).await;
    let table = data();
    put(&store, b"row", b"1").await.unwrap();
    let rewrite = |read| {
        let cell = Cell {
            family: Family::T,
            qualifier: Bytes::from_static(b"whole"),
            value: Bytes::from_static(b"1"),
            timestamp_ms: clock(),
        };
        let old = ReplacedColumn {
            family: Family::T,
            qualifier: Bytes::from_static(b"q"),
            timestamp_ms: clock(),
        };
        let row = Bytes::from_static(b"row");
        RowRewrite {
            row,
            put: Some(cell),
            superseded_ms: None,
            delete: vec![old],
            read,
            whole_row: false,
        }
    };
    let rejected = store.rewrite_row(&table, rewrite(store.read_version(&table))).await;
    assert!(matches!(rejected, Err(StorageError::Throttled(_))), "{rejected:?}");
    store.flush().await.unwrap();
    store.rewrite_row(&table, rewrite(store.read_version(&table))).await.unwrap();
    let stored = contents(&*backend, &table).await;
    assert_eq!(stored[0].1.len(), 1);
    assert_eq!(stored[0].1[0].qualifier, "whole");
    flush_and_stop(store).await;
}

/// A replay would flush the deleted point again, in a column with others.
#[tokio::test]
async fn a_rewrite_waits_until_the_log_does_not_have_its_row() {
    let (store, backend, disk) = open_new(config()).await;
    let table = data();
    put(&store, b"row", b"1").await.unwrap();
    put(&store, b"other", b"1").await.unwrap();
    let rewrite = || {
        let delete = vec![ReplacedColumn {
            family: Family::T,
            qualifier: Bytes::from_static(b"q"),
            timestamp_ms: clock(),
        }];
        let (row, read) = (Bytes::from_static(b"row"), store.read_version(&table));
        RowRewrite { row, put: None, superseded_ms: None, delete, read, whole_row: true }
    };
    disk.fail_removals(true);
    store.flush().await.unwrap();
    let rejected = store.rewrite_row(&table, rewrite()).await;
    assert!(matches!(rejected, Err(StorageError::Throttled(_))), "{rejected:?}");
    disk.fail_removals(false);
    while !store.maintenance().health().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A later memtable is flushed before an older one.
    backend.unreachable.lock().push(Bytes::from_static(b"bad"));
    let [_, other] = conformance::tables();
    store.put(&other, cells(b"bad", &[(b"q", b"1")])).await.unwrap();
    store.flush().await.unwrap_err();
    put(&store, b"row", b"2").await.unwrap();
    store.flush().await.unwrap_err();
    loop {
        match store.rewrite_row(&table, rewrite()).await {
            Err(StorageError::Throttled(why)) if why.contains("the log") => break,
            Err(StorageError::Throttled(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
            rewritten => panic!("{rewritten:?}"),
        }
    }
    backend.unreachable.lock().clear();
    store.flush().await.unwrap();
    store.rewrite_row(&table, rewrite()).await.unwrap();
    flush_and_stop(store).await;
}

#[tokio::test]
async fn delete_covers_older_cells_only_also_after_a_replay() {
    let (store, backend, disk) = open_new(config()).await;
    let table = data();
    let at = |timestamp_ms, value: &'static [u8]| {
        let timestamp_ms = Some(timestamp_ms);
        let cell = CellRef { family: Family::T, qualifier: b"q", value, timestamp_ms };
        [&b"column"[..], b"row"].map(|row| CellBatch::single(row, cell).unwrap())
    };
    for batch in at(clock(), b"old") {
        backend.put(&table, batch).await.unwrap();
    }
    let columns = vec![(Family::T, Bytes::from_static(b"q"))];
    let delete = Delete::Columns { row: Bytes::from_static(b"column"), columns };
    store.delete(&table, delete).await.unwrap();
    store.delete(&table, Delete::Row(Bytes::from_static(b"row"))).await.unwrap();
    assert!(contents(&store, &table).await.is_empty());
    store.stop().await;
    // Another process writes both again.
    for batch in at(clock() + 10, b"new") {
        backend.put(&table, batch).await.unwrap();
    }
    let store = open(&disk, &backend, config()).await;
    let stored = contents(&store, &table).await;
    assert_eq!(stored.len(), 2, "newer cells are visible before the flush of the deletes");
    store.flush().await.unwrap();
    assert_eq!(contents(&*backend, &table).await, stored);
    assert!(stored.iter().all(|(_, cells)| cells[0].value == "new"));
    flush_and_stop(store).await;
}

/// Timestamp of the cell of a row.
async fn time_of(store: &impl Storage, row: &'static [u8]) -> i64 {
    let row = store.get(&data(), Get::row(Bytes::from_static(row))).await.unwrap().unwrap();
    row.into_cells().unwrap()[0].timestamp_ms
}

#[tokio::test]
async fn commit_times_never_decrease() {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000);
    let config = || WalConfig { clock: || NOW.load(Ordering::Relaxed), ..config() };
    let (store, backend, disk) = open_new(config()).await;
    put(&store, b"a", b"1").await.unwrap();
    NOW.store(900_000, Ordering::Relaxed);
    put(&store, b"b", b"1").await.unwrap();
    assert_eq!(time_of(&store, b"b").await, 1_000_000, "the clock was set back");
    store.delete(&data(), Delete::Row(Bytes::from_static(b"a"))).await.unwrap();
    put(&store, b"a", b"2").await.unwrap();
    assert_eq!(time_of(&store, b"a").await, 1_000_001, "a put after a delete is later");
    store.stop().await;

    let store = open(&disk, &backend, config()).await;
    put(&store, b"c", b"1").await.unwrap();
    assert!(time_of(&store, b"c").await > 1_000_001, "after a replay");
    flush_and_stop(store).await;

    let store = open(&disk.after_kill(), &backend, config()).await;
    put(&store, b"d", b"1").await.unwrap();
    let time = time_of(&store, b"d").await;
    assert!(time > 1_000_002, "after a start with an empty log: {time}");
    NOW.store(2_000_000, Ordering::Relaxed);
    put(&store, b"e", b"1").await.unwrap();
    assert_eq!(time_of(&store, b"e").await, 2_000_000);
    flush_and_stop(store).await;
}

#[tokio::test]
async fn writes_beyond_the_bound_are_rejected_while_the_backend_is_unavailable() {
    for (memtable_bytes, max_log_bytes) in [(200_000, None), (64 << 20, Some(200_000))] {
        let bounds = WalConfig { memtable_bytes, max_log_bytes, ..config() };
        let (store, backend, disk) = open_new(bounds.clone()).await;
        make_unavailable(&backend);
        let mut written = 0_u32;
        let mut throttled = 0;
        let rejected = loop {
            match put(&store, &written.to_be_bytes(), &[7; 4000]).await {
                Ok(()) => written += 1,
                // On a busy machine, the flusher may not have tried yet.
                Err(StorageError::Throttled(_)) if throttled < 1_000 => {
                    throttled += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => break error,
            }
        };
        let text = rejected.to_string();
        assert!(matches!(rejected, StorageError::Unavailable(_)), "{text}");
        assert!(text.contains(data().as_str()) && text.contains("backend"), "{text}");
        assert!((10..60).contains(&written), "{written}");
        assert_eq!(gauge(&store, "tsd_wal_backend_unavailable"), 1);
        for _ in 0..100 {
            assert!(put(&store, b"more", b"1").await.is_err(), "rejected at once");
        }
        assert_eq!(contents(&store, &data()).await.len(), written as usize, "reads succeed");
        // After a kill, all rows are replayed, although the backend is still unavailable.
        store.stop().await;
        let disk = disk.after_kill();
        let store = open(&disk, &backend, bounds).await;
        assert_eq!(contents(&store, &data()).await.len(), written as usize);
        backend.inner.heal();
        while let Err(error) = put(&store, b"after", b"1").await {
            let is_transient = error.recovery() == tsd_storage::Recovery::RetryLater;
            assert!(is_transient, "{error}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.flush().await.unwrap();
        assert_eq!(contents(&*backend, &data()).await.len(), written as usize + 1);
        assert_eq!(gauge(&store, "tsd_wal_backend_unavailable"), 0);
        assert_eq!(gauge(&store, "tsd_wal_log_bytes"), 0);
        flush_and_stop(store).await;
    }
}

#[tokio::test]
async fn hanging_backend_does_not_prevent_the_stop() {
    let (store, backend, disk) = open_new(config()).await;
    put(&store, b"row", b"1").await.unwrap();
    backend.inner.script(Operation::FlushRows, [Fault::Delay(Duration::from_hours(1))]);
    let flush = store.flush();
    let stop = async {
        while backend.ranges.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.stop().await;
    };
    let (flushed, ()) = tokio::join!(flush, stop);
    assert!(flushed.is_err());
    let store = open(&disk, &backend, config()).await;
    assert_eq!(value(&store, b"row").await.unwrap(), "1");
    flush_and_stop(store).await;
    assert_eq!(value(&*backend, b"row").await.unwrap(), "1");
}

/// Rows `0..count`, by four-byte keys.
async fn put_rows(store: &Store, count: u32, value: &[u8]) {
    let mut batch = CellBatch::new();
    for i in 0..count {
        batch.begin_row(&i.to_be_bytes()).unwrap();
        batch
            .push(CellRef { family: Family::T, qualifier: b"q", value, timestamp_ms: None })
            .unwrap();
    }
    store.put(&data(), batch).await.unwrap();
}

async fn wait_for_rows(backend: &RowFaultBackend, rows: usize) {
    while contents(backend, &data()).await.len() < rows {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn unavailable_region_delays_only_its_own_rows() {
    let (store, backend, _) = open_new(WalConfig { segment_bytes: 1 << 20, ..config() }).await;
    let unavailable = Bytes::copy_from_slice(&600_u32.to_be_bytes());
    backend.unreachable.lock().push(unavailable.clone());
    for value in [b"1", b"2"] {
        put_rows(&store, 2_000, value).await;
        assert!(store.flush().await.is_err());
    }
    // All ranges of both memtables are flushed, except for the range of that row.
    wait_for_rows(&backend, 2_000 - 512).await;
    while value(&*backend, &0_u32.to_be_bytes()).await.unwrap() != "2" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(value(&*backend, &unavailable).await, None);
    assert_eq!(contents(&store, &data()).await.len(), 2_000);
    backend.unreachable.lock().clear();
    store.flush().await.unwrap();
    let stored = contents(&*backend, &data()).await;
    assert_eq!(stored.len(), 2_000);
    assert!(stored.iter().all(|(_, cells)| cells[0].value == "2"));
    flush_and_stop(store).await;
}

#[tokio::test]
async fn rejected_row_stays_in_the_log_and_is_retried() {
    let (store, backend, disk) = open_new(WalConfig { segment_bytes: 1 << 20, ..config() }).await;
    let bad = Bytes::copy_from_slice(&700_u32.to_be_bytes());
    backend.rejected.lock().push(bad.clone());
    put_rows(&store, 1_000, b"1").await;
    assert!(store.flush().await.is_err());
    wait_for_rows(&backend, 999).await;
    while gauge(&store, "tsd_wal_rejected_rows") < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(value(&store, &bad).await.unwrap(), "1");
    // Later rows are flushed, and the rejected row is replayed.
    put(&store, b"later", b"1").await.unwrap();
    assert!(store.flush().await.is_err());
    wait_for_rows(&backend, 1_000).await;
    store.stop().await;
    let store = open(&disk, &backend, config()).await;
    backend.rejected.lock().clear();
    store.flush().await.unwrap();
    assert_eq!(value(&*backend, &bad).await.unwrap(), "1");
    assert_eq!(gauge(&store, "tsd_wal_rejected_rows"), 0);
    flush_and_stop(store).await;
    assert!(
        disk.contents_without("log.state").keys().all(|name| name == "commit-time"),
        "the log is empty"
    );
}

#[tokio::test]
async fn permanently_rejected_rows_are_written_to_the_dead_letter_file() {
    let (store, backend, disk) = open_new(WalConfig { segment_bytes: 1 << 20, ..config() }).await;
    let keys = [700_u32, 701].map(|key| Bytes::copy_from_slice(&key.to_be_bytes()));
    backend.too_large.lock().extend(keys.clone());
    put_rows(&store, 1_000, b"1").await;
    while store.flush().await.is_err() {}
    assert_eq!(contents(&*backend, &data()).await.len(), 998);
    assert_eq!(gauge(&store, "tsd_wal_rejected_rows"), 0);
    assert_eq!(gauge(&store, "tsd_wal_memtable_rows"), 0, "their memtable is flushed");
    // A later change of a row that is in the file is appended.
    put(&store, &keys[1], b"2").await.unwrap();
    while store.flush().await.is_err() {}
    store.stop().await;
    let files = disk.after_power_cut().contents_without("log.state");
    let mut names: Vec<&str> = files.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["commit-time", "refused-000001"]);
    let line = |key: &str, value: &str, at| format!("put tsdb {key} t 71 {at} {value}\n");
    let later = clock() + MAX_ADDED_MS;
    let lines = [
        line("000002BC", "31", clock()),
        line("000002BD", "31", clock()),
        line("000002BD", "32", later),
    ];
    assert_eq!(files["refused-000001"], lines.concat().as_bytes());
}

#[tokio::test]
async fn cells_that_the_backend_does_not_store_are_refused_when_they_are_written() {
    let (store, backend, _) = open_new(WalConfig { max_cell_bytes: 100, ..config() }).await;
    let long = Bytes::from_static(&[b'x'; 100]);
    let is_rejected = |error: &StorageError| matches!(error, StorageError::Rejected(text) if text.contains("limit of 100 bytes"));
    let error = put(&store, b"row", &long).await.unwrap_err();
    assert!(is_rejected(&error), "{error}");
    put(&store, b"row", b"1").await.unwrap();
    // The committer decides these, since a memtable has the column.
    let one = Some(Bytes::from_static(b"1"));
    let table = data();
    let set = store.compare_and_set(&table, column(b"row", b"q"), one, long);
    assert!(is_rejected(&set.await.unwrap_err()));
    let append = async || store.append(&data(), cells(b"row", &[(b"q", &[b'y'; 40])])).await;
    append().await.unwrap();
    let error = append().await.unwrap_err();
    assert!(is_rejected(&error), "{error}");
    let expected = [&b"1"[..], &[b'y'; 40]].concat();
    assert_eq!(value(&store, b"row").await.as_deref(), Some(&expected[..]));
    flush_and_stop(store).await;
    assert_eq!(value(&*backend, b"row").await.as_deref(), Some(&expected[..]));
}

#[tokio::test]
async fn put_succeeds_while_the_backend_hangs() {
    let aged = WalConfig { max_age: Duration::from_millis(20), ..config() };
    let (store, backend, _) = open_new(aged).await;
    backend.inner.script(Operation::FlushRows, vec![Fault::Delay(Duration::from_hours(1)); 1_000]);
    // The flush of the first rows hangs while the other rows are written.
    put_rows(&store, 3_000, b"1").await;
    for key in 0..1_000_u32 {
        put(&store, &key.to_be_bytes(), b"2").await.unwrap();
        if key % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(contents(&*backend, &data()).await.is_empty(), "nothing is flushed");
    assert_eq!(contents(&store, &data()).await.len(), 3_000);
    store.stop().await;
}

#[tokio::test]
async fn aged_rows_are_flushed_once_in_key_ranges() {
    let aged = WalConfig {
        max_age: Duration::from_millis(100),
        segment_bytes: 1 << 20,
        memtable_bytes: 64 << 20,
        ..config()
    };
    let (store, backend, _) = open_new(aged).await;
    put_rows(&store, 3_000, b"1").await;
    wait_for_rows(&backend, 3_000).await;
    let ranges = backend.ranges.lock().clone();
    assert!(ranges.len() >= 5, "{}", ranges.len());
    let keys: Vec<Bytes> = ranges.concat();
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert_eq!(keys.len(), 3_000);
    flush_and_stop(store).await;
}

#[tokio::test]
async fn log_of_many_segments_is_replayed_completely() {
    let small = WalConfig { segment_bytes: 4096, ..config() };
    let (store, backend, disk) = open_new(small.clone()).await;
    make_unavailable(&backend);
    for i in 0..100_u32 {
        put(&store, &i.to_be_bytes(), &[7; 500]).await.unwrap();
    }
    assert!(
        disk.contents_without("log.state").len() > 5,
        "{} segments",
        disk.contents_without("log.state").len()
    );
    store.stop().await;
    let small = WalConfig { memtable_bytes: 100_000, ..small };
    let store = open(&disk.after_kill(), &backend, small).await;
    assert_eq!(contents(&store, &data()).await.len(), 100);
    backend.inner.heal();
    flush_and_stop(store).await;
    assert_eq!(contents(&*backend, &data()).await.len(), 100);
}

#[tokio::test]
async fn table_removed_from_the_configuration_stays_logged_until_its_flush() {
    let (store, backend, disk) = open_new(config()).await;
    make_unavailable(&backend);
    put(&store, b"row", b"1").await.unwrap();
    store.stop().await;
    let none = WalConfig { logged: LoggedTables::Only(Vec::new()), ..config() };
    let store = open(&disk, &backend, none).await;
    assert_eq!(value(&store, b"row").await.unwrap(), "1");
    backend.inner.heal();
    flush_and_stop(store).await;
    assert_eq!(value(&*backend, b"row").await.unwrap(), "1");
}
