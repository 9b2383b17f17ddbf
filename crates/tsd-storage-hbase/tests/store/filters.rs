//! Scans, with filters and without.

use hbase_fake::{FaultKind, InjectedFault};
use tsd_storage::{Scan, Storage, StorageError, Table};

use crate::{
    cells::{data, put},
    fake_cluster::{cluster, store},
    scenarios::filters,
};

#[tokio::test]
async fn filtered_scan_returns_the_matching_rows() {
    let cluster = cluster().await;
    cluster.split_region(&"tsdb".parse().unwrap(), "\0m\n");
    filters::filtered_scan_returns_the_matching_rows(&store(&cluster, "")).await;
}

#[tokio::test]
async fn dropped_scan_is_closed_on_the_server() {
    let cluster = cluster().await;
    cluster.limit_scan_responses(1, 0);
    let store = store(&cluster, "");
    for row in [b"a", b"b", b"c", b"d", b"e"] {
        put(&store, row, b"q", b"", None).await;
    }
    let mut scanner = store.scan(&data(), Scan::default());
    assert!(scanner.next_rows().await.unwrap().is_some());
    drop(scanner);
    for _ in 0..500 {
        if cluster.open_scanners() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{} scanners are still open", cluster.open_scanners());
}

#[tokio::test]
async fn failed_scan_stays_failed() {
    let cluster = cluster().await;
    cluster.limit_scan_responses(1, 0);
    let store = store(&cluster, "");
    for row in [b"a", b"b", b"c"] {
        put(&store, row, b"q", b"", None).await;
    }
    let (class, text) = ("security.AccessDeniedException", "no more");
    cluster.inject(
        InjectedFault::once("Scan", FaultKind::Exception { class, text }).after(2).times(100),
    );
    let mut scanner = store.scan(&data(), Scan { batch_rows: Some(1), ..Scan::default() });
    let mut rows = 0;
    let error = loop {
        match scanner.next_rows().await {
            Ok(batch) => rows += batch.unwrap().len(),
            Err(error) => break error,
        }
    };
    assert!(rows < 3 && matches!(error, StorageError::Backend(_)), "{rows} rows, {error:?}");
    for _ in 0..3 {
        assert!(scanner.next_rows().await.is_err());
    }
    let mut missing = store.scan(&Table::new("missing"), Scan::default());
    for _ in 0..2 {
        let result = missing.next_rows().await;
        assert!(matches!(result, Err(StorageError::NoSuchTable(_))), "{result:?}");
    }
}
