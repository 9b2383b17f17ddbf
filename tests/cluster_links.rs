//! Daemons on hosts of their own, with one log table on a fake HBase that all of them reach: what they do when they do
//! not reach each other.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use tsd_testkit::{Daemon, DaemonBuilder, Network, try_http, wait_for};

use crate::{
    hbase_fake::{HBase, body, check},
    in_process::directory,
};

/// Three hosts and a fake HBase.
pub(crate) struct Site {
    network: Network,
    _hbase: HBase,
    quorum: String,
    hosts: String,
}

impl Site {
    /// `None` if this process may not create hosts.
    fn start() -> Option<Self> {
        Self::with_tables_of(&[])
    }

    /// With the tables that these settings (environment variables) need.
    pub(crate) fn with_tables_of(settings: &[(&str, &str)]) -> Option<Self> {
        let Some(network) = Network::start(3) else {
            println!("left out: network namespaces need root and `ip`");
            return None;
        };
        let hbase = HBase::with_tables_of(settings);
        let (quorum, hosts) = hbase.expose(&network);
        Some(Self { network, _hbase: hbase, quorum, hosts })
    }

    /// A node on a host, not yet started.
    fn node(&self, host: u8, data: &TempDir) -> DaemonBuilder {
        let address = self.network.host(host);
        let node = crate::tsdb(data.path());
        let node = node.args(&["--zkquorum", &self.quorum, "--auto-metric", "--ack", "cluster"]);
        node.in_namespace(&self.network.namespace(host))
            .env("TSD_NETWORK_BIND", &address.to_string())
            .env("TSD_STORAGE_HBASE_HOSTS", &self.hosts)
            .env("TSD_CLUSTER_BIND", &format!("{address}:4243"))
            .env("TSD_CLUSTER_NAME", &format!("tsd{host}"))
            .env("TSD_STORAGE_HOLD_SECONDS", "3600")
    }

    pub(crate) const fn network(&self) -> &Network {
        &self.network
    }

    /// All nodes, which serve and own slots.
    fn nodes(&self) -> Vec<(Daemon, TempDir)> {
        self.nodes_with(&[])
    }

    /// As [`Self::nodes`], with these settings.
    pub(crate) fn nodes_with(&self, settings: &[(&str, &str)]) -> Vec<(Daemon, TempDir)> {
        let start = |host| {
            let data = directory();
            let node = self.node(host, &data);
            let node = settings.iter().fold(node, |node, (key, value)| node.env(key, value));
            (node.start(), data)
        };
        let nodes: Vec<_> = (0..3).map(start).collect();
        wait_for(|| serving(nodes[0].0.address(), 3)).expect("all nodes serve");
        nodes
    }
}

fn members(address: SocketAddr) -> Option<Value> {
    let response = try_http(address, "GET", "/api/cluster", None).ok()?;
    serde_json::from_str(&response.body).ok()
}

/// Whether this number of nodes serve, each with slots, and no slot moves.
pub(crate) fn serving(address: SocketAddr, count: usize) -> Option<()> {
    let status = members(address)?;
    let nodes = status["nodes"].as_array()?;
    let serve =
        |node: &&Value| node["state"] == "serving" && node["slots"]["owned"].as_u64() > Some(0);
    let settled = status["slots"]["moving"] == 0 && status["slots"]["withoutOwner"] == 0;
    (nodes.iter().filter(serve).count() == count && settled).then_some(())
}

/// Puts points of some series, and reads them, until both succeed; returns how long that took.
fn goes_on(node: &Daemon, metric: &str, (from, to): (u64, u64)) -> Duration {
    let began = Instant::now();
    let puts = || {
        let put = try_http(node.address(), "POST", "/api/put", Some(&body(metric, from, to)));
        put.is_ok_and(|response| response.status == 204).then_some(())
    };
    wait_for(puts).expect("puts go on");
    let uri = format!("/api/query?start=1600000000&m=sum:{metric}");
    let reads = || {
        let read = try_http(node.address(), "GET", &uri, None);
        read.is_ok_and(|response| response.status == 200).then_some(())
    };
    wait_for(reads).expect("queries go on");
    began.elapsed()
}

#[test]
fn a_node_that_is_cut_from_the_others_leaves_and_comes_back() {
    let Some(site) = Site::start() else { return };
    let nodes = site.nodes();
    for (at, (node, _)) in nodes.iter().enumerate() {
        for series in 0..20 {
            goes_on(node, &format!("m{at}.{series}"), (0, 10));
        }
    }
    site.network.isolate(2);
    let (healthy, cut) = (&nodes[..2], &nodes[2].0);
    for (at, (node, _)) in healthy.iter().enumerate() {
        for series in 0..20 {
            let took = goes_on(node, &format!("m{at}.{series}"), (10, 20));
            if series == 0 {
                println!("node {at} goes on after {took:.1?}");
            }
        }
    }
    let event =
        cut.wait_for_event("leaving the cluster: giving the slots away, and flushing", |_| true);
    assert!(
        event["reason"].as_str().is_some_and(|text| text.contains("does not reach")),
        "{event}"
    );
    assert!(
        nodes[0]
            .0
            .events("fenced a node, whose heartbeats have stopped or which has not left in time")
            .is_empty()
    );
    wait_for(|| serving(healthy[0].0.address(), 2)).expect("two nodes serve");
    // What the cut node had is there, on each of the others.
    for (node, _) in healthy {
        (0..20).for_each(|series| check(node.address(), &format!("m2.{series}"), 10));
    }
    site.network.heal();
    let _ = cut.wait_for_event("joined the cluster again", |_| true);
    wait_for(|| serving(cut.address(), 3)).expect("all nodes serve again");
    for (node, _) in &nodes {
        for series in 0..20 {
            check(node.address(), &format!("m0.{series}"), 20);
            check(node.address(), &format!("m2.{series}"), 10);
        }
    }
    for (node, _) in nodes {
        assert!(node.terminate().success());
    }
}

#[test]
fn one_of_two_that_do_not_reach_each_other_leaves() {
    let Some(site) = Site::start() else { return };
    let nodes = site.nodes();
    for series in 0..20 {
        goes_on(&nodes[2].0, &format!("m{series}"), (0, 10));
    }
    site.network.cut(1, 2);
    // The younger one.
    let _ = nodes[2]
        .0
        .wait_for_event("leaving the cluster: giving the slots away, and flushing", |_| true);
    for (node, _) in &nodes[..2] {
        for series in 0..20 {
            goes_on(node, &format!("m{series}"), (10, 20));
        }
        (0..20).for_each(|series| check(node.address(), &format!("m{series}"), 20));
    }
    wait_for(|| serving(nodes[0].0.address(), 2)).expect("two nodes serve");
    assert!(
        nodes[1].0.events("leaving the cluster: giving the slots away, and flushing").is_empty()
    );
}

#[test]
fn a_node_that_others_do_not_reach_does_not_stop_a_cold_start() {
    for bad in 0..3 {
        let Some(site) = Site::start() else { return };
        site.network.isolate(bad);
        let data: Vec<TempDir> = (0..3).map(|_| directory()).collect();
        thread::scope(|scope| {
            let started: Vec<_> = (0..3)
                .map(|host| {
                    let node = site.node(host, &data[usize::from(host)]);
                    // Mostly in the order of their numbers.
                    thread::sleep(Duration::from_millis(300));
                    scope.spawn(move || node.try_start())
                })
                .collect();
            let mut nodes: Vec<_> =
                started.into_iter().map(|started| started.join().expect("no panic")).collect();
            let (log, refused) = nodes.remove(usize::from(bad));
            let good: Vec<Daemon> = nodes
                .into_iter()
                .map(|(log, node)| node.unwrap_or_else(|exit| panic!("{exit} {log}")))
                .collect();
            wait_for(|| serving(good[0].address(), 2)).expect("the others serve");
            for node in &good {
                goes_on(node, "m", (0, 10));
                check(node.address(), "m", 10);
            }
            let address = format!("{}:4243", site.network.host(bad));
            match refused {
                Err(exit) => assert!(!exit.success() && log.contains(&address), "{log}"),
                // It has served alone for a moment, before the others.
                Ok(alone) => {
                    drop(alone.wait_for_event(
                        "leaving the cluster: giving the slots away, and flushing",
                        |event| {
                            event["reason"].as_str().is_some_and(|text| text.contains(&address))
                        },
                    ));
                }
            }
        });
    }
}
