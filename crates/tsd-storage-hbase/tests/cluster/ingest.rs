//! Held rows.

use hbase_fake::{FaultKind, InjectedFault};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Storage, StorageError, Table};

use crate::{
    common::ingest,
    kit::{cluster, store},
};

#[tokio::test]
async fn held_rows_read_the_same_as_single_cells() {
    let cluster = cluster().await;
    let fail = || {
        let (class, text) = ("security.AccessDeniedException", "");
        cluster.inject(
            InjectedFault::once("Multi", FaultKind::RegionException { class, text }).after(1),
        );
        true
    };
    ingest::held_rows_read_the_same_as_single_cells(&store(&cluster, ""), fail).await;
}

#[tokio::test]
async fn the_points_of_a_row_are_one_column() {
    let cluster = cluster().await;
    ingest::the_points_of_a_row_are_one_column(&store(&cluster, "")).await;
}

#[tokio::test]
async fn deletes_reach_up_to_their_times_and_no_further() {
    let cluster = cluster().await;
    ingest::deletes_reach_up_to_their_times_and_no_further(&store(&cluster, "")).await;
}

#[tokio::test]
async fn a_cell_that_is_too_large_is_refused_for_good_and_others_are_not() {
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
    let error = put("a coprocessor says no").await;
    assert!(matches!(error, StorageError::Backend(_)) && !error.is_permanent(), "{error:?}");
}
