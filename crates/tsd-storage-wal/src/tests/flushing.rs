//! Rotation, flush, close and stop.

use tsd_storage::{Fault, FaultyStorage, Operation, StorageExt};

use super::*;

type FaultyStore = WalStorage<FaultyStorage<MemoryStorage>>;

async fn open_over_faults(
    disk: &FaultyDisk,
    config: WalConfig,
) -> (FaultyStore, Arc<FaultyStorage<MemoryStorage>>) {
    let backend = Arc::new(FaultyStorage::new(memory_backend()));
    let opened = WalStorage::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await;
    (opened.unwrap().0, backend)
}

fn gauge(store: &impl Storage, name: &str) -> f64 {
    store.maintenance().gauges().into_iter().find(|(n, _)| *n == name).unwrap().1
}

fn timeouts(times: usize) -> Vec<Fault> {
    vec![Fault::Error(StorageError::Timeout("backend")); times]
}

#[tokio::test]
async fn close_empties_the_log_and_stop_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let backend = memory_backend();
    let (store, report) = Store::open(small(dir.path()), Arc::clone(&backend)).await.unwrap();
    assert_eq!((report.segments, report.records), (0, 0));
    put(&store, b"a", b"1").await.unwrap();
    put(&store, b"b", b"2").await.unwrap();
    store.stop().await;
    assert!(matches!(put(&store, b"c", b"3").await, Err(StorageError::Closed)));
    assert_eq!(value(&*backend, b"a").await, None, "stopping flushes nothing");

    let (store, report) = Store::open(small(dir.path()), Arc::clone(&backend)).await.unwrap();
    assert_eq!((report.segments, report.records, report.cells), (1, 2, 2));
    assert_eq!(value(&store, b"a").await.unwrap(), "1");
    store.flush().await.unwrap();
    assert_eq!(value(&*backend, b"b").await.unwrap(), "2");
    assert!(gauge(&store, "tsd_wal_log_bytes") < 1.0, "the flushed segments do not count");
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 3, "only lock, state and commit time remain: {names:?}");
    put(&store, b"c", b"3").await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 3, "only lock, state and commit time remain: {names:?}");
}

#[tokio::test]
async fn rows_stay_readable_while_flushes_fail() {
    let disk = FaultyDisk::new(1);
    let (store, backend) = open_over_faults(&disk, lazy()).await;
    put(&store, b"a", b"1").await.unwrap();
    backend.script(Operation::FlushRows, timeouts(2));
    assert!(matches!(store.flush().await, Err(StorageError::Timeout(_))));
    assert_eq!(value(&store, b"a").await.unwrap(), "1");
    put(&store, b"b", b"2").await.unwrap();
    backend.heal();
    store.flush().await.unwrap();
    for row in [b"a", b"b"] {
        assert_eq!(value(&**backend.inner(), row).await, value(&store, row).await);
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn close_without_a_flush_fails_and_keeps_the_log() {
    let disk = FaultyDisk::new(1);
    let (store, backend) = open_over_faults(&disk, lazy()).await;
    put(&store, b"a", b"1").await.unwrap();
    backend.script(Operation::FlushRows, timeouts(1000));
    assert!(store.close().await.is_err());
    let (store, report) = open(&disk, lazy()).await.unwrap();
    assert_eq!(report.records, 1);
    assert_eq!(value(&store, b"a").await.unwrap(), "1");
    store.stop().await;
}

#[tokio::test]
async fn slow_flushes_delay_writes_at_the_memory_bound() {
    const BOUND: usize = 400_000;
    let disk = FaultyDisk::new(1);
    let config = WalConfig { memtable_bytes: BOUND, segment_bytes: 1 << 20, ..lazy() };
    let (store, backend) = open_over_faults(&disk, config).await;
    backend.script(Operation::FlushRows, timeouts(4));
    let write = async |writer: u32| {
        let mut max_bytes = 0.0_f64;
        for i in 0..60_u32 {
            let row = (writer * 1000 + i).to_be_bytes();
            put(&store, &row, &[7; 4000]).await.unwrap();
            max_bytes = max_bytes.max(gauge(&store, "tsd_wal_memtable_bytes"));
        }
        max_bytes
    };
    let max_bytes = futures_util::future::join_all((0..4).map(write)).await;
    let max_bytes = max_bytes.into_iter().fold(0.0, f64::max);
    // A group of four puts may exceed the limit, in blocks of the arena.
    assert!(max_bytes < BOUND as f64 * 1.7, "{max_bytes} bytes");
    store.flush().await.unwrap();
    assert_eq!(contents(&**backend.inner(), &data()).await.len(), 240);
    store.close().await.unwrap();
}

#[tokio::test]
async fn writes_fail_while_the_backends_disk_is_full() {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { memtable_bytes: 100_000, segment_bytes: 1 << 20, ..lazy() };
    let (store, backend) = open_over_faults(&disk, config).await;
    backend.script(Operation::FlushRows, vec![Fault::Error(StorageError::DiskFull); 1000]);
    let mut written = 0_u32;
    let error = loop {
        match put(&store, &written.to_be_bytes(), &[7; 4000]).await {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StorageError::DiskFull), "{error}");
    assert_eq!(contents(&store, &data()).await.len(), written as usize, "reads succeed");
    backend.heal();
    while let Err(error) = put(&store, b"after", b"1").await {
        assert!(matches!(error, StorageError::DiskFull), "{error}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.flush().await.unwrap();
    assert_eq!(contents(&**backend.inner(), &data()).await.len(), written as usize + 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn slow_flushes_delay_writes_at_the_log_bound() {
    const SEGMENT: usize = 4096;
    let disk = FaultyDisk::new(1);
    let config = WalConfig { segment_bytes: SEGMENT as u64, ..lazy() };
    let (store, backend) = open_over_faults(&disk, config).await;
    backend.script(Operation::FlushRows, timeouts(3));
    let column = |i: u8| Column {
        row: Bytes::copy_from_slice(&[i]),
        family: Family::T,
        qualifier: Bytes::from_static(b"n"),
    };
    let write = async |i: u8| {
        let mut max_segments = 0;
        for _ in 0..120 {
            store.increment(&data(), column(i), 1).await.unwrap();
            max_segments = max_segments.max(disk.contents_without("log.state").len());
        }
        max_segments
    };
    let max_segments =
        futures_util::future::join_all((0..12).map(write)).await.into_iter().max().unwrap();
    assert!((3..=18).contains(&max_segments), "{max_segments} segments");
    store.flush().await.unwrap();
    assert_eq!(contents(&**backend.inner(), &data()).await.len(), 12);
    store.close().await.unwrap();
}

#[tokio::test]
async fn aged_rows_are_flushed() {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { max_age: Duration::from_millis(1), ..lazy() };
    let backend = memory_backend();
    let opened = Store::open_in(config, Arc::new(disk), Arc::clone(&backend)).await;
    let (store, _) = opened.unwrap();
    put(&store, b"a", b"1").await.unwrap();
    while value(&*backend, b"a").await.is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn repeated_increments_do_not_fill_the_disk() {
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
    assert_eq!(disk.contents_without("log.state").into_keys().collect::<Vec<_>>(), ["commit-time"]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn scan_during_flushes_returns_every_row_once() {
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
async fn table_that_is_not_logged_bypasses_the_log() {
    let [data, uid] = conformance::tables();
    let disk = FaultyDisk::new(1);
    let backend = memory_backend();
    let config = WalConfig { logged: LoggedTables::Only(vec![data.clone()]), ..lazy() };
    let open = async |config| {
        Store::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await.unwrap().0
    };
    let store = open(config).await;
    store.put(&uid, cells(b"row", &[(b"q", b"v")])).await.unwrap();
    assert!(disk.contents_without("log.state").is_empty());
    assert_eq!(contents(&*backend, &uid).await.len(), 1);
    store.put(&data, cells(b"row", &[(b"q", b"v")])).await.unwrap();
    store.stop().await;
    assert!(contents(&*backend, &data).await.is_empty());

    // The rows of a table that is no longer logged are flushed before the first read.
    let store = open(WalConfig { logged: LoggedTables::Only(Vec::new()), ..lazy() }).await;
    assert_eq!(contents(&store, &data).await.len(), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn log_of_a_missing_table_is_an_error() {
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    put(&store, b"row", b"v").await.unwrap();
    store.stop().await;
    let other = Arc::new(MemoryStorage::new([Table::new("other")]));
    let error = Store::open_in(lazy(), Arc::new(disk), other).await.unwrap_err();
    assert!(matches!(&error, OpenError::NoSuchTable(table) if *table == data()), "{error}");
}

#[tokio::test]
async fn replay_larger_than_memory_is_flushed_meanwhile() {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { segment_bytes: 8 << 20, ..lazy() };
    let (store, _) = open(&disk, config.clone()).await.unwrap();
    for i in 0..300_u32 {
        put(&store, &i.to_be_bytes(), &[7; 4000]).await.unwrap();
    }
    store.stop().await;
    let backend = memory_backend();
    let config = WalConfig { memtable_bytes: 400_000, ..config };
    let opened = Store::open_in(config, Arc::new(disk), Arc::clone(&backend)).await;
    let (store, report) = opened.unwrap();
    assert_eq!(report.records, 300);
    assert!(!contents(&*backend, &data()).await.is_empty());
    assert_eq!(contents(&store, &data()).await.len(), 300);
    store.close().await.unwrap();
}

#[tokio::test]
async fn write_larger_than_a_segment_is_an_error() {
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, WalConfig { segment_bytes: 10_000, ..lazy() }).await.unwrap();
    assert!(put(&store, b"row", &[7; 11_000]).await.is_err());
    put(&store, b"row", &[7; 9_000]).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn append_after_a_flush_reads_the_backend_once() {
    let disk = FaultyDisk::new(1);
    let (store, backend) = open_over_faults(&disk, lazy()).await;
    let batch = |value: &[u8]| cells(b"row", &[(b"\x05\0\0", value)]);
    store.append(&data(), batch(b"one")).await.unwrap();
    store.flush().await.unwrap();
    backend.script(Operation::MultiGet, timeouts(1));
    assert!(store.append(&data(), batch(b"two")).await.is_err(), "the present value is unknown");
    store.append(&data(), batch(b"two")).await.unwrap();
    // The value is in the memtable, so the backend is not read.
    backend.script(Operation::MultiGet, timeouts(1));
    store.append(&data(), batch(b"three")).await.unwrap();
    backend.heal();
    let rows = contents(&store, &data()).await;
    assert_eq!(rows[0].1[0].value, "onetwothree");
    store.close().await.unwrap();
}
