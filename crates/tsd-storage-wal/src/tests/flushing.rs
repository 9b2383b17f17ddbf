//! Freezes, flushes, and the ends of a store.

use tsd_storage::{Fault, FaultyStorage, Operation};

use super::*;

type FaultyStore = WalStorage<FaultyStorage<MemoryStorage>>;

async fn over_faulty(
    disk: &FaultyDisk,
    config: WalConfig,
) -> (FaultyStore, Arc<FaultyStorage<MemoryStorage>>) {
    let below = Arc::new(FaultyStorage::new(backend()));
    let opened = WalStorage::open_in(config, Arc::new(disk.clone()), Arc::clone(&below)).await;
    (opened.unwrap().0, below)
}

fn gauge(store: &impl Storage, name: &str) -> f64 {
    store.gauges().into_iter().find(|(n, _)| *n == name).unwrap().1
}

fn away(times: usize) -> Vec<Fault> {
    vec![Fault::Error(StorageError::Timeout("backend")); times]
}

#[tokio::test]
async fn closing_leaves_an_empty_log_and_stopping_a_log_to_replay() {
    let dir = tempfile::tempdir().unwrap();
    let below = || backend();
    let kept = below();
    let (store, report) = Store::open(small(dir.path()), Arc::clone(&kept)).await.unwrap();
    assert_eq!((report.segments, report.records), (0, 0));
    put(&store, b"a", b"1").await.unwrap();
    put(&store, b"b", b"2").await.unwrap();
    store.stop().await;
    assert!(matches!(put(&store, b"c", b"3").await, Err(StorageError::Closed)));
    assert_eq!(value(&*kept, b"a").await, None, "stopping flushes nothing");

    let (store, report) = Store::open(small(dir.path()), Arc::clone(&kept)).await.unwrap();
    assert_eq!((report.segments, report.records, report.cells), (1, 2, 2));
    assert_eq!(value(&store, b"a").await.unwrap(), "1");
    store.flush().await.unwrap();
    assert_eq!(value(&*kept, b"b").await.unwrap(), "2");
    assert!(gauge(&store, "tsd_wal_log_bytes") < 1.0, "the flushed segments do not count");
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "only the lock is left: {names:?}");
    put(&store, b"c", b"3").await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "only the lock is left: {names:?}");
}

#[tokio::test]
async fn a_backend_that_is_away_keeps_rows_held_and_readable() {
    let disk = FaultyDisk::new(1);
    let (store, below) = over_faulty(&disk, lazy()).await;
    put(&store, b"a", b"1").await.unwrap();
    below.script(Operation::FlushRows, away(2));
    assert!(matches!(store.flush().await, Err(StorageError::Timeout(_))));
    assert_eq!(value(&store, b"a").await.unwrap(), "1");
    put(&store, b"b", b"2").await.unwrap();
    below.heal();
    store.flush().await.unwrap();
    for row in [b"a", b"b"] {
        assert_eq!(value(&**below.inner(), row).await, value(&store, row).await);
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_close_that_cannot_flush_ends_and_leaves_the_log() {
    let disk = FaultyDisk::new(1);
    let (store, below) = over_faulty(&disk, lazy()).await;
    put(&store, b"a", b"1").await.unwrap();
    below.script(Operation::FlushRows, away(1000));
    assert!(store.close().await.is_err());
    let (store, report) = open(&disk, lazy()).await.unwrap();
    assert_eq!(report.records, 1);
    assert_eq!(value(&store, b"a").await.unwrap(), "1");
    store.stop().await;
}

#[tokio::test]
async fn when_the_backend_lags_writers_wait_and_memory_does_not_grow() {
    const BOUND: usize = 400_000;
    let disk = FaultyDisk::new(1);
    let config = WalConfig { memtable_bytes: BOUND, segment_bytes: 1 << 20, ..lazy() };
    let (store, below) = over_faulty(&disk, config).await;
    below.script(Operation::FlushRows, away(4));
    let write = async |writer: u32| {
        let mut most = 0.0_f64;
        for i in 0..60_u32 {
            let row = (writer * 1000 + i).to_be_bytes();
            put(&store, &row, &[7; 4000]).await.unwrap();
            most = most.max(gauge(&store, "tsd_wal_memtable_bytes"));
        }
        most
    };
    let most = futures_util::future::join_all((0..4).map(write)).await;
    let most = most.into_iter().fold(0.0, f64::max);
    // A group of four puts may be on top, in blocks of the arena.
    assert!(most < BOUND as f64 * 1.7, "{most} bytes held");
    store.flush().await.unwrap();
    assert_eq!(contents(&**below.inner(), &data()).await.len(), 240);
    store.close().await.unwrap();
}

#[tokio::test]
async fn when_the_backends_disk_is_full_writers_are_told() {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { memtable_bytes: 100_000, segment_bytes: 1 << 20, ..lazy() };
    let (store, below) = over_faulty(&disk, config).await;
    below.script(Operation::FlushRows, vec![Fault::Error(StorageError::DiskFull); 1000]);
    let mut taken = 0_u32;
    let told = loop {
        match put(&store, &taken.to_be_bytes(), &[7; 4000]).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(told, StorageError::DiskFull), "{told}");
    assert_eq!(contents(&store, &data()).await.len(), taken as usize, "reads go on");
    below.heal();
    while let Err(error) = put(&store, b"after", b"1").await {
        assert!(matches!(error, StorageError::DiskFull), "{error}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.flush().await.unwrap();
    assert_eq!(contents(&**below.inner(), &data()).await.len(), taken as usize + 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn when_the_backend_lags_the_log_does_not_grow_for_ever() {
    const SEGMENT: usize = 4096;
    let disk = FaultyDisk::new(1);
    let config = WalConfig { segment_bytes: SEGMENT as u64, ..lazy() };
    let (store, below) = over_faulty(&disk, config).await;
    below.script(Operation::FlushRows, away(3));
    let column = |i: u8| Column {
        row: Bytes::copy_from_slice(&[i]),
        family: Family::T,
        qualifier: Bytes::from_static(b"n"),
    };
    let write = async |i: u8| {
        let mut most = 0;
        for _ in 0..120 {
            store.increment(&data(), column(i), 1).await.unwrap();
            most = most.max(disk.contents().len());
        }
        most
    };
    let most = futures_util::future::join_all((0..12).map(write)).await.into_iter().max().unwrap();
    assert!((3..=18).contains(&most), "{most} segments");
    store.flush().await.unwrap();
    assert_eq!(contents(&**below.inner(), &data()).await.len(), 12);
    store.close().await.unwrap();
}

#[tokio::test]
async fn rows_leave_when_they_are_old() {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { max_age: Duration::from_millis(1), ..lazy() };
    let below = backend();
    let opened = Store::open_in(config, Arc::new(disk), Arc::clone(&below)).await;
    let (store, _) = opened.unwrap();
    put(&store, b"a", b"1").await.unwrap();
    while value(&*below, b"a").await.is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_counter_that_is_incremented_for_ever_does_not_fill_the_disk() {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { segment_bytes: 4096, ..lazy() };
    let (store, _) = open(&disk, config).await.unwrap();
    let column = Column {
        row: Bytes::from_static(b"\0"),
        family: Family::T,
        qualifier: Bytes::from_static(b"metrics"),
    };
    for i in 1..=500 {
        assert_eq!(store.increment(&data(), column.clone(), 1).await.unwrap(), i);
    }
    store.flush().await.unwrap();
    assert!(disk.contents().is_empty());
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_scan_across_a_flush_sees_every_row_once() {
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    let row = |i: u16| i.to_be_bytes();
    for i in 0..40 {
        put(&store, &row(i), b"1").await.unwrap();
        if i % 10 == 9 {
            store.flush().await.unwrap();
        }
    }
    for i in (0..40).step_by(2) {
        put(&store, &row(i), b"2").await.unwrap();
    }
    store.delete(&data(), Delete::Row(Bytes::copy_from_slice(&row(21)))).await.unwrap();
    let mut scanner = store.scan(&data(), Scan { batch_rows: Some(4), ..Scan::default() });
    let mut seen = Vec::new();
    while let Some(rows) = scanner.next_rows().await.unwrap() {
        for row in rows {
            let key = u16::from_be_bytes(row.key.as_ref().try_into().unwrap());
            seen.push((key, row.into_cells().unwrap()[0].value.clone()));
        }
        store.flush().await.unwrap();
    }
    let expected: Vec<(u16, Bytes)> = (0..40)
        .filter(|i| *i != 21)
        .map(|i| (i, if i % 2 == 0 { "2".into() } else { "1".into() }))
        .collect();
    assert_eq!(seen, expected);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_table_that_is_not_held_does_not_touch_the_log() {
    let [data, uid] = conformance::tables();
    let disk = FaultyDisk::new(1);
    let below = backend();
    let config = WalConfig { logged: LoggedTables::Only(vec![data.clone()]), ..lazy() };
    let open = async |config| {
        Store::open_in(config, Arc::new(disk.clone()), Arc::clone(&below)).await.unwrap().0
    };
    let store = open(config).await;
    store.put(&uid, cells(b"row", &[(b"q", b"v")])).await.unwrap();
    assert!(disk.contents().is_empty());
    assert_eq!(contents(&*below, &uid).await.len(), 1);
    store.put(&data, cells(b"row", &[(b"q", b"v")])).await.unwrap();
    store.stop().await;
    assert!(contents(&*below, &data).await.is_empty());

    // What is in the log of a table that is held no more is in the backend before anybody reads.
    let store = open(WalConfig { logged: LoggedTables::Only(Vec::new()), ..lazy() }).await;
    assert_eq!(contents(&store, &data).await.len(), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_log_of_a_table_that_is_gone_is_refused() {
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    put(&store, b"row", b"v").await.unwrap();
    store.stop().await;
    let other = Arc::new(MemoryStorage::new([Table::new("other")]));
    let error = Store::open_in(lazy(), Arc::new(disk), other).await.unwrap_err();
    assert!(matches!(&error, OpenError::NoSuchTable(table) if *table == data()), "{error}");
}

#[tokio::test]
async fn a_replay_larger_than_the_memtable_goes_to_the_backend_as_it_comes() {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { segment_bytes: 8 << 20, ..lazy() };
    let (store, _) = open(&disk, config.clone()).await.unwrap();
    for i in 0..300_u32 {
        put(&store, &i.to_be_bytes(), &[7; 4000]).await.unwrap();
    }
    store.stop().await;
    let below = backend();
    let config = WalConfig { memtable_bytes: 400_000, ..config };
    let opened = Store::open_in(config, Arc::new(disk), Arc::clone(&below)).await;
    let (store, report) = opened.unwrap();
    assert_eq!(report.records, 300);
    assert!(!contents(&*below, &data()).await.is_empty());
    assert_eq!(contents(&store, &data()).await.len(), 300);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_call_that_no_segment_can_hold_is_refused() {
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, WalConfig { segment_bytes: 10_000, ..lazy() }).await.unwrap();
    assert!(put(&store, b"row", &[7; 11_000]).await.is_err());
    put(&store, b"row", &[7; 9_000]).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn an_append_after_a_flush_reads_the_backend_once_more() {
    let disk = FaultyDisk::new(1);
    let (store, below) = over_faulty(&disk, lazy()).await;
    let batch = |value: &[u8]| cells(b"row", &[(b"\x05\0\0", value)]);
    store.append(&data(), batch(b"one")).await.unwrap();
    store.flush().await.unwrap();
    below.script(Operation::MultiGet, away(1));
    assert!(store.append(&data(), batch(b"two")).await.is_err(), "it cannot be known");
    store.append(&data(), batch(b"two")).await.unwrap();
    // Held by now, so the backend is not asked.
    below.script(Operation::MultiGet, away(1));
    store.append(&data(), batch(b"three")).await.unwrap();
    below.heal();
    let rows = contents(&store, &data()).await;
    assert_eq!(rows[0].1[0].value, "onetwothree");
    store.close().await.unwrap();
}
