//! Three daemon processes that forward writes, on a fake HBase. One node writes each series, whichever node gets
//! its points, while nodes are killed, drained and restarted.

use std::{
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use tsd_testkit::{Daemon, DaemonBuilder, http, metric, try_http, wait_for};

use crate::{
    TSDB,
    hbase_fake::{HBase, body, check, put},
    in_process::directory,
};

const TIMEOUT: Duration = Duration::from_mins(2);
const SLOTS: f64 = 16_384.0;
const SERIES: u64 = 12;

pub(crate) fn node(hbase: &HBase, name: &str, data: &Path) -> DaemonBuilder {
    // Rows stay held until a flush is asked for, or a slot moves.
    hbase
        .daemon(data)
        .args(&["--ack", "cluster"])
        .env("TSD_CLUSTER_NAME", name)
        .env("TSD_CLUSTER_FORWARD_TIMEOUT", "30")
        .env("TSD_STORAGE_HOLD_SECONDS", "3600")
}

/// Three nodes with their data directories, each of which owns some slots.
pub(crate) fn nodes(hbase: &HBase) -> Vec<(Daemon, TempDir)> {
    let start = |at: usize| {
        let data = directory();
        (node(hbase, &format!("tsd{at}"), data.path()).start(), data)
    };
    let nodes: Vec<(Daemon, TempDir)> = (0..3).map(start).collect();
    wait_until_shared(&addresses(&nodes));
    nodes
}

pub(crate) fn addresses(nodes: &[(Daemon, TempDir)]) -> Vec<SocketAddr> {
    nodes.iter().map(|(daemon, _)| daemon.address()).collect()
}

/// Waits until these nodes own all slots, each some.
pub(crate) fn wait_until_shared(nodes: &[SocketAddr]) {
    let is_shared = || {
        let value = |node: &SocketAddr, name: &str| metric(*node, name).unwrap_or(0.0);
        let owned: Vec<f64> =
            nodes.iter().map(|node| value(node, "tsd_cluster_slots_owned")).collect();
        let is_moving = nodes.iter().any(|node| value(node, "tsd_cluster_slots_moving") > 0.0);
        let all_have_some = owned.iter().all(|owned| *owned > 0.0);
        let total = owned.iter().sum::<f64>() as u64;
        (!is_moving && all_have_some && total == SLOTS as u64).then_some(())
    };
    wait_for(is_shared).expect("all slots have owners");
}

pub(crate) fn flush_all(node: SocketAddr) {
    let flushed = http(node, "POST", "/api/cluster/flush", Some(""));
    assert_eq!(flushed.status, 200, "{}", flushed.body);
}

fn forwarded(nodes: &[SocketAddr]) -> f64 {
    let cells = |node: &SocketAddr| metric(*node, "tsd_cluster_forward_cells_total");
    nodes.iter().filter_map(cells).sum()
}

#[test]
fn points_through_all_nodes_are_one_column_of_each_row() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let addresses = addresses(&nodes);
    for part in 0..12_u64 {
        for series in 0..SERIES {
            let to = addresses[((part + series) % 3) as usize];
            put(to, &format!("m{series}"), part * 10, part * 10 + 10);
        }
    }
    let check_all = || {
        for address in &addresses {
            for series in 0..SERIES {
                check(*address, &format!("m{series}"), 120);
            }
        }
    };
    check_all();
    // Two thirds of the points of each series reached another node than its owner.
    let forwarded = forwarded(&addresses);
    assert_eq!(forwarded as u64, SERIES * 80);
    flush_all(addresses[0]);
    assert_eq!(hbase.cells("tsdb"), SERIES as usize, "a column for each row");
    check_all();
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}

/// The value of the instant that is corrected.
fn read_value(node: SocketAddr) -> Option<u64> {
    let uri = "/api/query?start=1599999000&end=1600001000&m=none:c";
    let read = try_http(node, "GET", uri, None).ok()?;
    let text = read.body.split("\"1600000000\":").nth(1)?;
    text.split(['}', ',']).next()?.parse().ok()
}

fn correction(value: u64) -> String {
    format!(r#"{{"metric":"c","timestamp":1600000000,"value":{value},"tags":{{"h":"a"}}}}"#)
}

/// Puts until the body is acknowledged, like a client that retries after a 503. Returns the number of rejections.
pub(crate) fn put_until_taken(to: &[SocketAddr], body: &str) -> usize {
    let started = Instant::now();
    for attempt in 0.. {
        let node = to[attempt % to.len()];
        let answer = try_http(node, "POST", "/api/put", Some(body));
        match answer {
            Ok(answer) if answer.status == 204 => return attempt,
            Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.body),
            Err(_) => {}
        }
        assert!(started.elapsed() < TIMEOUT, "no node takes the point");
        thread::sleep(Duration::from_millis(20));
    }
    0
}

#[test]
fn corrections_through_any_node_win_in_the_order_of_their_acknowledgement() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let addresses = addresses(&nodes);
    for round in 0..60_u64 {
        let at = (round % 3) as usize;
        let stored = http(addresses[at], "POST", "/api/put", Some(&correction(round)));
        assert_eq!(stored.status, 204, "{}", stored.body);
        if round % 10 == 5 {
            flush_all(addresses[(at + 2) % 3]);
        }
        assert_eq!(read_value(addresses[(at + 1) % 3]), Some(round));
    }
}

#[test]
fn the_slots_of_a_killed_node_go_on() {
    let hbase = HBase::with_tables();
    let mut nodes = nodes(&hbase);
    let all = addresses(&nodes);
    for series in 0..SERIES {
        put(all[(series % 3) as usize], &format!("m{series}"), 0, 20);
    }
    put_until_taken(&all, &correction(1));
    let (killed, data) = nodes.pop().expect("a node");
    killed.kill();
    drop(data);
    let left = addresses(&nodes);
    for series in 0..SERIES {
        let to = left[(series % 2) as usize];
        put_until_taken(&[to], &body(&format!("m{series}"), 20, 40));
    }
    put_until_taken(&left, &correction(2));
    wait_until_shared(&left);
    for address in &left {
        for series in 0..SERIES {
            check(*address, &format!("m{series}"), 40);
        }
        assert_eq!(read_value(*address), Some(2));
    }
    flush_all(left[0]);
    assert_eq!(read_value(left[1]), Some(2));
}

#[test]
fn nodes_are_restarted_one_after_the_other_without_a_loss() {
    let hbase = HBase::with_tables();
    let mut nodes = nodes(&hbase);
    for round in 0..3_u64 {
        let (daemon, data) = nodes.remove(0);
        let others = addresses(&nodes);
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (is_over, others) = (Arc::clone(&is_over), others.clone());
            thread::spawn(move || {
                let mut sent = 0;
                while !is_over.load(Ordering::SeqCst) || sent == 0 {
                    let metric = format!("r{round}x{sent}");
                    put_until_taken(&others, &body(&metric, 0, 3));
                    put_until_taken(&others, &correction(round * 1_000_000 + sent));
                    sent += 1;
                }
                sent
            })
        };
        if round == 1 {
            let drained = http(daemon.address(), "POST", "/api/cluster/drain", Some(""));
            assert_eq!(drained.status, 200, "{}", drained.body);
            let ready = http(daemon.address(), "GET", "/api/health/ready", None);
            assert_eq!(ready.status, 503, "{}", ready.body);
            assert!(ready.body.contains("draining"), "{}", ready.body);
            // It forwards everything.
            put(daemon.address(), "through-drained", 0, 3);
        }
        assert!(daemon.terminate().success());
        wait_until_shared(&others);
        is_over.store(true, Ordering::SeqCst);
        let sent = writer.join().expect("the writer");
        for address in &others {
            for number in 0..sent {
                check(*address, &format!("r{round}x{number}"), 3);
            }
            assert_eq!(read_value(*address), Some(round * 1_000_000 + sent - 1));
        }
        let restarted = node(&hbase, &format!("tsd{round}"), data.path()).start();
        nodes.push((restarted, data));
        wait_until_shared(&addresses(&nodes));
    }
}

/// Slots that each node owns, as shown by one node after all moves.
fn shown_slots(node: SocketAddr) -> Vec<u64> {
    let shown = || {
        let status = http(node, "GET", "/api/cluster", None);
        let status: Value = serde_json::from_str(&status.body).expect("JSON");
        let summary = &status["slots"];
        let is_settled = summary["moving"] == 0 && summary["withoutOwner"] == 0;
        let owned = |node: &Value| node["slots"]["owned"].as_u64().expect("a number of slots");
        let nodes = status["nodes"].as_array().expect("nodes").iter();
        is_settled.then(|| nodes.map(owned).collect())
    };
    wait_for(shown).expect("all slots have owners")
}

#[test]
fn each_node_shows_who_owns_the_slots() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    for address in addresses(&nodes) {
        let owned = wait_for(|| Some(shown_slots(address)).filter(|owned| !owned.contains(&0)));
        let owned = owned.expect("the present assignment");
        assert_eq!((owned.len(), owned.iter().sum::<u64>()), (3, SLOTS as u64));
    }
    let url = format!("http://{}", nodes[0].0.address());
    let done = Command::new(TSDB).args(["cluster", "status", "--url", &url]).output();
    let table = String::from_utf8_lossy(&done.expect("tsdb").stdout).into_owned();
    assert!(table.contains("  SLOTS  "), "{table}");
    assert!(table.contains(", 0 to be moved, 0 without an owner\n"), "{table}");
}
