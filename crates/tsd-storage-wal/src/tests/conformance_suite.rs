//! Runs the conformance suite of storages with several configurations.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

async fn run(change: impl Fn(WalConfig) -> WalConfig) {
    let dir = tempfile::tempdir().unwrap();
    let number = AtomicU32::new(0);
    let make = async || {
        let directory = dir.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        let backend = Arc::new(MemoryStorage::new(conformance::tables()));
        let config = WalConfig { clock: tsd_storage::system_clock_ms, ..small(&directory) };
        let (store, _) = Store::open(change(config), backend).await.unwrap();
        Arc::new(store)
    };
    conformance::run_all(make).await;
}

#[tokio::test]
async fn passes_with_all_tables_logged() {
    run(|config| config).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_in_a_multi_threaded_runtime() {
    run(|config| config).await;
}

#[tokio::test]
async fn passes_without_a_hold_time() {
    run(|config| WalConfig { max_age: Duration::ZERO, ..config }).await;
}

#[tokio::test]
async fn passes_when_every_commit_fills_the_memtable() {
    run(|config| WalConfig { memtable_bytes: 1, ..config }).await;
}

#[tokio::test]
async fn passes_with_the_smallest_queue() {
    run(|config| WalConfig { budget: ByteBudget::new(1), ..config }).await;
}

#[tokio::test]
async fn passes_with_no_table_logged() {
    run(|config| WalConfig { logged: LoggedTables::Only(Vec::new()), ..config }).await;
}

#[tokio::test]
async fn passes_with_one_table_logged() {
    let [data, _] = conformance::tables();
    run(|config| WalConfig { logged: LoggedTables::Only(vec![data.clone()]), ..config }).await;
}
