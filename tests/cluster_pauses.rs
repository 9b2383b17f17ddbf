//! Daemons that stand still (SIGSTOP), on a fake HBase. Puts that waited in their sockets and queues lose against
//! corrections that were acknowledged meanwhile.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tsd_testkit::{Daemon, connect, http, metric, try_http, wait_for};

use crate::{
    cluster_forward::{addresses, flush_all, node, put_until_taken, wait_until_shared},
    hbase_fake::HBase,
    in_process::directory,
};

/// Corrected points, each of its own series.
const POINTS: usize = 300;
/// Points of a request that has several.
const HALVES: [Range<usize>; 2] = [0..POINTS / 2, POINTS / 2..POINTS];
/// How long clients of a paused node wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pauses are longer than a gap that begins an epoch.
const PAUSE: Duration = Duration::from_secs(3);

fn point(series: usize, value: u64) -> String {
    format!(r#"{{"metric":"c","timestamp":1600000000,"value":{value},"tags":{{"h":"a{series}"}}}}"#)
}

fn points(series: Range<usize>, value: u64) -> String {
    format!("[{}]", series.map(|series| point(series, value)).collect::<Vec<_>>().join(","))
}

/// Puts a value into all points, through any of the nodes, until they are acknowledged.
fn put_all(to: &[SocketAddr], value: u64) {
    for series in HALVES {
        put_until_taken(to, &points(series, value));
    }
}

/// Number of points that have the value on each of the nodes, in memory and then after a flush.
#[track_caller]
fn check_all(nodes: &[SocketAddr], value: u64) {
    for state in ["held", "flushed"] {
        for node in nodes {
            let read = || {
                let uri = "/api/query?start=1599999000&end=1600001000&m=none:c";
                try_http(*node, "GET", uri, None).ok().filter(|read| read.status == 200)
            };
            let read = wait_for(read).expect("a response").body;
            let found = read.matches(&format!("\"1600000000\":{value}}}")).count();
            assert_eq!(found, POINTS, "{state}: {} points of {value}", read.matches("dps").count());
        }
        flush_all(nodes[0]);
    }
}

/// Three nodes that know the names of all points.
fn nodes(hbase: &HBase, settings: &[(&str, &str)]) -> Vec<(Daemon, TempDir)> {
    let start = |at: usize| {
        let data = directory();
        let node = node(hbase, &format!("tsd{at}"), data.path());
        let node = settings.iter().fold(node, |node, (key, value)| node.env(key, value));
        (node.start(), data)
    };
    let nodes: Vec<(Daemon, TempDir)> = (0..3).map(start).collect();
    let all = addresses(&nodes);
    wait_until_shared(&all);
    for node in &all {
        put_all(&[*node], 0);
    }
    nodes
}

fn drain(node: SocketAddr) {
    let drained = http(node, "POST", "/api/cluster/drain", Some(""));
    assert_eq!(drained.status, 200, "{}", drained.body);
}

/// The whole request of one point, by HTTP or telnet.
fn request(series: usize) -> Vec<u8> {
    if series.is_multiple_of(3) {
        return format!("put c 1600000000 1 h=a{series}\n").into_bytes();
    }
    let body = point(series, 1);
    let length = body.len();
    format!("POST /api/put HTTP/1.1\r\nHost: tsd\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Stops a node, sends it a put of value 1 for each point, and gives up. Lets it go on after `meanwhile`.
fn pause_with_puts(node: &Daemon, meanwhile: impl FnOnce()) {
    let address = node.address();
    let open = || metric(address, "tsd_server_connections_open");
    // Some connections were accepted before the stop, the others wait in the queue of the system.
    let mut sockets: Vec<TcpStream> = HALVES[0].clone().map(|_| connect(address)).collect();
    wait_for(|| open().filter(|open| *open > HALVES[0].len() as f64)).expect("open connections");
    node.signal("STOP");
    let stopped = Instant::now();
    sockets.extend(HALVES[1].clone().map(|_| connect(address)));
    for (series, socket) in sockets.iter_mut().enumerate() {
        socket.write_all(&request(series)).expect("the system takes the request");
    }
    thread::sleep(PATIENCE);
    drop(sockets);
    meanwhile();
    thread::sleep(PAUSE.saturating_sub(stopped.elapsed()));
    node.signal("CONT");
    wait_for(|| open().filter(|open| *open <= 1.0)).expect("the connections are closed");
}

#[test]
fn puts_in_the_sockets_of_a_paused_node_lose_against_corrections() {
    let hbase = HBase::with_tables();
    // It is not fenced, and owns nothing: all corrections are acknowledged during its pause.
    let nodes = nodes(&hbase, &[("TSD_CLUSTER_SUSPECT_AFTER", "3600")]);
    let all = addresses(&nodes);
    drain(all[0]);
    wait_until_shared(&all[1..]);
    pause_with_puts(&nodes[0].0, || put_all(&all[1..2], 2));
    check_all(&all, 2);
    let stood_still = metric(all[0], "tsd_server_connections_stood_still_total");
    assert!(stood_still >= Some(POINTS as f64), "{stood_still:?}");
    let discarded = metric(all[0], "tsd_server_discarded_bytes_total");
    assert!(discarded > Some(POINTS as f64 * 20.0), "{discarded:?}");
    // New connections are served.
    put_all(&all[..1], 3);
    check_all(&all, 3);
}

#[test]
fn puts_in_the_sockets_of_a_fenced_node_lose_against_corrections() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase, &[]);
    let all = addresses(&nodes);
    // Its own slots are recovered first.
    pause_with_puts(&nodes[0].0, || put_all(&all[1..2], 2));
    let _ = nodes[0].0.wait_for_event("joined the cluster again", |_| true);
    check_all(&all, 2);
}

#[test]
fn writes_that_wait_for_a_paused_owner_are_void_after_their_deadline() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let hbase = HBase::with_tables();
    let settings = [("TSD_CLUSTER_SUSPECT_AFTER", "3600"), ("TSD_CLUSTER_FORWARD_TIMEOUT", "2")];
    let nodes = nodes(&hbase, &settings);
    let all = addresses(&nodes);
    let owner = &nodes[2].0;
    for other in &all[..2] {
        drain(*other);
    }
    wait_until_shared(&all[2..]);
    for round in 0..4 {
        let (former, correction) = (2 * round + 1, 2 * round + 2);
        owner.signal("STOP");
        let sent = HALVES.map(|series| {
            let to = all[0];
            thread::spawn(move || http(to, "POST", "/api/put", Some(&points(series, former))))
        });
        for answer in sent {
            let answer = answer.join().expect("a response");
            assert_eq!(answer.status, 503, "{}", answer.body);
        }
        thread::sleep(DEADLINE + PAUSE);
        let corrections = HALVES.map(|series| {
            let to = all[1];
            thread::spawn(move || put_until_taken(&[to], &points(series, correction)))
        });
        // They wait in the sockets of the owner, next to the former ones.
        thread::sleep(PATIENCE / 2);
        owner.signal("CONT");
        for correction in corrections {
            correction.join().expect("an acknowledgement");
        }
        check_all(&all, correction);
    }
}
