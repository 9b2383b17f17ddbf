//! Reads of three daemons on a fake HBase: they ask the owners of the slots that they touch, prove themselves by a
//! lease, and are never stale while slots move, owners are killed, or owners stand still.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tsd_testkit::{Daemon, http, metric, try_http, wait_for};

use crate::{
    cluster_forward::{addresses, node, nodes, put_until_taken, wait_until_shared},
    hbase_fake::HBase,
    in_process::directory,
};

const HOSTS: u64 = 24;
/// Reads and writes that must succeed after a fault.
const ENOUGH: u64 = 60;

fn points(value: u64) -> String {
    let point = |host: u64| {
        format!(
            r#"{{"metric":"c","timestamp":1600000000,"value":{value},"tags":{{"host":"web{host}"}}}}"#
        )
    };
    format!("[{}]", (0..HOSTS).map(point).collect::<Vec<_>>().join(","))
}

/// Returns the value of a host's point; `None` if the query fails.
fn value_of(node: SocketAddr, host: u64) -> Option<u64> {
    let uri = format!("/api/query?start=1599999000&end=1600001000&m=none:c%7Bhost=web{host}%7D");
    let read = try_http(node, "GET", &uri, None).ok().filter(|read| read.status == 200)?;
    let text = read.body.split("\"1600000000\":").nth(1).unwrap_or("0");
    text.split(['}', ',']).next()?.parse().ok()
}

fn held_requests(node: SocketAddr) -> u64 {
    metric(node, "tsd_cluster_net_requests_total{kind=\"held\"}").unwrap_or(0.0) as u64
}

fn read_appends(node: SocketAddr) -> u64 {
    metric(node, "tsd_cluster_log_read_appends_total").unwrap_or(0.0) as u64
}

#[test]
fn a_query_of_one_host_asks_at_most_its_owner_and_writes_nothing_to_the_log() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let all = addresses(&nodes);
    put_until_taken(&all[..1], &points(1));
    let reader = all[0];
    let log_bytes = || -> f64 {
        let bytes = |node: &SocketAddr| metric(*node, "tsd_cluster_log_appended_bytes_total");
        all.iter().filter_map(bytes).sum()
    };
    let mut asked = 0;
    for host in 0..HOSTS {
        let before = held_requests(reader);
        assert_eq!(value_of(reader, host), Some(1), "web{host}");
        let requests = held_requests(reader) - before;
        assert!(requests <= 1, "web{host}: {requests} requests");
        asked += requests;
    }
    assert!((1..HOSTS).contains(&asked), "{asked} of {HOSTS} hosts are not the reader's");
    // On a busy machine a heartbeat may be late, and a read needs an append.
    let read_all = || {
        let appends: u64 = all.iter().map(|node| read_appends(*node)).sum();
        let bytes = log_bytes();
        let is_read = (0..HOSTS).all(|host| value_of(reader, host) == Some(1));
        assert!(is_read);
        let now: u64 = all.iter().map(|node| read_appends(*node)).sum();
        (now == appends && log_bytes().total_cmp(&bytes).is_eq()).then_some(())
    };
    wait_for(read_all).expect("reads without an append");
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}

#[test]
fn reads_are_proven_by_appends_with_that_setting() {
    let hbase = HBase::with_tables();
    let start = |at: usize| {
        let data = directory();
        let node = node(&hbase, &format!("tsd{at}"), data.path());
        (node.env("TSD_CLUSTER_READ_PROOF", "append").start(), data)
    };
    let nodes: Vec<(Daemon, TempDir)> = (0..3).map(start).collect();
    let all = addresses(&nodes);
    wait_until_shared(&all);
    put_until_taken(&all[..1], &points(7));
    let before: Vec<u64> = all.iter().map(|node| read_appends(*node)).collect();
    for node in &all {
        assert!((0..HOSTS).all(|host| value_of(*node, host) == Some(7)));
    }
    for (node, before) in all.iter().zip(before) {
        assert!(
            read_appends(*node) >= before + HOSTS,
            "each read of {node} is proven by an append"
        );
    }
}

/// Clients that correct all points, and read them through all nodes. A read that returns an older value than the last
/// one that was acknowledged before it began is stale.
struct Clients {
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Clients {
    fn start(writer: SocketAddr, readers: &[SocketAddr]) -> Self {
        let (is_over, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let reads = Arc::<AtomicU64>::default();
        put_until_taken(&[writer], &points(1));
        acknowledged.store(1, Ordering::SeqCst);
        let (over, acked) = (Arc::clone(&is_over), Arc::clone(&acknowledged));
        let mut threads = vec![thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let value = acked.load(Ordering::SeqCst) + 1;
                put_until_taken(&[writer], &points(value));
                acked.store(value, Ordering::SeqCst);
            }
        })];
        for reader in readers.iter().copied() {
            let (over, acked) = (Arc::clone(&is_over), Arc::clone(&acknowledged));
            let reads = Arc::clone(&reads);
            threads.push(thread::spawn(move || {
                for host in (0..HOSTS).cycle() {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let floor = acked.load(Ordering::SeqCst);
                    let Some(value) = value_of(reader, host) else {
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    };
                    assert!(value >= floor, "web{host} is {value} on {reader}, not {floor}");
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        Self { is_over, acknowledged, reads, threads }
    }

    /// Waits until more reads and writes have succeeded.
    fn wait_for_more(&self) {
        let count = || {
            let writes = self.acknowledged.load(Ordering::SeqCst);
            (self.reads.load(Ordering::SeqCst), writes)
        };
        let (reads, writes) = count();
        let is_enough = || {
            let (now, written) = count();
            (now >= reads + ENOUGH && written >= writes + 3).then_some(())
        };
        wait_for(is_enough).expect("clients go on");
    }

    fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("no stale read");
        }
    }
}

#[test]
fn reads_are_not_stale_while_slots_move() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let all = addresses(&nodes);
    let clients = Clients::start(all[0], &all);
    for leaving in [all[1], all[2]] {
        clients.wait_for_more();
        let drained = http(leaving, "POST", "/api/cluster/drain", Some(""));
        assert_eq!(drained.status, 200, "{}", drained.body);
    }
    clients.wait_for_more();
    clients.end();
}

#[test]
fn reads_are_not_stale_while_an_owner_is_killed() {
    let hbase = HBase::with_tables();
    let mut nodes = nodes(&hbase);
    let all = addresses(&nodes);
    let (killed, data) = nodes.pop().expect("a node");
    let clients = Clients::start(all[0], &all[..2]);
    clients.wait_for_more();
    killed.kill();
    clients.wait_for_more();
    let again = node(&hbase, "tsd2", data.path()).start();
    clients.wait_for_more();
    clients.end();
    assert!(again.terminate().success());
}

#[test]
fn reads_are_not_stale_while_an_owner_stands_still() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let all = addresses(&nodes);
    let paused = &nodes[2].0;
    let clients = Clients::start(all[0], &all);
    clients.wait_for_more();
    // Until its log is recovered, and while it wakes up.
    paused.signal("STOP");
    clients.wait_for_more();
    paused.signal("CONT");
    clients.wait_for_more();
    clients.end();
}
