//! Flushes of memtable rows, and cells that HBase rejects.

use bytes::Bytes;
use hbase_fake::{FaultKind, InjectedFault};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Column, StorageError, StorageExt, Table};

use crate::{
    fake_cluster::{cluster, store},
    scenarios::flush,
};

#[tokio::test]
async fn flushed_rows_read_the_same_as_single_cells() {
    let cluster = cluster().await;
    let fail = || {
        let (class, text) = ("security.AccessDeniedException", "");
        cluster.inject(
            InjectedFault::once("Multi", FaultKind::RegionException { class, text }).after(1),
        );
        true
    };
    flush::flushed_rows_read_the_same_as_single_cells(&store(&cluster, ""), fail).await;
}

#[tokio::test]
async fn points_of_a_row_are_one_column() {
    let cluster = cluster().await;
    flush::points_of_a_row_are_one_column(&store(&cluster, "")).await;
}

#[tokio::test]
async fn deletes_remove_versions_up_to_their_timestamps() {
    let cluster = cluster().await;
    flush::deletes_remove_versions_up_to_their_timestamps(&store(&cluster, "")).await;
}

#[tokio::test]
async fn only_too_large_cells_are_rejected_permanently() {
    let put = async |text| {
        let cluster = cluster().await;
        let class = "DoNotRetryIOException";
        cluster.inject(InjectedFault::once("Multi", FaultKind::ActionException { class, text }));
        let cell = CellRef { family: Family::T, qualifier: b"q", value: b"v", timestamp_ms: None };
        let batch = CellBatch::single(b"row", cell).unwrap();
        store(&cluster, "").put(&Table::new("tsdb"), batch).await.unwrap_err()
    };
    let text =
        "Cell[row/t:q/1/Put/vlen=10485760] with size 10485800 exceeds limit of 10485760 bytes";
    let error = put(text).await;
    assert!(matches!(error, StorageError::Rejected(_)) && error.is_permanent(), "{error:?}");
    // The client does not even send it.
    let value = Bytes::from(vec![0; 10 << 20]);
    let cell = CellRef { family: Family::T, qualifier: b"q", value: &value, timestamp_ms: None };
    let batch = CellBatch::single(b"row", cell).unwrap();
    let (cluster, table) = (cluster().await, Table::new("tsdb"));
    let store = store(&cluster, "");
    let put_error = store.put(&table, batch).await.unwrap_err();
    let (row, qualifier) = (Bytes::from_static(b"row"), Bytes::from_static(b"q"));
    let column = Column { row, family: Family::T, qualifier };
    let set_error = store.compare_and_set(&table, column, None, value).await.unwrap_err();
    for error in [put_error, set_error] {
        assert!(matches!(error, StorageError::Rejected(_)) && error.is_permanent(), "{error:?}");
    }
    let error = put("a coprocessor says no").await;
    assert!(matches!(error, StorageError::Backend(_)) && !error.is_permanent(), "{error:?}");
}
