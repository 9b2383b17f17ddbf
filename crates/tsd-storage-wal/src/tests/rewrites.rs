//! Row compactions concurrent with writes of the same rows.

use super::*;
use tsd_storage::StorageExt;

/// Number of values that each writer puts.
const TURNS: u64 = 60;

/// A value that is unique per writer and turn.
const fn of_turn(writer: u64, turn: u64) -> u64 {
    writer * TURNS + turn
}

fn qualifier(second: u16) -> [u8; 2] {
    (second << 4).to_be_bytes()
}

/// Compacts a row: reads it, puts its values as one cell and deletes the others. Returns true if
/// the row was unchanged since the read.
async fn compact(store: &Store, row: &'static [u8], number: usize) -> bool {
    let row = Bytes::from_static(row);
    let version = store.read_version(&data());
    let read = store.get(&data(), Get::row(row.clone())).await.unwrap();
    let Some(read) = read else { return false };
    // The writers may put values in between.
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
        timestamp_ms: cells.iter().map(|cell| cell.timestamp_ms).max().unwrap(),
    };
    let delete = delete.collect();
    let rewrite = RowRewrite {
        row,
        put: Some(whole),
        superseded_ms: None,
        delete,
        read: version,
        whole_row: false,
    };
    match store.rewrite_row(&data(), rewrite).await {
        Ok(()) => true,
        Err(StorageError::Changed) => false,
        Err(error) => panic!("{error}"),
    }
}

/// All values of a row, from any column.
async fn values(store: &Store, row: &'static [u8]) -> Vec<u64> {
    let row = store.get(&data(), Get::row(Bytes::from_static(row))).await.unwrap();
    let cells = row.map_or_else(Vec::new, |row| row.into_cells().unwrap());
    let eights = cells.iter().flat_map(|cell| cell.value.chunks_exact(8));
    eights.map(|value| u64::from_be_bytes(value.try_into().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_compaction_loses_no_concurrent_write() {
    // The clock stands still, so only the order of commits distinguishes two values.
    for memtable_bytes in [1, 20_000, 64 << 20] {
        let (disk, backend) = (FaultyDisk::new(1), memory_backend());
        let config = || WalConfig { memtable_bytes, ..lazy() };
        let open = async || {
            let opened =
                Store::open_in(config(), Arc::new(disk.clone()), Arc::clone(&backend)).await;
            opened.unwrap().0
        };
        let store = Arc::new(open().await);
        // Each writer overwrites its own point.
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
        assert!(compact(&store, b"row", number).await, "all writers have ended");
        let found = values(&store, b"row").await;
        for writer in 0..4 {
            let last = of_turn(writer, TURNS - 1);
            assert!(found.contains(&last), "writer {writer}'s last value, after {number}");
        }
        let before = without_times(contents(&*store, &data()).await);
        store.stop().await;
        let store = open().await;
        let replayed = without_times(contents(&store, &data()).await);
        assert_eq!(replayed, before, "after a replay");
        store.flush().await.unwrap();
        let flushed = without_times(contents(&*backend, &data()).await);
        assert_eq!(flushed, before, "in the backend");
        store.stop().await;
    }
}

#[tokio::test]
async fn rewrite_sees_earlier_writes_of_its_group() {
    // The results do not depend on the grouping of the requests.
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    let rewrite = |row: &'static [u8]| {
        let qualifier = Bytes::from_static(b"q");
        let old = ReplacedColumn { family: Family::T, qualifier, timestamp_ms: clock() };
        let read = store.read_version(&data());
        RowRewrite {
            row: Bytes::from_static(row),
            put: None,
            superseded_ms: None,
            delete: vec![old],
            read,
            whole_row: false,
        }
    };
    let table = data();
    let results = tokio::join!(
        store.rewrite_row(&table, rewrite(b"row")),
        put(&store, b"row", b"1"),
        store.rewrite_row(&table, rewrite(b"row")),
        store.rewrite_row(&table, rewrite(b"row")),
        store.append(&table, cells(b"row", &[(b"q", b"again")])),
    );
    let is_changed: Vec<bool> = <[_; 5]>::from(results)
        .into_iter()
        .map(|result| matches!(result, Err(StorageError::Changed)))
        .collect();
    assert_eq!(is_changed, [false, false, true, true, false]);
    assert_eq!(value(&store, b"row").await.unwrap(), "1again");
    store.stop().await;
}

#[tokio::test]
async fn rewrite_needs_no_second_read() {
    let backend = Arc::new(FaultyStorage::new(memory_backend()));
    let disk = Arc::new(FaultyDisk::new(1));
    let (store, _) = WalStorage::open_in(lazy(), disk, Arc::clone(&backend)).await.unwrap();
    let rewrite = async |read| {
        let old = ReplacedColumn {
            family: Family::T,
            qualifier: Bytes::from_static(b"q"),
            timestamp_ms: clock(),
        };
        let row = Bytes::from_static(b"row");
        let rewrite = RowRewrite {
            row,
            put: None,
            superseded_ms: None,
            delete: vec![old],
            read,
            whole_row: false,
        };
        backend.script(Operation::Get, [Fault::Error(StorageError::Closed)]);
        let result = store.rewrite_row(&data(), rewrite).await;
        backend.heal();
        result
    };
    let is_changed = |result| matches!(result, Err(StorageError::Changed));
    let before = store.read_version(&data());
    store.put(&data(), cells(b"row", &[(b"q", b"1"), (b"r", b"2")])).await.unwrap();
    let after = store.read_version(&data());
    assert!(is_changed(rewrite(before).await), "the row is newer, in the memtable");
    store.flush().await.unwrap();
    assert!(is_changed(rewrite(before).await), "a memtable with newer rows was flushed");
    assert!(is_changed(rewrite(ReadVersion::default()).await), "unknown read version");
    put(&store, b"other", b"1").await.unwrap();
    store.flush().await.unwrap();
    assert!(is_changed(rewrite(after).await), "the flushed memtable may have had the row");
    rewrite(store.read_version(&data())).await.unwrap();
    assert_eq!(value(&store, b"row").await, None);
    store.stop().await;
}

/// A row with two points of one instant, put in this order at the same time.
#[track_caller]
fn newest_is_last(row: &[(Bytes, Vec<Cell>)], older: &[u8], newer: &[u8], context: &str) {
    let cells = &row[0].1;
    let time = |q: &[u8]| cells.iter().find(|c| c.qualifier == q).unwrap().timestamp_ms;
    assert!(time(older) < time(newer), "{context}: {cells:?}");
}

#[tokio::test]
async fn points_of_one_instant_keep_their_order() {
    // Second 4 as an integer and a float, in either order; the clock stands still, then goes back.
    static NOW: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);
    let clock = || NOW.load(std::sync::atomic::Ordering::Relaxed);
    let (int, float): (&[u8], &[u8]) = (&[0, 0x40], &[0, 0x4B]);
    for (older, newer) in [(int, float), (float, int)] {
        // Between the puts: nothing, a flush, a restart with the log, a restart with an empty log.
        for between in 0..4 {
            NOW.store(1_000_000, std::sync::atomic::Ordering::Relaxed);
            let (mut disk, backend) = (FaultyDisk::new(1), memory_backend());
            let open = async |disk: &FaultyDisk| {
                let config = WalConfig { clock, ..lazy() };
                let opened =
                    Store::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await;
                opened.unwrap().0
            };
            let mut store = open(&disk).await;
            store.put(&data(), cells(b"row", &[(older, b"\0\0\0\x01")])).await.unwrap();
            NOW.fetch_sub(500_000, std::sync::atomic::Ordering::Relaxed);
            match between {
                0 => {}
                1 => store.flush().await.unwrap(),
                _ => {
                    if between == 3 {
                        store.flush().await.unwrap();
                    }
                    store.stop().await;
                    disk = disk.after_kill();
                    store = open(&disk).await;
                }
            }
            store.put(&data(), cells(b"row", &[(newer, b"\0\0\0\x02")])).await.unwrap();
            let context = format!("{between}");
            newest_is_last(&contents(&store, &data()).await, older, newer, &context);
            store.flush().await.unwrap();
            newest_is_last(&contents(&*backend, &data()).await, older, newer, &context);
            store.stop().await;
        }
    }
}
