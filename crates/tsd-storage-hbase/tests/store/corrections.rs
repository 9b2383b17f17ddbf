//! Corrections beside flushes and row compactions.

use std::time::Duration;

use hbase_fake::{FaultKind, InjectedFault};
use tsd_storage::{Delete, Storage};

use crate::{
    cells::{cells, data},
    fake_cluster::{cluster, store, store_beside_logs, store_beside_opentsdb},
    scenarios::corrections,
};

#[tokio::test]
async fn held_correction_wins_over_a_compaction() {
    let cluster = cluster().await;
    corrections::held_correction_wins_over_a_compaction(&store(&cluster, "")).await;
}

#[tokio::test]
async fn later_correction_of_another_daemon_is_kept() {
    let cluster = cluster().await;
    corrections::later_correction_of_another_daemon_is_kept(&store(&cluster, "")).await;
}

#[tokio::test]
async fn deleted_points_stay_deleted() {
    let cluster = cluster().await;
    corrections::deleted_points_stay_deleted(&store(&cluster, "")).await;
}

#[tokio::test]
async fn correction_written_during_a_row_compaction_is_kept() {
    let cluster = cluster().await;
    corrections::correction_written_during_a_row_compaction_is_kept(&store(&cluster, "")).await;
}

#[tokio::test]
async fn open_rows_cost_no_read() {
    let cluster = cluster().await;
    let calls = || cluster.calls("Multi") + cluster.calls("Get");
    corrections::open_rows_cost_no_read(&store(&cluster, ""), calls).await;
}

#[tokio::test]
async fn row_that_a_log_may_hold_is_not_compacted() {
    for (age_ms, is_compacted) in [(50_000, false), (70_000, true)] {
        let cluster = cluster().await;
        let store = store_beside_logs(&cluster);
        corrections::row_that_a_log_may_hold_is_not_compacted(&store, age_ms, is_compacted).await;
    }
}

#[tokio::test]
async fn correction_through_another_daemon_wins_over_a_later_flush() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    corrections::correction_through_another_daemon_wins_over_a_later_flush(&store).await;
}

#[tokio::test]
async fn correction_inside_a_compaction_of_opentsdb_is_read_back() {
    let cluster = cluster().await;
    let store = store_beside_opentsdb(&cluster);
    corrections::correction_inside_a_compaction_of_opentsdb_is_read_back(&store).await;
}

#[tokio::test]
async fn later_correction_through_opentsdb_is_not_replaced() {
    let cluster = cluster().await;
    corrections::later_correction_through_opentsdb_is_not_replaced(&store_beside_opentsdb(
        &cluster,
    ))
    .await;
}

#[tokio::test]
async fn deleted_points_are_not_read_back() {
    let cluster = cluster().await;
    corrections::deleted_points_are_not_read_back(&store_beside_opentsdb(&cluster)).await;
}

#[tokio::test]
async fn points_deleted_by_overlapping_compactions_are_read_back() {
    let cluster = cluster().await;
    corrections::points_deleted_by_overlapping_compactions_are_read_back(&store_beside_opentsdb(
        &cluster,
    ))
    .await;
}

#[tokio::test]
async fn points_that_are_deleted_while_they_are_read_back_stay_deleted() {
    let cluster = cluster().await;
    let store = store_beside_opentsdb(&cluster);
    let row = corrections::lose_points_in_overlapping_compactions(&store).await;
    // Another daemon deletes the row when the history was read and before the points are put.
    let delay = FaultKind::Delay(Duration::from_millis(100));
    cluster.inject(InjectedFault::once("Scan", delay));
    let before = cluster.calls("Scan");
    let other = store_beside_opentsdb(&cluster);
    let (table, key) = (data(), row.clone());
    let delete = async {
        while cluster.calls("Scan") == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        other.delete(&table, Delete::Row(key)).await
    };
    let (read_back, deleted) = tokio::join!(store.read_back(), delete);
    read_back.unwrap();
    deleted.unwrap();
    assert_eq!(cells(&store, &row).await, []);
    tokio::time::sleep(Duration::from_millis(5)).await;
    store.read_back().await.unwrap();
    assert_eq!(cells(&store, &row).await, []);
}
