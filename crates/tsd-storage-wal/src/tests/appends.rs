//! Appends log only the added bytes, and a replay gives the same columns.

use super::*;
use tsd_storage::StorageExt;

const POINTS: u16 = 3_600;

fn point(number: u16) -> [u8; 10] {
    let mut point = [7; 10];
    point[..2].copy_from_slice(&number.to_be_bytes());
    point
}

async fn append(store: &impl Storage, number: u16) {
    let batch = cells(b"row", &[(b"\x05\0\0", &point(number))]);
    store.append(&data(), batch).await.unwrap();
}

async fn column(store: &impl Storage) -> Vec<u8> {
    let rows = contents(store, &data()).await;
    rows[0].1[0].value.to_vec()
}

fn log_bytes(store: &impl Storage) -> f64 {
    let gauges = store.maintenance().gauges();
    gauges.into_iter().find(|(name, _)| *name == "tsd_wal_log_bytes").unwrap().1
}

#[tokio::test]
async fn append_logs_the_added_bytes_not_the_column() {
    let (disk, backend) = (FaultyDisk::new(1), memory_backend());
    let config = WalConfig { segment_bytes: 4 << 20, memtable_bytes: 1 << 30, ..lazy() };
    let open = async |disk: &FaultyDisk| {
        let dir = Arc::new(disk.clone());
        Store::open_in(config.clone(), dir, Arc::clone(&backend)).await.unwrap().0
    };
    let expected: Vec<u8> = (0..POINTS).flat_map(point).collect();
    let store = open(&disk).await;
    for number in 0..POINTS / 2 {
        append(&store, number).await;
    }
    // The next append logs the whole column, because the log of the memtable does not have it.
    store.flush().await.unwrap();
    for number in POINTS / 2..POINTS {
        append(&store, number).await;
    }
    assert_eq!(column(&store).await, expected);
    // After a record of 18 000 bytes, a record of less than 200 bytes adds 10 bytes.
    let bytes = log_bytes(&store);
    assert!(bytes < f64::from(POINTS / 2) * 200.0 + 20_000.0, "{bytes} bytes");
    store.stop().await;
    for disk in [disk.after_kill(), disk.after_power_cut()] {
        // Replayed, then replayed again over the rows that the first replay flushed.
        for _ in 0..2 {
            let disk = disk.after_kill();
            let store = open(&disk).await;
            assert_eq!(column(&store).await, expected);
            store.flush().await.unwrap();
            assert_eq!(column(&*backend).await, expected);
            append(&store, 9).await;
            assert_eq!(column(&store).await.len(), expected.len() + 10);
            store.stop().await;
        }
    }
}

#[tokio::test]
async fn append_in_small_memtables_is_replayed_from_any_of_them() {
    let (disk, backend) = (FaultyDisk::new(1), memory_backend());
    let open = async |disk: &FaultyDisk, memtable_bytes| {
        let config = WalConfig { segment_bytes: 64 * 1024, memtable_bytes, ..lazy() };
        Store::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await.unwrap().0
    };
    let mut expected = Vec::new();
    let mut disk = disk;
    for number in 0..120 {
        // Each restart replays with different boundaries of memtables.
        if number % 20 == 0 {
            disk = disk.after_kill();
        }
        let store = open(&disk, if number % 2 == 0 { 1 << 30 } else { 1 }).await;
        append(&store, number).await;
        append(&store, number).await;
        expected.extend([point(number), point(number)].concat());
        assert_eq!(column(&store).await, expected, "{number}");
        store.stop().await;
    }
}
