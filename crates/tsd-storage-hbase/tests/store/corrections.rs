//! Corrections during flushes and row compactions.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use hbase_fake::{FaultKind, InjectedFault};
use tsd_storage::{Delete, StorageExt, system_clock_ms};

use crate::{
    cells::{cells, data, put},
    fake_cluster::{cluster, store, store_beside_logs, store_beside_opentsdb, store_with_clock},
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
async fn late_flush_wins_over_a_row_compaction() {
    for is_forgotten in [false, true] {
        let cluster = cluster().await;
        let flush = || {
            if is_forgotten {
                cluster.flush_memstores(false);
            }
        };
        corrections::late_flush_wins_over_a_row_compaction(&store(&cluster, ""), flush).await;
    }
}

#[tokio::test]
async fn flush_of_the_same_column_stops_a_row_compaction() {
    let cluster = cluster().await;
    corrections::flush_of_the_same_column_stops_a_row_compaction(&store(&cluster, "")).await;
}

#[tokio::test]
async fn rows_are_compacted_on_servers_that_check_no_conditions() {
    let cluster = cluster().await;
    cluster.set_version("2.3.7");
    corrections::late_flush_wins_over_a_row_compaction(&store(&cluster, ""), || {}).await;
}

#[tokio::test]
async fn flush_during_a_row_compaction_is_kept() {
    let cluster = cluster().await;
    corrections::flush_during_a_row_compaction_is_kept(&store(&cluster, "")).await;
}

/// Time of the store of the test below.
static NOW_MS: AtomicI64 = AtomicI64::new(0);

#[tokio::test]
async fn put_that_is_executed_late_wins_over_a_row_compaction() {
    for took_ms in [0, 1_000] {
        let cluster = cluster().await;
        let stamp_ms = system_clock_ms() - 60_000;
        let row = corrections::put_behind_a_row_compaction(&store(&cluster, ""), stamp_ms).await;
        NOW_MS.store(stamp_ms, Ordering::SeqCst);
        let late = store_with_clock(&cluster, || NOW_MS.load(Ordering::SeqCst));
        cluster.inject(InjectedFault::once("Multi", FaultKind::Delay(Duration::from_millis(100))));
        let before = cluster.calls("Multi");
        let pass_time = async {
            while cluster.calls("Multi") == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            NOW_MS.fetch_add(took_ms, Ordering::SeqCst);
        };
        tokio::join!(put(&late, &row, &[0, 0], &[7], None), pass_time);
        let read = corrections::values_of_the_row(&late).await;
        // A write that is not late counts as older than the column.
        assert_eq!(read, [if took_ms > 0 { 7 } else { 5 }, 6]);
    }
}

#[tokio::test]
async fn flush_leaves_rows_that_others_rewrite_to_the_second_read_back() {
    let cluster = cluster().await;
    let store = store_beside_opentsdb(&cluster);
    let since = corrections::compact_before_a_flush(&store).await;
    let start = cluster.calls("Scan");
    corrections::flush_correction(&store, since).await;
    // The store has read the history of the row once, although it has put a point again.
    assert_eq!(cluster.calls("Scan"), start + 1);
    tokio::time::sleep(Duration::from_millis(5)).await;
    store.read_back().await.unwrap();
    assert!(cluster.calls("Scan") > start + 1);
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
async fn correction_wins_over_a_compacted_value_that_hbase_has_forgotten() {
    let cluster = cluster().await;
    let store = store_beside_opentsdb(&cluster);
    let flush_regions = || cluster.flush_memstores(false);
    corrections::correction_wins_over_a_compacted_value_that_hbase_has_forgotten(
        &store,
        flush_regions,
    )
    .await;
}

#[tokio::test]
async fn later_flush_stays_after_a_major_compaction() {
    let cluster = cluster().await;
    let [first, second, third] = [(); 3].map(|()| store_beside_opentsdb(&cluster));
    let compact_regions = || cluster.major_compact();
    corrections::later_flush_stays_after_a_major_compaction(
        [&first, &second, &third],
        compact_regions,
    )
    .await;
}

#[tokio::test]
async fn deleted_row_stays_deleted_after_a_major_compaction() {
    let cluster = cluster().await;
    let [first, second] = [(); 2].map(|()| store_beside_opentsdb(&cluster));
    let compact_regions = || cluster.major_compact();
    corrections::deleted_row_stays_deleted_after_a_major_compaction(
        [&first, &second],
        compact_regions,
    )
    .await;
}

#[tokio::test]
async fn repeated_values_of_a_later_flush_are_kept() {
    let cluster = cluster().await;
    corrections::repeated_values_of_a_later_flush_are_kept(&store_beside_opentsdb(&cluster)).await;
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
    // Another daemon deletes the row after the history was read and before the points are put.
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
