//! Over a backend that others write too, and that may be away.

mod row_fault_backend;

use std::sync::atomic::{AtomicI64, Ordering};

use tsd_storage::{Fault, Operation};

use self::row_fault_backend::RowFaultBackend;
use super::*;

type Store = WalStorage<RowFaultBackend>;

/// Nothing leaves unless it is asked for.
fn config() -> WalConfig {
    WalConfig { backend: BackendSharing::MultiWriter, max_age: Duration::from_hours(10), ..lazy() }
}

async fn open(disk: &FaultyDisk, below: &Arc<RowFaultBackend>, config: WalConfig) -> Store {
    Store::open_in(config, Arc::new(disk.clone()), Arc::clone(below)).await.unwrap().0
}

async fn opened(config: WalConfig) -> (Store, Arc<RowFaultBackend>, FaultyDisk) {
    let (disk, below) = (FaultyDisk::new(1), Arc::new(RowFaultBackend::new()));
    (open(&disk, &below, config).await, below, disk)
}

fn column(row: &'static [u8], qualifier: &'static [u8]) -> Column {
    let (row, qualifier) = (Bytes::from_static(row), Bytes::from_static(qualifier));
    Column { row, family: Family::T, qualifier }
}

fn gauge(store: &Store, name: &str) -> u64 {
    store.gauges().into_iter().find(|(n, _)| *n == name).unwrap().1 as u64
}

/// Everything leaves, and the log is empty; the backend stays open.
async fn end(store: Store) {
    // A hand-over that was under way while the backend was away may still fail.
    while let Err(error) = store.flush().await {
        assert!(matches!(error, StorageError::Unavailable(_)), "{error}");
    }
    store.stop().await;
}

/// The backend is away for all that hand rows over.
fn go_away(below: &RowFaultBackend) {
    let away = Fault::Error(StorageError::Unavailable("all of it".into()));
    below.inner.script(Operation::FlushRows, vec![away; 100_000]);
}

#[tokio::test]
async fn what_depends_on_present_values_goes_to_the_backend() {
    let (store, below, disk) = opened(config()).await;
    let table = data();
    // Another process wrote this.
    below.put(&table, cells(b"row", &[(b"set", b"theirs"), (b"\x05\0\0", b"one")])).await.unwrap();
    store.append(&table, cells(b"row", &[(b"\x05\0\0", b"two")])).await.unwrap();
    assert_eq!(store.increment(&table, column(b"row", b"n"), 5).await.unwrap(), 5);
    let set = store.compare_and_set(&table, column(b"row", b"set"), None, "ours".into());
    assert!(!set.await.unwrap());
    let theirs = Some(Bytes::from_static(b"theirs"));
    let set = store.compare_and_set(&table, column(b"row", b"set"), theirs, "ours".into());
    assert!(set.await.unwrap());
    assert!(disk.contents().is_empty(), "nothing of it is in the log");
    let stored = contents(&*below, &table).await;
    let values: Vec<&[u8]> = stored[0].1.iter().map(|cell| cell.value.as_ref()).collect();
    assert_eq!(values, [&b"onetwo"[..], &5_i64.to_be_bytes(), b"ours"]);
    end(store).await;
}

#[tokio::test]
async fn what_is_held_is_decided_here() {
    let (store, below, _) = opened(config()).await;
    let table = data();
    let count = 7_i64.to_be_bytes();
    store.put(&table, cells(b"row", &[(b"n", &count), (b"a", b"one")])).await.unwrap();
    assert_eq!(store.increment(&table, column(b"row", b"n"), 1).await.unwrap(), 8);
    // One column is held, the other not.
    store.append(&table, cells(b"row", &[(b"a", b"two"), (b"b", b"three")])).await.unwrap();
    let one_two = Bytes::from_static(b"onetwo");
    let deleted = store.compare_and_delete(&table, column(b"row", b"a"), one_two);
    assert!(deleted.await.unwrap());
    let stored = contents(&*below, &table).await;
    assert_eq!(stored[0].1.len(), 1, "b alone");
    store.flush().await.unwrap();
    let stored = contents(&*below, &table).await;
    let qualifiers: Vec<&[u8]> = stored[0].1.iter().map(|c| c.qualifier.as_ref()).collect();
    assert_eq!(qualifiers, [b"b", b"n"]);
    // It has left, so the backend decides, whoever else counts there.
    below.increment(&table, column(b"row", b"n"), 10).await.unwrap();
    assert_eq!(store.increment(&table, column(b"row", b"n"), 1).await.unwrap(), 19);
    end(store).await;
}

#[tokio::test]
async fn a_row_compaction_waits_until_its_row_has_left() {
    let (store, below, _) = opened(config()).await;
    let table = data();
    put(&store, b"row", b"1").await.unwrap();
    let rewrite = || {
        let cell = Cell {
            family: Family::T,
            qualifier: Bytes::from_static(b"whole"),
            value: Bytes::from_static(b"1"),
            timestamp_ms: 0,
        };
        let old = ReplacedColumn {
            family: Family::T,
            qualifier: Bytes::from_static(b"q"),
            timestamp_ms: clock(),
        };
        let row = Bytes::from_static(b"row");
        let read = ReadVersion::default();
        RowRewrite { row, put: Some((cell, None)), delete: vec![old], read }
    };
    let refused = store.rewrite_row(&table, rewrite()).await;
    assert!(matches!(refused, Err(StorageError::Throttled(_))), "{refused:?}");
    store.flush().await.unwrap();
    store.rewrite_row(&table, rewrite()).await.unwrap();
    let stored = contents(&*below, &table).await;
    assert_eq!(stored[0].1.len(), 1);
    assert_eq!(stored[0].1[0].qualifier, "whole");
    end(store).await;
}

#[tokio::test]
async fn a_delete_takes_what_is_older_than_itself_also_after_a_replay() {
    let (store, below, disk) = opened(config()).await;
    let table = data();
    let at = |timestamp_ms, value: &'static [u8]| {
        let timestamp_ms = Some(timestamp_ms);
        let cell = CellRef { family: Family::T, qualifier: b"q", value, timestamp_ms };
        [&b"column"[..], b"row"].map(|row| CellBatch::single(row, cell).unwrap())
    };
    for batch in at(clock(), b"old") {
        below.put(&table, batch).await.unwrap();
    }
    let columns = vec![(Family::T, Bytes::from_static(b"q"))];
    let delete = Delete::Columns { row: Bytes::from_static(b"column"), columns };
    store.delete(&table, delete).await.unwrap();
    store.delete(&table, Delete::Row(Bytes::from_static(b"row"))).await.unwrap();
    assert!(contents(&store, &table).await.is_empty());
    store.stop().await;
    // Somebody else writes both anew.
    for batch in at(clock() + 10, b"new") {
        below.put(&table, batch).await.unwrap();
    }
    let store = open(&disk, &below, config()).await;
    let stored = contents(&store, &table).await;
    assert_eq!(stored.len(), 2, "what is newer is seen before the deletes have left");
    store.flush().await.unwrap();
    assert_eq!(contents(&*below, &table).await, stored);
    assert!(stored.iter().all(|(_, cells)| cells[0].value == "new"));
    end(store).await;
}

/// Timestamp of the cell of a row.
async fn time_of(store: &impl Storage, row: &'static [u8]) -> i64 {
    let row = store.get(&data(), Get::row(Bytes::from_static(row))).await.unwrap().unwrap();
    row.into_cells().unwrap()[0].timestamp_ms
}

#[tokio::test]
async fn commit_times_never_fall() {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000);
    let config = || WalConfig { clock: || NOW.load(Ordering::Relaxed), ..config() };
    let (store, below, disk) = opened(config()).await;
    put(&store, b"a", b"1").await.unwrap();
    NOW.store(900_000, Ordering::Relaxed);
    put(&store, b"b", b"1").await.unwrap();
    assert_eq!(time_of(&store, b"b").await, 1_000_000, "the clock was set back");
    store.delete(&data(), Delete::Row(Bytes::from_static(b"a"))).await.unwrap();
    put(&store, b"a", b"2").await.unwrap();
    assert_eq!(time_of(&store, b"a").await, 1_000_001, "a put after a delete is later than it");
    store.stop().await;

    let store = open(&disk, &below, config()).await;
    put(&store, b"c", b"1").await.unwrap();
    assert!(time_of(&store, b"c").await > 1_000_001, "after a replay");
    end(store).await;

    let store = open(&disk.after_kill(), &below, config()).await;
    put(&store, b"d", b"1").await.unwrap();
    let time = time_of(&store, b"d").await;
    assert!(time > 1_000_002, "after a start with an empty log: {time}");
    NOW.store(2_000_000, Ordering::Relaxed);
    put(&store, b"e", b"1").await.unwrap();
    assert_eq!(time_of(&store, b"e").await, 2_000_000);
    end(store).await;
}

#[tokio::test]
async fn while_the_backend_is_away_writes_are_refused_at_the_bound_and_nothing_is_lost() {
    for (memtable_bytes, max_log_bytes) in [(200_000, None), (64 << 20, Some(200_000))] {
        let bounds = WalConfig { memtable_bytes, max_log_bytes, ..config() };
        let (store, below, disk) = opened(bounds.clone()).await;
        go_away(&below);
        let mut taken = 0_u32;
        let refused = loop {
            match put(&store, &taken.to_be_bytes(), &[7; 4000]).await {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, StorageError::Throttled(_)), "{refused}");
        assert!((10..60).contains(&taken), "{taken}");
        assert_eq!(gauge(&store, "tsd_wal_backend_unavailable"), 1);
        for _ in 0..100 {
            assert!(put(&store, b"more", b"1").await.is_err(), "refused at once");
        }
        assert_eq!(contents(&store, &data()).await.len(), taken as usize, "reads go on");
        // Killed, it comes back with everything, though the backend is still away.
        store.stop().await;
        let disk = disk.after_kill();
        let store = open(&disk, &below, bounds).await;
        assert_eq!(contents(&store, &data()).await.len(), taken as usize);
        below.inner.heal();
        while let Err(error) = put(&store, b"after", b"1").await {
            assert!(matches!(error, StorageError::Throttled(_)), "{error}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.flush().await.unwrap();
        assert_eq!(contents(&*below, &data()).await.len(), taken as usize + 1);
        assert_eq!(gauge(&store, "tsd_wal_backend_unavailable"), 0);
        assert_eq!(gauge(&store, "tsd_wal_log_bytes"), 0);
        end(store).await;
    }
}

#[tokio::test]
async fn a_backend_that_hangs_does_not_keep_the_store_from_stopping() {
    let (store, below, disk) = opened(config()).await;
    put(&store, b"row", b"1").await.unwrap();
    below.inner.script(Operation::FlushRows, [Fault::Delay(Duration::from_hours(1))]);
    let flush = store.flush();
    let stop = async {
        while below.ranges.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.stop().await;
    };
    let (flushed, ()) = tokio::join!(flush, stop);
    assert!(flushed.is_err());
    let store = open(&disk, &below, config()).await;
    assert_eq!(value(&store, b"row").await.unwrap(), "1");
    end(store).await;
    assert_eq!(value(&*below, b"row").await.unwrap(), "1");
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

async fn wait_for_rows(below: &RowFaultBackend, rows: usize) {
    while contents(below, &data()).await.len() < rows {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_region_that_cannot_be_reached_holds_up_its_own_rows_in_their_order() {
    let (store, below, _) = opened(WalConfig { segment_bytes: 1 << 20, ..config() }).await;
    let lost = Bytes::copy_from_slice(&600_u32.to_be_bytes());
    below.unreachable.lock().unwrap().push(lost.clone());
    for value in [b"1", b"2"] {
        put_rows(&store, 2_000, value).await;
        assert!(store.flush().await.is_err());
    }
    // All but the piece of that row have left, in both generations.
    wait_for_rows(&below, 2_000 - 512).await;
    while value(&*below, &0_u32.to_be_bytes()).await.unwrap() != "2" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(value(&*below, &lost).await, None);
    assert_eq!(contents(&store, &data()).await.len(), 2_000);
    below.unreachable.lock().unwrap().clear();
    store.flush().await.unwrap();
    let stored = contents(&*below, &data()).await;
    assert_eq!(stored.len(), 2_000);
    assert!(stored.iter().all(|(_, cells)| cells[0].value == "2"));
    end(store).await;
}

#[tokio::test]
async fn a_row_that_is_refused_is_left_alone_and_kept() {
    let (store, below, disk) = opened(WalConfig { segment_bytes: 1 << 20, ..config() }).await;
    let bad = Bytes::copy_from_slice(&700_u32.to_be_bytes());
    below.refused.lock().unwrap().push(bad.clone());
    put_rows(&store, 1_000, b"1").await;
    assert!(store.flush().await.is_err());
    wait_for_rows(&below, 999).await;
    while gauge(&store, "tsd_wal_rejected_rows") < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(value(&store, &bad).await.unwrap(), "1");
    // What comes later leaves, and the row outlives the process.
    put(&store, b"later", b"1").await.unwrap();
    assert!(store.flush().await.is_err());
    wait_for_rows(&below, 1_000).await;
    store.stop().await;
    let store = open(&disk, &below, config()).await;
    below.refused.lock().unwrap().clear();
    store.flush().await.unwrap();
    assert_eq!(value(&*below, &bad).await.unwrap(), "1");
    assert_eq!(gauge(&store, "tsd_wal_rejected_rows"), 0);
    end(store).await;
    assert!(disk.contents().keys().all(|name| name == "commit-time"), "the log is empty");
}

#[tokio::test]
async fn a_row_that_will_never_be_taken_is_set_aside_and_holds_up_nothing() {
    let (store, below, disk) = opened(WalConfig { segment_bytes: 1 << 20, ..config() }).await;
    let keys = [700_u32, 701].map(|key| Bytes::copy_from_slice(&key.to_be_bytes()));
    below.too_large.lock().unwrap().extend(keys.clone());
    put_rows(&store, 1_000, b"1").await;
    while store.flush().await.is_err() {}
    assert_eq!(contents(&*below, &data()).await.len(), 998);
    assert_eq!(gauge(&store, "tsd_wal_rejected_rows"), 0);
    assert_eq!(gauge(&store, "tsd_wal_memtable_rows"), 0, "their generation has left");
    // A later change of such a row is told apart from the first.
    put(&store, &keys[1], b"2").await.unwrap();
    while store.flush().await.is_err() {}
    store.stop().await;
    let left = disk.after_power_cut().contents();
    let mut names: Vec<&str> = left.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["commit-time", "refused-000001"]);
    let line = |key: &str, value: &str| format!("put tsdb {key} t 71 {} {value}\n", clock());
    let lines = [line("000002BC", "31"), line("000002BD", "31"), line("000002BD", "32")];
    assert_eq!(left["refused-000001"], lines.concat().as_bytes());
}

#[tokio::test]
async fn a_put_waits_for_the_log_alone_while_the_backend_hangs() {
    let aged = WalConfig { max_age: Duration::from_millis(20), ..config() };
    let (store, below, _) = opened(aged).await;
    below.inner.script(Operation::FlushRows, vec![Fault::Delay(Duration::from_hours(1)); 1_000]);
    // The first rows are on their way, and hang, when the others come.
    put_rows(&store, 3_000, b"1").await;
    for key in 0..1_000_u32 {
        put(&store, &key.to_be_bytes(), b"2").await.unwrap();
        if key % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(contents(&*below, &data()).await.is_empty(), "nothing has left");
    assert_eq!(contents(&store, &data()).await.len(), 3_000);
    store.stop().await;
}

#[tokio::test]
async fn old_rows_leave_in_pieces_each_once() {
    let aged = WalConfig {
        max_age: Duration::from_millis(100),
        segment_bytes: 1 << 20,
        memtable_bytes: 64 << 20,
        ..config()
    };
    let (store, below, _) = opened(aged).await;
    put_rows(&store, 3_000, b"1").await;
    wait_for_rows(&below, 3_000).await;
    let pieces = below.ranges.lock().unwrap().clone();
    assert!(pieces.len() >= 5, "{}", pieces.len());
    let keys: Vec<Bytes> = pieces.concat();
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert_eq!(keys.len(), 3_000);
    end(store).await;
}

#[tokio::test]
async fn a_log_of_many_segments_comes_back_whole() {
    let small = WalConfig { segment_bytes: 4096, ..config() };
    let (store, below, disk) = opened(small.clone()).await;
    go_away(&below);
    for i in 0..100_u32 {
        put(&store, &i.to_be_bytes(), &[7; 500]).await.unwrap();
    }
    assert!(disk.contents().len() > 5, "{} segments", disk.contents().len());
    store.stop().await;
    let small = WalConfig { memtable_bytes: 100_000, ..small };
    let store = open(&disk.after_kill(), &below, small).await;
    assert_eq!(contents(&store, &data()).await.len(), 100);
    below.inner.heal();
    end(store).await;
    assert_eq!(contents(&*below, &data()).await.len(), 100);
}

#[tokio::test]
async fn a_table_that_is_held_no_more_is_held_until_its_log_is_empty() {
    let (store, below, disk) = opened(config()).await;
    go_away(&below);
    put(&store, b"row", b"1").await.unwrap();
    store.stop().await;
    let none = WalConfig { logged: LoggedTables::Only(Vec::new()), ..config() };
    let store = open(&disk, &below, none).await;
    assert_eq!(value(&store, b"row").await.unwrap(), "1");
    below.inner.heal();
    end(store).await;
    assert_eq!(value(&*below, b"row").await.unwrap(), "1");
}
