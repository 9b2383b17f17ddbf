//! Names and their UIDs on three daemon processes of a cluster, on a fake HBase. A change by one daemon, or by a
//! tool, reaches all daemons. Names that are new to all daemons at once take one UID each.

use std::{collections::BTreeMap, net::SocketAddr, thread, time::Instant};

use serde_json::Value;
use tsd_testkit::{http, metric, try_http, used_uids, wait_for};

use crate::{
    cluster_forward::{addresses, node, nodes},
    hbase_fake::{HBase, check, put},
    in_process::directory,
};

/// Points of the series of a metric, by tags; empty for an unknown metric.
fn points(node: SocketAddr, metric: &str) -> BTreeMap<String, usize> {
    let uri = format!("/api/query?start=1599999000&end=1600100000&m=none:{metric}{{host=*}}");
    let response = http(node, "GET", &uri, None);
    if response.status == 400 && response.body.contains("No such name") {
        return BTreeMap::new();
    }
    assert_eq!(response.status, 200, "{}", response.body);
    let series: Value = serde_json::from_str(&response.body).expect("JSON");
    let of = |one: &Value| {
        let host = one["tags"]["host"].as_str().expect("a tag").to_owned();
        (host, one["dps"].as_object().expect("points").len())
    };
    series.as_array().expect("series").iter().map(of).collect()
}

fn rename(node: SocketAddr, body: &str) {
    let renamed = http(node, "POST", "/api/uid/rename", Some(body));
    assert_eq!(renamed.status, 200, "{}", renamed.body);
}

#[test]
fn a_name_that_is_renamed_or_deleted_is_so_on_all_nodes_at_once() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let addresses = addresses(&nodes);
    for (part, node) in (0..).zip(&addresses) {
        // All of them know the names.
        put(*node, "old", part * 10, part * 10 + 10);
        put(*node, "doomed", part * 10, part * 10 + 10);
        check(*node, "doomed", part * 10 + 10);
    }
    for round in 0..6_usize {
        let (from, to) = if round % 2 == 0 { ("old", "new") } else { ("new", "old") };
        let renamed_by = addresses[round % 3];
        rename(renamed_by, &format!(r#"{{"metric":"{from}","name":"{to}"}}"#));
        let other = addresses[(round + 1) % 3];
        let count = 30 + round as u64;
        put(other, to, count, count + 1);
        for node in &addresses {
            check(*node, to, count + 1);
            assert_eq!(points(*node, from), BTreeMap::new(), "{round}");
        }
    }
    rename(addresses[0], r#"{"tagv":"a","name":"b"}"#);
    put(addresses[1], "old", 50, 51);
    for node in &addresses {
        // Points of host=a now belong to host=b, and host=a is a new host.
        let expected = [("a".to_owned(), 1), ("b".to_owned(), 36)];
        assert_eq!(points(*node, "old"), expected.into());
    }

    let deleted = hbase.tool(&["uid", "delete", "metrics", "doomed"], &[]);
    assert!(deleted.status.success(), "{deleted:?}");
    put(addresses[2], "doomed", 0, 1);
    for node in &addresses {
        assert_eq!(points(*node, "doomed"), [("a".to_owned(), 1)].into());
    }
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}

#[test]
fn a_rename_waits_for_a_node_that_is_paused_until_that_is_fenced() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let one = node(&hbase, "tsd0", first.path()).start();
    let paused = node(&hbase, "tsd1", second.path()).start();
    for daemon in [&one, &paused] {
        put(daemon.address(), "m", 0, 10);
    }
    paused.signal("STOP");
    rename(one.address(), r#"{"metric":"m","name":"n"}"#);
    check(one.address(), "n", 10);
    paused.signal("CONT");
    let _ = paused.wait_for_event("joined the cluster again", |_| true);
    check(paused.address(), "n", 10);
    assert_eq!(points(paused.address(), "m"), BTreeMap::new());
    for daemon in [one, paused] {
        assert!(daemon.terminate().success());
    }
}

#[test]
fn a_rename_that_a_node_does_not_confirm_is_made_and_names_the_node() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    // No node is taken for dead, and no node is waited for.
    let patient = |name: &str, data| {
        node(&hbase, name, data)
            .env("TSD_CLUSTER_SUSPECT_AFTER", "3600")
            .env("TSD_CLUSTER_READ_TIMEOUT", "5")
    };
    let one = patient("tsd0", first.path()).start();
    let paused = patient("tsd1", second.path()).start();
    put(one.address(), "m", 0, 10);
    paused.signal("STOP");
    let body = Some(r#"{"metric":"m","name":"n"}"#);
    let renamed = http(one.address(), "POST", "/api/uid/rename", body);
    assert_eq!(renamed.status, 500, "{}", renamed.body);
    for part in ["'m' is changed", "node tsd1: no answer in time", "/api/dropcaches"] {
        assert!(renamed.body.contains(part), "{part} in {}", renamed.body);
    }
    paused.signal("CONT");
    // Connections from before the standstill are closed.
    let dropped = || {
        let response = try_http(paused.address(), "GET", "/api/dropcaches", None);
        response.is_ok_and(|response| response.status == 200)
    };
    wait_for(|| dropped().then_some(())).expect("the caches are dropped");
    for daemon in [&one, &paused] {
        check(daemon.address(), "n", 10);
    }
}

const NEW_NAMES: usize = 3_000;
/// Names of a request.
const REQUEST_NAMES: usize = 100;

/// A point of each of these series, whose hosts are new.
fn new_points(hosts: std::ops::Range<usize>) -> String {
    let point = |host| {
        format!(
            r#"{{"metric":"fleet","timestamp":1600000000,"value":1,"tags":{{"host":"web{host}"}}}}"#
        )
    };
    format!("[{}]", hosts.map(point).collect::<Vec<_>>().join(","))
}

fn put_new_names(node: SocketAddr) {
    for first in (0..NEW_NAMES).step_by(REQUEST_NAMES) {
        let body = new_points(first..first + REQUEST_NAMES);
        let response = http(node, "POST", "/api/put", Some(&body));
        assert_eq!(response.status, 204, "{}", response.body);
    }
}

#[test]
fn names_that_are_new_to_all_nodes_at_once_take_one_uid_each() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let addresses = addresses(&nodes);
    let started = Instant::now();
    let writers: Vec<_> =
        addresses.iter().copied().map(|node| thread::spawn(move || put_new_names(node))).collect();
    for writer in writers {
        writer.join().expect("a writer");
    }
    let took = started.elapsed();
    let sum = |name: &str| -> f64 { addresses.iter().filter_map(|node| metric(*node, name)).sum() };
    let unanswered = sum("tsd_cluster_uids_unanswered_total") as usize;
    let used = used_uids(addresses[0], "tagv").expect("a statistic") as usize;
    crate::report(&format!(
        "{NEW_NAMES} names that were new to three nodes at once: {:.0} names a second, {used} numbers used, {} asked of \
         other nodes, {unanswered} not answered",
        NEW_NAMES as f64 / took.as_secs_f64(),
        sum("tsd_cluster_uids_asked_total"),
    ));
    assert!(sum("tsd_cluster_uids_received_total") as usize >= NEW_NAMES / 2);
    assert!(unanswered < NEW_NAMES / 2, "{unanswered} names were not assigned by their owners");
    // Only a node that assigns a name instead of its owner uses another number.
    let superfluous = used.checked_sub(NEW_NAMES).expect("a number for each name");
    assert!(superfluous <= unanswered, "{used} numbers for {NEW_NAMES} names");
    // No orphaned row remains: two cells for each name, for the metric and the three slot tags, and the counters
    // of the three kinds.
    assert_eq!(hbase.cells("tsdb-uid"), 2 * (NEW_NAMES + 4) + 3);
    let checked = hbase.tool(&["uid", "fsck"], &[]);
    assert!(checked.status.success(), "{checked:?}");
    for node in &addresses {
        // One series for each name, whichever node got its point.
        let uri = "/api/query?start=1599999000&end=1600001000&m=count:fleet";
        let counted = http(*node, "GET", uri, None);
        let expected = format!("\"1600000000\":{NEW_NAMES}");
        assert!(counted.body.contains(&expected), "{}", counted.body);
    }
}
