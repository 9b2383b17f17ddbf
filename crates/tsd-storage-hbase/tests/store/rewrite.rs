//! Row compactions.

use std::time::Duration;

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::SERVER_TIME;
use tsd_model::{MergeRule, from_hex, plan_row_compaction};
use tsd_storage::{Delete, ReadVersion, RowRewrite, StorageError, StorageExt};
use tsd_storage_hbase::HBaseStorage;

use crate::{
    cells::{bytes, cells, data, put},
    fake_cluster::{cluster, store},
    scenarios::rewrite,
};

#[tokio::test]
async fn cells_written_since_the_read_are_kept() {
    let cluster = cluster().await;
    rewrite::cells_written_since_the_read_are_kept(&store(&cluster, "")).await;
}

#[tokio::test]
async fn hidden_column_is_put_again_before_deletes() {
    let cluster = cluster().await;
    rewrite::hidden_column_is_put_again_before_deletes(&store(&cluster, "")).await;
}

#[tokio::test]
async fn row_that_was_deleted_since_the_read_stays_deleted() {
    let cluster = cluster().await;
    rewrite::row_that_was_deleted_since_the_read_stays_deleted(&store(&cluster, "")).await;
}

/// Deletes the row, and compacts it after the delete has read the row and before the delete writes its
/// marker. The first read of the compaction takes `delay_ms`.
async fn compact_during_a_delete(
    cluster: &FakeCluster,
    store: &HBaseStorage,
    rewrite: RowRewrite,
    delay_ms: u64,
) {
    // Below the time limit of calls.
    for delay_ms in [100, delay_ms] {
        let delay = FaultKind::Delay(Duration::from_millis(delay_ms));
        cluster.inject(InjectedFault::once("Get", delay));
    }
    let before = cluster.calls("Get");
    let row = rewrite.row.clone();
    let (table, other) = (data(), data());
    let compact = async {
        while cluster.calls("Get") == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.rewrite_row(&table, rewrite).await
    };
    let (deleted, compacted) =
        tokio::join!(store.delete(&other, Delete::Row(row.clone())), compact);
    deleted.unwrap();
    assert!(matches!(compacted, Ok(()) | Err(StorageError::Changed)), "{compacted:?}");
    assert_eq!(cells(store, &row).await, []);
}

#[tokio::test]
async fn delete_hides_a_column_that_a_compaction_puts_again_meanwhile() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    put(&store, b"row", b"1", b"1", Some(10)).await;
    // A compaction of OpenTSDB has deleted a column with the same qualifier.
    let marker = hbase_rs::Delete::try_new(bytes(b"row")).unwrap();
    let marker = marker.column(&b"t"[..], b"both", SERVER_TIME).unwrap();
    store.client().table("tsdb".parse().unwrap()).mutate(marker).await.unwrap();
    compact_during_a_delete(&cluster, &store, rewrite::rewrite(10, &[(b"1", 10)]), 0).await;
}

#[tokio::test]
async fn deleted_correction_is_not_put_again_by_a_compaction() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    let row = bytes(from_hex(b"00000150E22700000001000001").unwrap());
    put(&store, &row, &[0, 0], &[5], Some(10)).await;
    put(&store, &row, &[0, 0x10], &[6], Some(20)).await;
    let plan = plan_row_compaction(&row, &cells(&store, &row).await, MergeRule::Newest).unwrap();
    // The compacted column supersedes a correction that was flushed after the read.
    put(&store, &row, &[0, 1], &[0, 7], Some(15)).await;
    let read = ReadVersion::default();
    let rewrite = RowRewrite {
        row,
        put: plan.put,
        superseded_ms: plan.superseded_ms,
        delete: plan.delete,
        read,
        whole_row: false,
    };
    // The compaction gets its read when the row is deleted.
    compact_during_a_delete(&cluster, &store, rewrite, 250).await;
}
