//! Trims a log while it is written. Trimmed records must not come back.

use std::time::Duration;

use hbase_rs::{Get, Put};
use tsd_cluster::{LogKeys, Membership, SegmentId};
use tsd_cluster_log::ClusterLogConfig;
use tsd_storage::{Storage, system_clock_ms};

use crate::node::{World, delete, gauge, put, value, wait_until};

/// Bytes that do not compress.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_segments_are_removed_after_the_flush_of_their_rows() {
    let world = World::start().await;
    let node = world.open().await;
    let long = noise(1, 1 << 20);
    for round in 0..3_u8 {
        for row in 0..12_u8 {
            put(&node.store, &[round, row], &long).await.unwrap();
        }
        node.store.flush().await.unwrap();
    }
    // 36 MB in all, of which the last segment is kept.
    wait_until(|| gauge(&node, "tsd_cluster_log_kept_bytes") < 20 << 20).await;
    drop(node);
    let node = world.open().await;
    assert_eq!(node.report.records, 0);
    assert_eq!(value(&node.store, &[0, 0]).await.as_deref(), Some(&long[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn corrections_and_deletes_are_not_undone_by_a_replay() {
    let world = World::start().await;
    let mut node = world.open().await;
    for round in 0..5_u8 {
        for row in 0..10_u8 {
            put(&node.store, &[row], &[round, 1]).await.unwrap();
            put(&node.store, &[row], &[round, 2]).await.unwrap();
            if row % 3 == 0 {
                delete(&node.store, &[row]).await.unwrap();
            }
            if row == 5 {
                node.store.flush().await.unwrap();
            }
        }
        drop(node);
        node = world.open().await;
        for row in 0..10_u8 {
            let expected = if row % 3 == 0 { None } else { Some(&[round, 2][..]) };
            let found = value(&node.store, &[row]).await;
            assert_eq!(found.as_deref(), expected, "round {round} row {row}");
        }
    }
    node.store.flush().await.unwrap();
    for row in 0..10_u8 {
        let expected = if row % 3 == 0 { None } else { Some(&[4, 2][..]) };
        assert_eq!(value(&*world.backend, &[row]).await.as_deref(), expected);
    }
}

/// The row has a token of a removed log, as a request that is executed late leaves it.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_segment_whose_log_is_gone_is_removed_and_no_other_one() {
    let world = World::start().await;
    let config = ClusterLogConfig { orphan_age: Duration::from_millis(100), ..World::config() };
    let node = world.open_with(config, system_clock_ms).await.unwrap();
    put(&node.store, b"row", b"1").await.unwrap();
    let keys = LogKeys::new(node.log.cluster(), 2);
    let (gone, own) = (1_000, node.log.this());
    let row =
        |incarnation| keys.segment(SegmentId { incarnation, stream: 0, number: 9, stripe: 1 });
    let table = world.client().table("tsdb-log".parse().unwrap());
    for incarnation in [gone, own] {
        let token = [&b"O"[..], &incarnation.to_be_bytes(), &1_u32.to_be_bytes()].concat();
        let token = Put::try_new(row(incarnation)).unwrap().cell(b"s", b"t", 1, &token).unwrap();
        table.mutate(token).await.unwrap();
    }
    let is_there = async |incarnation| {
        let found = table.get(&Get::try_new(row(incarnation)).unwrap()).await.unwrap();
        found.value(b"s", b"t").is_some()
    };
    while is_there(gone).await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(is_there(own).await, "it may be opened now");
    drop(node);
    let node = world.open().await;
    assert_eq!(value(&node.store, b"row").await.as_deref(), Some(&b"1"[..]));
}
