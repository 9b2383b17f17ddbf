//! Row compactions beside writers of the same rows.

use std::sync::atomic::{AtomicI64, Ordering};

use super::*;

/// A clock that is later each time it is looked at, so that no two groups have one time.
fn ticking() -> i64 {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000);
    NOW.fetch_add(1, Ordering::Relaxed)
}

/// Values that each writer puts, one after the other.
const TURNS: u64 = 60;

/// A value that no other writer puts, nor this one in another turn.
const fn of_turn(writer: u64, turn: u64) -> u64 {
    writer * TURNS + turn
}

fn qualifier(second: u16) -> [u8; 2] {
    (second << 4).to_be_bytes()
}

/// What a row compaction does: reads the row, puts what it read as one cell, deletes the rest. Says
/// whether the row was still as it was read. Every other time the store is told when that was.
async fn compact(store: &Store, row: &'static [u8], number: usize) -> bool {
    let row = Bytes::from_static(row);
    let mark = if number.is_multiple_of(2) { store.read_version() } else { ReadVersion::default() };
    let read = store.get(&data(), Get::row(row.clone())).await.unwrap();
    let Some(read) = read else { return false };
    // Let the writers put something in between.
    tokio::task::yield_now().await;
    let cells: Vec<Cell> = read.into_cells().unwrap();
    let delete = cells.iter().map(|cell| ReplacedColumn {
        family: cell.family,
        qualifier: cell.qualifier.clone(),
        timestamp_ms: cell.timestamp_ms,
    });
    let whole = Cell {
        family: Family::T,
        qualifier: format!("compacted {number}").into(),
        value: cells.iter().flat_map(|cell| cell.value.to_vec()).collect(),
        timestamp_ms: 0,
    };
    let delete = delete.collect();
    let rewrite = RowRewrite { row, put: Some((whole, None)), delete, read: mark };
    match store.rewrite_row(&data(), rewrite).await {
        Ok(()) => true,
        Err(StorageError::Changed) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Every value that a row holds, whatever its columns.
async fn values(store: &Store, row: &'static [u8]) -> Vec<u64> {
    let row = store.get(&data(), Get::row(Bytes::from_static(row))).await.unwrap();
    let cells = row.map_or_else(Vec::new, |row| row.into_cells().unwrap());
    let eights = cells.iter().flat_map(|cell| cell.value.chunks_exact(8));
    eights.map(|value| u64::from_be_bytes(value.try_into().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_value_is_lost_to_a_row_compaction_that_read_before_it() {
    for memtable_bytes in [1, 20_000, 64 << 20] {
        let (disk, below) = (FaultyDisk::new(1), backend());
        let config = || WalConfig { memtable_bytes, clock: ticking, ..lazy() };
        let open = async || {
            let opened = Store::open_in(config(), Arc::new(disk.clone()), Arc::clone(&below)).await;
            opened.unwrap().0
        };
        let store = Arc::new(open().await);
        // Each writer puts its point again and again.
        let writers = (0..4_u16).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for turn in 0..TURNS {
                    let value = of_turn(u64::from(writer), turn).to_be_bytes();
                    let point = cells(b"row", &[(&qualifier(writer), &value)]);
                    store.put(&data(), point).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let mut number = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            number += usize::from(compact(&store, b"row", number).await);
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert!(compact(&store, b"row", number).await, "nobody writes any more");
        let found = values(&store, b"row").await;
        for writer in 0..4 {
            let last = of_turn(writer, TURNS - 1);
            assert!(found.contains(&last), "writer {writer}'s last value, after {number}");
        }
        let before = contents(&*store, &data()).await;
        store.stop().await;
        let store = open().await;
        assert_eq!(contents(&store, &data()).await, before, "after a replay");
        store.flush().await.unwrap();
        assert_eq!(contents(&*below, &data()).await, before, "in the backend");
        store.stop().await;
    }
}

#[tokio::test]
async fn a_rewrite_sees_what_is_in_its_own_group() {
    // All requests are in one group, or in several: the answers are the same.
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    let rewrite = |row: &'static [u8]| {
        let qualifier = Bytes::from_static(b"q");
        let old = ReplacedColumn { family: Family::T, qualifier, timestamp_ms: clock() };
        let read = ReadVersion::default();
        RowRewrite { row: Bytes::from_static(row), put: None, delete: vec![old], read }
    };
    let table = data();
    let answers = tokio::join!(
        store.rewrite_row(&table, rewrite(b"row")),
        put(&store, b"row", b"1"),
        store.rewrite_row(&table, rewrite(b"row")),
        store.rewrite_row(&table, rewrite(b"row")),
        store.append(&table, cells(b"row", &[(b"q", b"anew")])),
    );
    let is_changed: Vec<bool> = <[_; 5]>::from(answers)
        .into_iter()
        .map(|answer| matches!(answer, Err(StorageError::Changed)))
        .collect();
    assert_eq!(is_changed, [true, false, false, true, false]);
    assert_eq!(value(&store, b"row").await.unwrap(), "anew");
    store.stop().await;
}

#[tokio::test]
async fn the_backend_is_read_again_only_if_it_may_have_changed() {
    let below = Arc::new(FaultyStorage::new(backend()));
    let disk = Arc::new(FaultyDisk::new(1));
    let (store, _) = WalStorage::open_in(lazy(), disk, Arc::clone(&below)).await.unwrap();
    let rewrite = async |read| {
        let row = store.get(&data(), Get::row(Bytes::from_static(b"row"))).await.unwrap();
        let cells = row.unwrap().into_cells().unwrap();
        let old = ReplacedColumn {
            family: Family::T,
            qualifier: cells[0].qualifier.clone(),
            timestamp_ms: cells[0].timestamp_ms,
        };
        let row = Bytes::from_static(b"row");
        let rewrite = RowRewrite { row, put: None, delete: vec![old], read };
        below.script(Operation::Get, [Fault::Error(StorageError::Closed)]);
        let outcome = store.rewrite_row(&data(), rewrite).await;
        below.heal();
        outcome
    };
    let three: [(&[u8], &[u8]); 3] = [(b"q", b"1"), (b"r", b"2"), (b"s", b"3")];
    store.put(&data(), cells(b"row", &three)).await.unwrap();
    let before = store.read_version();
    store.flush().await.unwrap();
    assert!(rewrite(before).await.is_err(), "read before the backend took the row");
    assert!(rewrite(ReadVersion::default()).await.is_err(), "nobody said when it was read");
    rewrite(store.read_version()).await.unwrap();
    assert_eq!(value(&store, b"row").await, None);
    store.stop().await;
}
