//! Daemon processes with a series index on a fake HBase: one daemon finds the points that another has acknowledged by
//! their keys, also after a kill.

use std::{net::SocketAddr, path::Path, process::Command};

use serde_json::Value;
use tsd_testkit::{Daemon, DaemonBuilder, http, metric, wait_for};

use crate::{TSDB, hbase_fake::HBase, in_process::directory};

const SECOND: u64 = 1_600_000_000;

fn with_index(daemon: DaemonBuilder, mode: &str) -> DaemonBuilder {
    daemon.env("TSD_STORAGE_HBASE_SERIES_INDEX", mode)
}

/// Puts a point of each of the hosts.
#[track_caller]
fn put(address: SocketAddr, hosts: std::ops::Range<u64>) {
    let points: Vec<String> = hosts
        .map(|host| {
            format!(
                r#"{{"metric":"m","timestamp":{SECOND},"value":{host},"tags":{{"host":"h{host}"}}}}"#
            )
        })
        .collect();
    let body = format!("[{}]", points.join(","));
    let response = http(address, "POST", "/api/put", Some(&body));
    assert_eq!(response.status, 204, "{}", response.body);
}

/// Number of series that a query finds.
fn found(address: SocketAddr, hosts: &str) -> usize {
    let uri =
        format!("/api/query?start={}&end={}&m=none:m%7Bhost={hosts}%7D", SECOND - 10, SECOND + 10);
    let response = http(address, "GET", &uri, None);
    assert_eq!(response.status, 200, "{}", response.body);
    let found: Vec<Value> = serde_json::from_str(&response.body).expect("JSON");
    found.len()
}

fn gauge(daemon: &Daemon, name: &str) -> f64 {
    metric(daemon.address(), name).unwrap_or(f64::NAN)
}

fn await_complete(daemon: &Daemon) {
    let complete = || (gauge(daemon, "tsd_hbase_series_index_complete") > 0.5).then_some(());
    wait_for(complete).expect("a complete index");
}

#[test]
fn series_of_daemons_that_register_are_found_by_key_also_after_a_kill() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let (status, stderr) = with_index(hbase.daemon(first.path()), "complete").run_to_exit();
    assert!(!status.success() && stderr.contains("table tsdb-series does not exist"), "{stderr}");
    let created = Command::new(TSDB)
        .args(["table", "create", "--zkquorum", hbase.quorum()])
        .env("TSD_STORAGE_HBASE_SERIES_INDEX", "complete")
        .output()
        .expect("run tsdb");
    assert!(
        String::from_utf8_lossy(&created.stdout).contains("tsdb-series: created"),
        "{created:?}"
    );

    let reader = with_index(hbase.daemon(first.path()), "complete").start();
    let writer = with_index(hbase.daemon_with_log(second.path()), "register")
        .env("TSD_STORAGE_HOLD_SECONDS", "0.1")
        .start();
    await_complete(&reader);
    put(reader.address(), 0..200);
    put(writer.address(), 200..400);
    // A daemon finds its own points at once, and flushed points of the other daemon.
    assert_eq!(found(writer.address(), "h300"), 1);
    wait_for(|| (found(reader.address(), "*") == 400).then_some(())).expect("all series");
    assert_eq!(found(reader.address(), "h300"), 1);

    put(writer.address(), 400..500);
    writer.kill();
    let writer = with_index(hbase.daemon_with_log(second.path()), "register")
        .env("TSD_STORAGE_HOLD_SECONDS", "0.1")
        .start();
    wait_for(|| (found(reader.address(), "h450") == 1).then_some(())).expect("replayed");
    reader.kill();
    let reader = with_index(hbase.daemon(first.path()), "complete").start();
    await_complete(&reader);
    for host in [0, 199, 200, 399, 400, 499] {
        assert_eq!(found(reader.address(), &format!("h{host}")), 1, "{host}");
    }
    assert_eq!(found(reader.address(), "*"), 500);
    assert!(gauge(&reader, "tsd_hbase_series_index_series") >= 500.0);
    assert!(gauge(&reader, "tsd_hbase_series_index_closed") < 0.5);
    assert!(writer.terminate().success() && reader.terminate().success());
}

#[test]
fn a_series_that_another_node_of_a_cluster_holds_is_found_at_once() {
    let hbase = HBase::with_tables();
    let created =
        hbase.tool(&["table", "create"], &[("TSD_STORAGE_HBASE_SERIES_INDEX", "complete")]);
    assert!(created.status.success(), "{created:?}");
    let (first, second) = (directory(), directory());
    let node = |name: &str, data: &Path| {
        with_index(hbase.daemon(data), "complete")
            .args(&["--ack", "cluster"])
            .env("TSD_CLUSTER_NAME", name)
            .env("TSD_STORAGE_HOLD_SECONDS", "3600")
            .start()
    };
    let (writer, reader) = (node("a", first.path()), node("b", second.path()));
    await_complete(&writer);
    await_complete(&reader);
    put(writer.address(), 0..20);
    for node in [&writer, &reader] {
        assert_eq!((found(node.address(), "h7"), found(node.address(), "*")), (1, 20));
        let lookup = http(node.address(), "GET", "/api/search/lookup?m=m", None);
        let lookup: Value = serde_json::from_str(&lookup.body).expect("JSON");
        assert_eq!(lookup["results"].as_array().map(Vec::len), Some(20), "{lookup}");
    }
    let counted = http(reader.address(), "GET", "/api/stats/cardinality", None);
    assert!(counted.body.contains(r#""complete":false"#), "{}", counted.body);
}

#[test]
fn a_daemon_without_index_has_none_of_its_metrics() {
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase.daemon(data.path()).start();
    put(daemon.address(), 0..5);
    assert_eq!(found(daemon.address(), "h3"), 1);
    assert!(gauge(&daemon, "tsd_hbase_series_index_series").is_nan());
}
