//! Three daemon processes on a fake HBase: the series of one host live on one node, so a request of one collector is
//! one frame, and renames move no series.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tsd_testkit::{http, metric};

use crate::{
    cluster_forward::{addresses, node, nodes, wait_until_shared},
    cluster_nodes::refused,
    hbase_fake::HBase,
    in_process::directory,
};

fn frames(node: SocketAddr) -> u64 {
    metric(node, "tsd_cluster_forward_frames_total").unwrap_or(0.0) as u64
}

/// Puts points in one request. Returns the number of frames that the node has forwarded.
fn frames_of_put(node: SocketAddr, points: &Value) -> u64 {
    let before = frames(node);
    let stored = http(node, "POST", "/api/put", Some(&points.to_string()));
    assert_eq!(stored.status, 204, "{}", stored.body);
    frames(node) - before
}

/// The points that a collector sends: one of each of 50 metrics.
fn of_collector(tags: &Value) -> Value {
    let point = |number| json!({ "metric": format!("m{number}"), "timestamp": 1_600_000_000, "value": 1, "tags": tags });
    (0..50).map(point).collect()
}

/// The node that owns the series of a collector: the only one that forwards nothing.
fn owner(nodes: &[SocketAddr], tags: &Value) -> usize {
    let points = of_collector(tags);
    let frames: Vec<u64> = nodes
        .iter()
        .map(|node| {
            // The names are known from then on.
            frames_of_put(*node, &points);
            frames_of_put(*node, &points)
        })
        .collect();
    let owners: Vec<usize> = (0..nodes.len()).filter(|at| frames[*at] == 0).collect();
    assert_eq!(
        (owners.len(), frames.iter().sum::<u64>()),
        (1, nodes.len() as u64 - 1),
        "{frames:?}"
    );
    owners[0]
}

#[test]
fn a_request_of_one_host_is_one_frame_and_one_of_many_hosts_one_for_each_owner() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let addresses = addresses(&nodes);
    let of_host =
        |number: u32| owner(&addresses, &json!({ "host": format!("web{number}"), "cpu": number }));
    let owners: Vec<usize> = (0..12).map(of_host).collect();
    assert!((0..3).all(|node| owners.contains(&node)), "{owners:?}");
    // The first slot tag that a series has counts.
    assert_eq!(owner(&addresses, &json!({ "pod": "p", "host": "web0" })), owners[0]);

    let point = |host| json!({ "metric": "m0", "timestamp": 1_600_000_000, "value": 1, "tags": { "host": format!("h{host}") } });
    let hosts: Value = (0..1_000).map(point).collect();
    for node in &addresses {
        frames_of_put(*node, &hosts);
        assert_eq!(frames_of_put(*node, &hosts), 2, "of two other owners");
    }
}

#[test]
fn renames_move_no_series() {
    let hbase = HBase::with_tables();
    let mut nodes = nodes(&hbase);
    let before = owner(&addresses(&nodes), &json!({ "host": "web1" }));
    for change in [r#"{"tagv":"web1","name":"web2"}"#, r#"{"tagk":"host","name":"hostname"}"#] {
        let renamed = http(nodes[0].0.address(), "POST", "/api/uid/rename", Some(change));
        assert_eq!(renamed.status, 200, "{}", renamed.body);
    }
    let tags = json!({ "hostname": "web2" });
    assert_eq!(owner(&addresses(&nodes), &tags), before);
    // A node that starts now finds no tag key `host`.
    let restarted = (before + 1) % 3;
    let (daemon, data) = nodes.remove(restarted);
    assert!(daemon.terminate().success());
    let daemon = node(&hbase, &format!("tsd{restarted}"), data.path()).start();
    nodes.insert(restarted, (daemon, data));
    wait_until_shared(&addresses(&nodes));
    assert_eq!(owner(&addresses(&nodes), &tags), before);
}

#[test]
fn a_node_with_other_slot_tags_is_refused_on_both_sides() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let alive = node(&hbase, "a", first.path()).start();
    // Only members are told.
    wait_until_shared(&[alive.address()]);
    let other = node(&hbase, "b", second.path()).env("TSD_CLUSTER_SLOT_TAGS", "device");
    let of_both = refused(other, &alive).replace(['"', '\\'], "");
    let difference = "tsd.cluster.slot_tags is device, and host, instance, pod in the cluster";
    assert_eq!(of_both.matches(difference).count(), 2, "{of_both}");
}
