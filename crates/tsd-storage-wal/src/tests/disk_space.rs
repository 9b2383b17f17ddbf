//! The reserve of the disk, and a disk that other processes fill.

use std::sync::atomic::{AtomicU64, Ordering};

use tsd_files::DiskSpace;
use tsd_storage::{HealthImpact, StorageExt, StoreComponent};

use super::*;

const RESERVE: u64 = 10 << 20;

type FaultyStore = WalStorage<FaultyStorage<MemoryStorage>>;

/// A disk with this many free bytes.
fn disk_with(free: &Arc<AtomicU64>) -> Arc<DiskSpace> {
    let free = Arc::clone(free);
    Arc::new(DiskSpace::with_probe("/data", RESERVE, move || Ok(free.load(Ordering::Relaxed))))
}

async fn open_on(
    free: &Arc<AtomicU64>,
    config: WalConfig,
) -> (FaultyStore, Arc<FaultyStorage<MemoryStorage>>) {
    let backend = Arc::new(FaultyStorage::new(memory_backend()));
    let config = WalConfig { space: Some(disk_with(free)), ..config };
    let disk = Arc::new(FaultyDisk::new(1));
    (WalStorage::open_in(config, disk, Arc::clone(&backend)).await.unwrap().0, backend)
}

fn log_bytes(store: &impl Storage) -> u64 {
    store
        .maintenance()
        .gauges()
        .into_iter()
        .find(|(name, _)| *name == "tsd_wal_log_bytes")
        .unwrap()
        .1 as u64
}

#[tokio::test]
async fn writes_keep_the_reserve_and_deletes_may_use_it() {
    let free = Arc::new(AtomicU64::new(1 << 30));
    for backend in [BackendSharing::Exclusive, BackendSharing::MultiWriter] {
        let (store, _) = open_on(&free, WalConfig { backend, ..lazy() }).await;
        put(&store, b"before", b"1").await.unwrap();
        put(&store, b"gone", b"1").await.unwrap();
        free.store(RESERVE, Ordering::Relaxed);
        for _ in 0..3 {
            let rejected = put(&store, b"full", b"2").await;
            assert!(matches!(rejected, Err(StorageError::DiskFull)), "{rejected:?}");
        }
        let [problem] = &store.maintenance().health()[..] else { panic!("one problem") };
        assert_eq!(
            (problem.component, problem.impact),
            (StoreComponent::Disk, HealthImpact::WritesRejected)
        );
        assert!(problem.reason.contains("tsd.storage.reserve"), "{}", problem.reason);
        store.delete(&data(), Delete::Row(Bytes::from_static(b"gone"))).await.unwrap();
        assert_eq!(value(&store, b"gone").await, None);
        assert_eq!(value(&store, b"before").await.unwrap(), "1");
        // Recovers without a restart.
        free.store(1 << 30, Ordering::Relaxed);
        put(&store, b"after", b"3").await.unwrap();
        assert!(store.maintenance().health().is_empty());
        assert_eq!(value(&store, b"full").await, None);
        store.stop().await;
    }
}

#[tokio::test]
async fn log_leaves_room_for_the_flush_of_what_it_holds() {
    const USABLE: u64 = 8 << 20;
    let free = Arc::new(AtomicU64::new(RESERVE + USABLE));
    let (store, backend) = open_on(&free, WalConfig { segment_bytes: 64 << 20, ..lazy() }).await;
    let full = vec![Fault::Error(StorageError::DiskFull); 100_000];
    backend.script(Operation::FlushRows, full);
    let value_bytes = vec![7; 64 << 10];
    let mut stored: u32 = 0;
    let rejected = loop {
        match put(&store, &stored.to_be_bytes(), &value_bytes).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(rejected, StorageError::DiskFull), "{rejected:?}");
    assert!(stored > 0);
    let held = log_bytes(&store);
    assert!(held <= USABLE / 2, "{held} bytes are in the log, and their flush needs as many");
    // The flush frees the log, and writes resume.
    backend.heal();
    while put(&store, b"after", b"1").await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for n in 0..stored {
        assert!(value(&store, &n.to_be_bytes()).await.is_some(), "{n}");
    }
    store.stop().await;
}

#[tokio::test]
async fn writes_wait_for_the_first_flush_after_space_was_freed() {
    let free = Arc::new(AtomicU64::new(1 << 30));
    let bounds = WalConfig { memtable_bytes: 1 << 20, segment_bytes: 1 << 20, ..lazy() };
    let (store, backend) = open_on(&free, bounds).await;
    let value_bytes = vec![7; 16 << 10];
    let mut stored: u32 = 0;
    for _ in 0..2 {
        // Flushes find a full disk; memory fills until writes are rejected.
        backend.script(Operation::FlushRows, vec![Fault::Error(StorageError::DiskFull); 100_000]);
        let rejected = loop {
            match put(&store, &stored.to_be_bytes(), &value_bytes).await {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(rejected, StorageError::DiskFull), "{rejected:?}");
        free.store(RESERVE, Ordering::Relaxed);
        // Waits until the pause between two attempts is long.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        // Space is freed, but the flush is not retried at once.
        backend.heal();
        free.store(1 << 30, Ordering::Relaxed);
        for _ in 0..200 {
            put(&store, &stored.to_be_bytes(), &value_bytes).await.unwrap();
            stored += 1;
        }
    }
    for n in 0..stored {
        assert!(value(&store, &n.to_be_bytes()).await.is_some(), "{n}");
    }
    store.stop().await;
}

#[tokio::test]
async fn deletes_are_neither_stalled_nor_rejected_while_memory_is_full_and_flushes_fail() {
    let free = Arc::new(AtomicU64::new(1 << 40));
    for error in [StorageError::DiskFull, StorageError::Throttled("LSM compaction is behind")] {
        let bounds = WalConfig { memtable_bytes: 1 << 20, segment_bytes: 1 << 20, ..lazy() };
        let (store, backend) = open_on(&free, bounds).await;
        backend.script(Operation::FlushRows, vec![Fault::Error(error.clone()); 100_000]);
        let value_bytes = vec![7; 16 << 10];
        let mut stored: u32 = 0;
        let rejected = loop {
            match put(&store, &stored.to_be_bytes(), &value_bytes).await {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(rejected.is_transient(), "{rejected:?}");
        let is_full = matches!(error, StorageError::DiskFull);
        assert_eq!(matches!(rejected, StorageError::DiskFull), is_full, "{rejected:?}");
        for n in 0..stored {
            let row = Bytes::copy_from_slice(&n.to_be_bytes());
            store.delete(&data(), Delete::Row(row)).await.unwrap();
        }
        assert!(contents(&store, &data()).await.is_empty());
        store.stop().await;
    }
}

/// Issue 37.
#[tokio::test]
async fn health_does_not_flap_at_the_edge_of_the_reserve() {
    const EDGE: u64 = RESERVE + (6 << 20);
    let free = Arc::new(AtomicU64::new(EDGE + 1));
    let (store, _) = open_on(&free, lazy()).await;
    assert_eq!(store.maintenance().health(), []);
    for _ in 0..50 {
        for bytes in [EDGE - 1, EDGE, EDGE + 4_096] {
            free.store(bytes, Ordering::Relaxed);
            let [problem] = &store.maintenance().health()[..] else {
                panic!("no problem with {bytes}")
            };
            assert_eq!(problem.component, StoreComponent::Disk);
        }
    }
    free.store(EDGE + (1 << 20), Ordering::Relaxed);
    assert_eq!(store.maintenance().health(), []);
    free.store(EDGE, Ordering::Relaxed);
    assert_eq!(store.maintenance().health(), []);
    store.stop().await;
}
