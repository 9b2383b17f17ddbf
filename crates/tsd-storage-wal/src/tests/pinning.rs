//! Files are pinned between two memtables, while flushes are paused.

use std::{
    future::Future,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use tsd_storage::{HookedStorage, OperationHook, StorageExt};

use super::*;

/// Slow flushes and slow pins. Each pin fails with the contents of the memory store at that time.
#[derive(Debug)]
struct SlowHook {
    store: Arc<MemoryStorage>,
    flushes: AtomicUsize,
    is_pinning: AtomicBool,
    /// Number of flushes that ran while files were pinned.
    overlaps: AtomicUsize,
}

fn row(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Number of rows of a table.
async fn rows(store: &MemoryStorage, table: &Table) -> usize {
    contents(store, table).await.len()
}

impl OperationHook for SlowHook {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        match operation {
            Operation::FlushRows => {
                self.flushes.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                let flushed = call.await;
                if self.is_pinning.load(SeqCst) {
                    self.overlaps.fetch_add(1, SeqCst);
                }
                flushed
            }
            Operation::PinFiles => {
                self.is_pinning.store(true, SeqCst);
                let [data, uid] = conformance::tables();
                let uids = rows(&self.store, &uid).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                let points = rows(&self.store, &data).await;
                self.is_pinning.store(false, SeqCst);
                Err(StorageError::Backend(format!("{uids} {points}").into()))
            }
            _ => call.await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_tables_are_pinned_at_one_commit_and_no_flush_runs_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let memory = memory_backend();
    let hook = SlowHook {
        store: Arc::clone(&memory),
        flushes: AtomicUsize::new(0),
        is_pinning: AtomicBool::new(false),
        overlaps: AtomicUsize::new(0),
    };
    let backend = Arc::new(HookedStorage::with_hook(hook, memory));
    // Each put fills nearly a whole memtable.
    let config = WalConfig { memtable_bytes: 4_000, ..small(dir.path()) };
    let store = Arc::new(WalStorage::open(config, Arc::clone(&backend)).await.unwrap().0);
    let (done, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (store, done, stop) = (Arc::clone(&store), Arc::clone(&done), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut number = 0;
            while !stop.load(SeqCst) {
                // In the order of UIDs: first the name, then the data that uses it.
                for table in conformance::tables().iter().rev() {
                    let batch = cells(&row(number), &[(b"q", &[7; 100])]);
                    store.put(table, batch).await.unwrap();
                }
                number += 1;
                done.store(number as usize, SeqCst);
            }
        })
    };
    let hook = backend.hook();
    for _ in 0..12 {
        let (puts, flushes) = (done.load(SeqCst), hook.flushes.load(SeqCst));
        while done.load(SeqCst) < puts + 20 || hook.flushes.load(SeqCst) < flushes + 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let before = done.load(SeqCst);
        let pinned = store.maintenance().pin_files().await.unwrap_err().to_string();
        let (uids, points) = pinned.split_once(' ').unwrap();
        let (uids, points): (usize, usize) = (uids.parse().unwrap(), points.parse().unwrap());
        assert!(points >= before, "{points} of {before}");
        assert!(uids == points || uids == points + 1, "{uids} names, {points} rows");
    }
    assert_eq!(hook.overlaps.load(SeqCst), 0);
    stop.store(true, SeqCst);
    writer.await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn files_are_not_pinned_while_a_flush_fails() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Arc::new(FaultyStorage::new(memory_backend()));
    let store = WalStorage::open(small(dir.path()), Arc::clone(&backend)).await.unwrap().0;
    put(&store, b"a", b"1").await.unwrap();
    backend.script(Operation::FlushRows, vec![Fault::Error(StorageError::DiskFull); 2]);
    assert!(matches!(store.maintenance().pin_files().await, Err(StorageError::DiskFull)));
    // Later, the pin reaches the memory store, which has no files and therefore rejects it.
    let refused = loop {
        match store.maintenance().pin_files().await.unwrap_err() {
            StorageError::Rejected(text) => break text,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(refused.contains("takes no snapshots"), "{refused}");
    assert_eq!(value(&*backend, b"a").await.unwrap(), "1");
    store.close().await.unwrap();
}
