//! The log on a fake HBase, in front of a store in memory that outlives its daemons.

#![expect(clippy::unwrap_used, reason = "tests")]

mod assignment;
mod doubt;
mod hedging;
mod interrupted;
mod lost;
mod node;
mod nodes;
mod ownership;
mod trim;

use bytes::Bytes;
use hbase_rs::admin::{FamilyDescriptor, TableDescriptor};
use tsd_storage::Storage;

use self::node::{World, put, value};

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_rows_survive_their_daemon() {
    let world = World::start().await;
    let node = world.open().await;
    for row in 0..50_u8 {
        put(&node.store, &[row], b"old").await.unwrap();
    }
    for row in 0..25_u8 {
        put(&node.store, &[row], b"new").await.unwrap();
    }
    // Killed: nothing was flushed.
    drop(node);
    assert_eq!(value(&*world.backend, &[1]).await, None);

    let node = world.open().await;
    assert_eq!(node.report.records, 75);
    for row in 0..50_u8 {
        let expected = if row < 25 { &b"new"[..] } else { b"old" };
        assert_eq!(value(&node.store, &[row]).await.as_deref(), Some(expected));
    }
    node.store.flush().await.unwrap();
    assert_eq!(value(&*world.backend, &[1]).await, Some(Bytes::from_static(b"new")));
    world.wait_until_retired(&node).await;
    // A third daemon has nothing to replay, either.
    drop(node);
    let node = world.open().await;
    assert_eq!(node.report.records, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_longer_than_a_cell_is_replayed() {
    let world = World::start().await;
    let node = world.open().await;
    let long: Vec<u8> = (0..700_000_u32).map(|at| (at.wrapping_mul(at) / 7) as u8).collect();
    put(&node.store, b"long", &long).await.unwrap();
    put(&node.store, b"short", b"1").await.unwrap();
    drop(node);
    let node = world.open().await;
    assert_eq!(value(&node.store, b"long").await.as_deref(), Some(&long[..]));
    assert_eq!(value(&node.store, b"short").await.as_deref(), Some(&b"1"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_times_do_not_go_back_with_the_clock() {
    let world = World::start().await;
    let node = world.open_at(|| 2_000_000).await;
    put(&node.store, b"row", b"old").await.unwrap();
    node.store.flush().await.unwrap();
    node.store.stop().await;
    drop(node);
    // The log is empty, and the clock was set back.
    let node = world.open_at(|| 1_000_000).await;
    put(&node.store, b"row", b"new").await.unwrap();
    node.store.flush().await.unwrap();
    assert_eq!(value(&*world.backend, b"row").await.as_deref(), Some(&b"new"[..]));
    drop(node);
    let node = world.open_at(|| 1_000_000).await;
    assert_eq!(value(&node.store, b"row").await.as_deref(), Some(&b"new"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_none_of_a_log_is_refused() {
    let world = World::start().await;
    let family = |name: &str| FamilyDescriptor::new(name.to_owned());
    let table = TableDescriptor::new("tsdb-log".parse().unwrap());
    let table = table.family(family("l")).family(family("s"));
    world.client().admin().create_table(&table, []).await.unwrap();
    let Err(error) = world.try_open().await else { panic!("it was opened") };
    let text = error.to_string();
    assert!(text.contains("not created as a table of the log"), "{text}");
}
