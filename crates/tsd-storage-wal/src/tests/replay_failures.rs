//! A backend that is busy or full while the log is replayed.

use tsd_storage::{HealthImpact, StoreComponent};

use super::*;

const ROWS: u32 = 300;

/// An unflushed log that is larger than `memtable_bytes`.
async fn killed_log(memtable_bytes: usize) -> (FaultyDisk, WalConfig) {
    let disk = FaultyDisk::new(1);
    let config = WalConfig { segment_bytes: 8 << 20, ..lazy() };
    let (store, _) = open(&disk, config.clone()).await.unwrap();
    for i in 0..ROWS {
        put(&store, &i.to_be_bytes(), &[7; 4000]).await.unwrap();
    }
    store.stop().await;
    (disk, WalConfig { memtable_bytes, ..config })
}

async fn check(error: StorageError, component: StoreComponent, reason: &str) {
    for memtable_bytes in [400_000, 64 << 20] {
        let (disk, config) = killed_log(memtable_bytes).await;
        let backend = Arc::new(FaultyStorage::new(memory_backend()));
        backend.script(Operation::FlushRows, vec![Fault::Error(error.clone()); 100_000]);
        backend.script(Operation::TableExists, [Fault::Error(error.clone())]);
        let opened =
            WalStorage::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await;
        let (store, report) = opened.unwrap();
        assert_eq!(report.records, u64::from(ROWS));
        assert_eq!(contents(&store, &data()).await.len(), ROWS as usize, "reads are served");
        let problem = loop {
            match store
                .maintenance()
                .health()
                .into_iter()
                .find(|problem| problem.component == component)
            {
                Some(problem) => break problem,
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert!(problem.reason.contains(reason), "{}", problem.reason);
        let is_full = memtable_bytes == 400_000;
        let impact = if is_full { HealthImpact::WritesRejected } else { HealthImpact::Degraded };
        assert_eq!(problem.impact, impact);
        // The next start finds all rows, too.
        assert!(store.flush().await.is_err());
        backend.heal();
        while store.flush().await.is_err() {}
        assert_eq!(store.maintenance().health(), []);
        assert_eq!(contents(&**backend.inner(), &data()).await.len(), ROWS as usize);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn store_opens_for_reads_while_the_disk_is_full() {
    check(StorageError::DiskFull, StoreComponent::Disk, "no space left").await;
}

#[tokio::test]
async fn store_opens_for_reads_while_the_backend_is_busy() {
    check(StorageError::Throttled("busy"), StoreComponent::Flush, "busy").await;
}

#[tokio::test]
async fn store_opens_for_reads_while_the_backend_is_unavailable() {
    check(StorageError::Unavailable("gone".into()), StoreComponent::Flush, "gone").await;
    check(StorageError::Timeout("no response"), StoreComponent::Flush, "no response").await;
}
