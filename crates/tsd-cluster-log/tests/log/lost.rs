//! The log table is dropped, emptied or created anew.

use std::time::Duration;

use tsd_cluster_log::ClusterLogConfig;
use tsd_storage::{Storage, StorageError};

use crate::node::{LogNode, World, now_ms, put, value, wait_until};

fn config() -> ClusterLogConfig {
    ClusterLogConfig {
        heartbeat: Duration::from_millis(50),
        suspect_after: Duration::from_hours(1),
        ..World::config()
    }
}

async fn open(world: &World) -> LogNode {
    world.open_with(config(), now_ms).await.unwrap()
}

async fn wait_until_lost(node: &LogNode) {
    wait_until(|| node.log.loss().is_some()).await;
}

/// Checks that an owner refuses writes and flushes the rows that it has acknowledged.
async fn check_owner(world: &World, node: &LogNode, reason: &str) {
    let error = put(&node.store, b"later", b"1").await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains(reason), "{error}");
    assert!(!node.log.is_fenced());
    node.store.flush().await.unwrap();
    assert_eq!(value(&*world.backend, b"row").await.as_deref(), Some(&b"1"[..]));
    assert_eq!(value(&*world.backend, b"later").await, None);
    assert!(node.log.end().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_flushes_its_rows_when_the_table_is_dropped() {
    let world = World::start().await;
    let node = open(&world).await;
    put(&node.store, b"row", b"1").await.unwrap();
    world.cluster.drop_table(&"tsdb-log".parse().unwrap());
    wait_until_lost(&node).await;
    check_owner(&world, &node, "does not exist any more").await;
    let next = open(&world).await;
    assert_eq!(next.report.records, 0);
    put(&next.store, b"row", b"2").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_flushes_its_rows_when_the_table_is_emptied() {
    let world = World::start().await;
    let node = open(&world).await;
    put(&node.store, b"row", b"1").await.unwrap();
    world.cluster.truncate_table(&"tsdb-log".parse().unwrap());
    wait_until_lost(&node).await;
    check_owner(&world, &node, "was emptied or created anew").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_flushes_its_rows_when_another_node_has_created_the_table_anew() {
    let world = World::start().await;
    // No heartbeat and no look at the table: the first append finds it.
    let config = ClusterLogConfig { heartbeat: Duration::from_hours(1), ..config() };
    let node = world.open_with(config, now_ms).await.unwrap();
    put(&node.store, b"row", b"1").await.unwrap();
    world.cluster.drop_table(&"tsdb-log".parse().unwrap());
    let other = ClusterLogConfig { node: "other".to_owned(), ..self::config() };
    let other = world.open_with(other, now_ms).await.unwrap();
    put(&other.store, b"other", b"1").await.unwrap();
    assert!(put(&node.store, b"later", b"1").await.is_err());
    check_owner(&world, &node, "was emptied or created anew").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_have_been_fenced_does_not_flush() {
    let world = World::start().await;
    // Its manifest stands still.
    let config = ClusterLogConfig {
        heartbeat: Duration::from_hours(1),
        suspect_after: Duration::ZERO,
        ..config()
    };
    let paused = world.open_with(config, now_ms).await.unwrap();
    put(&paused.store, b"row", b"1").await.unwrap();
    let next = open(&world).await;
    put(&next.store, b"row", b"2").await.unwrap();
    next.store.flush().await.unwrap();
    world.cluster.drop_table(&"tsdb-log".parse().unwrap());
    paused.log.look_for_loss().await;
    assert!(paused.log.loss().is_some_and(|loss| loss.contains("may have taken over")));
    assert!(paused.store.flush().await.is_err());
    assert_eq!(paused.store.held_row_count(), 1);
    assert_eq!(value(&*world.backend, b"row").await.as_deref(), Some(&b"2"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_table_is_not_lost_and_keeps_its_owner() {
    let world = World::start().await;
    let config = ClusterLogConfig { suspect_after: Duration::from_secs(4), ..config() };
    let config = ClusterLogConfig { append_timeout: Duration::from_millis(200), ..config };
    let config = ClusterLogConfig { work_timeout: Duration::from_millis(200), ..config };
    let node = world.open_with(config, now_ms).await.unwrap();
    put(&node.store, b"row", b"1").await.unwrap();
    let table = "tsdb-log".parse().unwrap();
    world.cluster.set_region_states(&table, "CLOSED");
    assert!(put(&node.store, b"later", b"1").await.is_err());
    // Longer than another node would wait, if it could read the table.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(node.log.loss(), None);
    world.cluster.drop_table(&table);
    wait_until_lost(&node).await;
    assert!(node.log.loss().is_some_and(|loss| loss.contains("flushes the rows")));
    node.store.flush().await.unwrap();
    assert_eq!(value(&*world.backend, b"row").await.as_deref(), Some(&b"1"[..]));
}
