//! Every kind of write through a node that is cut from the others, paused, or fenced: what other nodes have acknowledged
//! afterwards stays, whatever the faulty node had got before.
//!
//! Kinds: points by HTTP and telnet, as cells and as appends, points of rollups, deletes, annotations, new names and
//! renames.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tsd_testkit::{Daemon, connect, http, try_http, wait_for};

use crate::{
    cluster_forward::{flush_all, put_until_taken},
    cluster_links::{Site, serving},
};

/// Series of each kind; each node owns some of them.
const SERIES: usize = 12;
const SECOND: u64 = 1_600_000_000;
/// How long a write waits for its owner. What a client has given up cannot be made later.
const DEADLINE: Duration = Duration::from_secs(2);
/// Times after which the faulty node has dropped what it had got: the deadline, a standstill, and the time of two looks.
const FORGOTTEN: Duration = Duration::from_millis(4_500);
const ROLLUPS: &str = r#"{"aggregationIds":{"sum":0},"intervals":[
    {"table":"tsdb","preAggregationTable":"tsdb","interval":"1m","rowSpan":"1h","defaultInterval":true},
    {"table":"tsdb-rollup-1h","preAggregationTable":"tsdb-rollup-1h","interval":"1h","rowSpan":"1d"}]}"#;

/// What happens to the faulty node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Cut from the other nodes; it leaves.
    Cut,
    /// It stands still, but is not fenced.
    Pause,
    /// It stands still until it is fenced.
    Eviction,
}

fn settings(fault: Fault, appends: bool) -> Vec<(&'static str, &'static str)> {
    let suspect_after = if fault == Fault::Pause { "3600" } else { "5" };
    vec![
        ("TSD_CLUSTER_SUSPECT_AFTER", suspect_after),
        ("TSD_CLUSTER_FORWARD_TIMEOUT", "2"),
        ("TSD_CLUSTER_DRAIN_LINGER", "0"),
        ("TSD_CORE_ADMIN_PEERS", "*"),
        ("TSD_HTTP_QUERY_ALLOW_DELETE", "true"),
        ("TSD_ROLLUPS_ENABLE", "true"),
        ("TSD_ROLLUPS_CONFIG", ROLLUPS),
        ("TSD_STORAGE_ENABLE_APPENDS", if appends { "true" } else { "false" }),
    ]
}

/// The points of a metric with this value; those of rollups with their interval.
fn points(metric: &str, value: u64) -> String {
    let rollup = if metric == "rollup" { r#","interval":"1h","aggregator":"sum""# } else { "" };
    let point = |series| {
        format!(
            r#"{{"metric":"{metric}","timestamp":{SECOND},"value":{value},"tags":{{"h":"h{series}"}}{rollup}}}"#
        )
    };
    format!("[{}]", (0..SERIES).map(point).collect::<Vec<_>>().join(","))
}

fn lines(metric: &str, value: u64) -> String {
    let line = |series| format!("put {metric} {SECOND} {value} h=h{series}\n");
    (0..SERIES).map(line).collect::<Vec<_>>().concat()
}

/// Repeats a request until it succeeds.
fn until_done(node: SocketAddr, method: &str, uri: &str, body: Option<&str>) -> String {
    let mut last = String::new();
    let done = || {
        let response = try_http(node, method, uri, body).ok()?;
        let done = (200..300).contains(&response.status);
        last.clone_from(&response.body);
        done.then_some(response.body)
    };
    let done = wait_for(done);
    done.unwrap_or_else(|| panic!("{method} {uri} does not succeed: {last}"))
}

fn put(node: SocketAddr, metric: &str, value: u64) {
    if metric == "rollup" {
        until_done(node, "POST", "/api/rollup", Some(&points(metric, value)));
    } else {
        put_until_taken(&[node], &points(metric, value));
    }
}

/// The values of a metric, of each series; none for an unknown metric.
fn values(node: SocketAddr, metric: &str) -> Option<Vec<u64>> {
    let downsampled = if metric == "rollup" { "1h-sum:" } else { "" };
    let (start, end) = (SECOND - 7_200, SECOND + 7_200);
    let uri = format!("/api/query?start={start}&end={end}&m=none:{downsampled}{metric}{{h=*}}");
    let response = try_http(node, "GET", &uri, None).ok()?;
    if response.status == 400 && response.body.contains("No such name") {
        return Some(Vec::new());
    }
    let series: Value = serde_json::from_str(&response.body).ok()?;
    let points = series.as_array()?.iter().filter_map(|one| one["dps"].as_object());
    let points = points.flat_map(|points| points.values());
    points.map(|point| point.as_f64().map(|value| value as u64)).collect()
}

#[track_caller]
fn expect(node: SocketAddr, metric: &str, value: u64, series: usize) {
    let found = wait_for(|| values(node, metric)).expect("a response");
    assert_eq!(found, vec![value; series], "{metric} through {node}");
}

fn tsuids(node: SocketAddr) -> Vec<String> {
    let uri = format!("/api/query?start={SECOND}&end={SECOND}&m=none:http{{h=*}}&show_tsuids=true");
    let series: Value = serde_json::from_str(&until_done(node, "GET", &uri, None)).expect("JSON");
    let of = |one: &Value| one["tsuids"][0].as_str().expect("a TSUID").to_owned();
    series.as_array().expect("series").iter().map(of).collect()
}

fn annotation(tsuid: &str, text: &str) -> String {
    format!(r#"{{"startTime":{SECOND},"tsuid":"{tsuid}","description":"{text}"}}"#)
}

/// Deletes the points of a metric through a node.
fn delete_uri(metric: &str) -> String {
    let (start, end) = (SECOND - 60, SECOND + 60);
    format!("/api/query?start={start}&end={end}&m=none:{metric}{{h=*}}")
}

/// Sends requests of all kinds to the faulty node, and gives them up.
fn abandon(node: SocketAddr, tsuids: &[String]) {
    let mut sockets: Vec<TcpStream> = Vec::new();
    let mut send = |request: String| {
        let mut socket = connect(node);
        socket.write_all(request.as_bytes()).expect("the system takes the request");
        sockets.push(socket);
    };
    let mut request = |method: &str, uri: &str, body: &str| {
        send(format!(
            "{method} {uri} HTTP/1.1\r\nHost: tsd\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
    };
    request("POST", "/api/put", &points("http", 8));
    request("POST", "/api/rollup", &points("rollup", 8));
    request("DELETE", &delete_uri("kept"), "");
    for tsuid in tsuids {
        request("POST", "/api/annotation", &annotation(tsuid, "abandoned"));
    }
    send(lines("telnet", 8));
    thread::sleep(Duration::from_secs(1));
}

/// What the nodes acknowledge after the fault has begun.
fn correct(healthy: SocketAddr, tsuids: &[String]) {
    put(healthy, "http", 2);
    put(healthy, "rollup", 2);
    put(healthy, "kept", 2);
    put(healthy, "new", 2);
    let mut telnet = connect(healthy);
    telnet.write_all(lines("telnet", 2).as_bytes()).expect("lines are sent");
    let is_stored = || (values(healthy, "telnet")? == [2; SERIES]).then_some(());
    wait_for(is_stored).expect("telnet lines are stored");
    until_done(healthy, "DELETE", &delete_uri("deleted"), None);
    for (at, tsuid) in tsuids.iter().enumerate() {
        if at % 2 == 0 {
            until_done(healthy, "POST", "/api/annotation", Some(&annotation(tsuid, "corrected")));
        } else {
            let uri = format!("/api/annotation?tsuid={tsuid}&start_time={SECOND}");
            until_done(healthy, "DELETE", &uri, None);
        }
    }
}

fn check_all(nodes: &[SocketAddr], tsuids: &[String]) {
    for node in nodes {
        for metric in ["http", "telnet", "rollup", "kept", "new"] {
            expect(*node, metric, 2, SERIES);
        }
        expect(*node, "deleted", 0, 0);
        expect(*node, "after", 1, SERIES);
        expect(*node, "before", 0, 0);
        for (at, tsuid) in tsuids.iter().enumerate() {
            let uri = format!("/api/annotation?tsuid={tsuid}&start_time={SECOND}");
            let found = http(*node, "GET", &uri, None);
            if at % 2 == 0 {
                assert!(found.body.contains("\"corrected\""), "{}", found.body);
            } else {
                assert_eq!(found.status, 404, "{}", found.body);
            }
        }
    }
}

/// Three nodes with values of all kinds, which are acknowledged by the last node.
fn nodes(site: &Site, settings: &[(&str, &str)]) -> (Vec<(Daemon, TempDir)>, Vec<String>) {
    let nodes = site.nodes_with(settings);
    let faulty = nodes[2].0.address();
    for metric in ["http", "rollup", "kept", "deleted", "before"] {
        put(faulty, metric, 1);
    }
    connect(faulty).write_all(lines("telnet", 1).as_bytes()).expect("lines are sent");
    wait_for(|| (values(faulty, "telnet")? == [1; SERIES]).then_some(())).expect("stored");
    let tsuids = tsuids(faulty);
    for tsuid in &tsuids {
        until_done(faulty, "POST", "/api/annotation", Some(&annotation(tsuid, "first")));
    }
    (nodes, tsuids)
}

fn writes_through(fault: Fault, appends: bool) {
    let settings = settings(fault, appends);
    let Some(site) = Site::with_tables_of(&settings) else { return };
    let (nodes, tsuids) = nodes(&site, &settings);
    let all: Vec<SocketAddr> = nodes.iter().map(|(node, _)| node.address()).collect();
    let faulty = &nodes[2].0;
    let incarnation = |node: SocketAddr| {
        let status: Value =
            serde_json::from_str(&try_http(node, "GET", "/api/cluster", None).ok()?.body).ok()?;
        let node = status["nodes"].as_array()?.iter().find(|node| node["name"] == "tsd2")?;
        node["incarnation"].as_u64()
    };
    let before = wait_for(|| incarnation(all[0])).expect("an incarnation");
    match fault {
        Fault::Cut => site.network().isolate(2),
        Fault::Pause | Fault::Eviction => faulty.signal("STOP"),
    }
    abandon(faulty.address(), &tsuids);
    thread::sleep(FORGOTTEN.max(DEADLINE));
    match fault {
        // Its slots wait for it.
        Fault::Pause => faulty.signal("CONT"),
        // A node that tries to join is asked by every delete, and nobody reaches it.
        Fault::Cut => drop(faulty.wait_for_event("cannot join the cluster again yet", |_| true)),
        Fault::Eviction => {}
    }
    correct(all[0], &tsuids);
    // Waits until the faulty node confirms, or has gone.
    let rename = r#"{"metric":"before","name":"after"}"#;
    let renamed = http(all[1], "POST", "/api/uid/rename", Some(rename));
    // A node that is cut tries to join again, and does not confirm. It reads the changed names when it joins.
    let is_unconfirmed = fault == Fault::Cut && renamed.body.contains("node tsd2: ");
    assert!(renamed.status == 200 || is_unconfirmed, "{}", renamed.body);
    match fault {
        Fault::Cut => site.network().heal(),
        Fault::Eviction => faulty.signal("CONT"),
        Fault::Pause => {}
    }
    let serves = || {
        serving(all[2], 3)?;
        let is_new = incarnation(all[2])? > before;
        (is_new != (fault == Fault::Pause)).then_some(())
    };
    wait_for(serves).expect("the faulty node serves again");
    check_all(&all, &tsuids);
    flush_all(all[0]);
    check_all(&all, &tsuids);
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}

#[test]
fn writes_through_a_node_that_is_cut_lose_against_later_ones() {
    writes_through(Fault::Cut, false);
}

#[test]
fn writes_through_a_node_that_is_paused_lose_against_later_ones() {
    writes_through(Fault::Pause, false);
}

#[test]
fn writes_through_a_node_that_is_fenced_lose_against_later_ones() {
    writes_through(Fault::Eviction, false);
}

#[test]
fn appends_through_a_node_that_is_cut_lose_against_later_ones() {
    writes_through(Fault::Cut, true);
}

#[test]
fn appends_through_a_node_that_is_paused_lose_against_later_ones() {
    writes_through(Fault::Pause, true);
}

#[test]
fn appends_through_a_node_that_is_fenced_lose_against_later_ones() {
    writes_through(Fault::Eviction, true);
}
