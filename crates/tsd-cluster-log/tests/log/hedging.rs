//! Region servers that do not take records: the records go to other servers.

use std::time::Duration;

use hbase_fake::{FaultKind, InjectedFault};
use hbase_rs::TableName;
use tokio::time::{sleep, timeout};
use tsd_cluster::{LogKeys, Membership, SegmentId};
use tsd_cluster_log::ClusterLogConfig;
use tsd_storage::system_clock_ms;
use tsd_storage_wal::CommitLog;

use crate::node::{LogNode, PATIENCE, World, gauge, put, value, wait_until};

/// A node with an active and two standby segments, each on another server.
async fn open(world: &World, append_timeout: Duration) -> LogNode {
    let config = ClusterLogConfig {
        append_timeout,
        work_timeout: Duration::from_secs(2),
        hedge_after: Some(Duration::from_millis(100)),
        ..World::config()
    };
    let node = world.open_with(config, system_clock_ms).await.unwrap();
    put(&node.store, b"first", b"1").await.unwrap();
    let open = || gauge(&node, "tsd_cluster_log_segments") - node.log.closed_segments();
    wait_until(|| open() == 3).await;
    node
}

/// Makes all changes of rows on this server fail from now on.
fn break_server(world: &World, server: usize) {
    let busy = FaultKind::Exception { class: "RegionTooBusyException", text: "busy" };
    world.cluster.inject(InjectedFault::once("Mutate", busy).on(server).times(1_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_appends_of_a_node_are_hedged_too() {
    let world = World::start().await;
    let node = open(&world, PATIENCE).await;
    break_server(&world, 0);
    put(&node.store, b"second", b"1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_no_open_segment_takes_goes_to_a_new_one() {
    let world = World::start().await;
    let node = open(&world, Duration::from_millis(500)).await;
    // The regions of all open segments are on one server, which dies.
    let (table, keys) =
        ("tsdb-log".parse::<TableName>().unwrap(), LogKeys::new(node.log.cluster(), 6));
    for stripe in 0..3 {
        let segment = SegmentId { incarnation: node.log.this(), stream: 0, number: 1, stripe };
        world.cluster.move_region(&table, keys.segment(segment), 2, false);
    }
    break_server(&world, 2);
    let stored = async {
        while put(&node.store, b"second", b"1").await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, stored).await.unwrap();
    drop(node);
    world.cluster.clear_faults();
    let node = world.open().await;
    for row in [&b"first"[..], b"second"] {
        assert_eq!(value(&node.store, row).await.as_deref(), Some(&b"1"[..]));
    }
}
