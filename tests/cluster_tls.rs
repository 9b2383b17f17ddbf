//! Daemon processes of a cluster whose connections are encrypted, on a fake HBase.

use std::{
    io::Read,
    net::{Shutdown, TcpStream},
    path::Path,
};

use serde_json::Value;
use tsd_testkit::{DaemonBuilder, http, metric};

use crate::{
    WRONG_CONFIGURATION,
    cluster_forward::{addresses, node, wait_until_shared},
    hbase_fake::{HBase, check, put},
    in_process::directory,
};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls");

/// Settings of a node with this certificate.
fn certificates(authority: &str, name: &str) -> [(&'static str, String); 3] {
    let file = |name: &str| format!("{DATA}/{authority}/{name}");
    [
        ("TSD_CLUSTER_TLS_CERT", file(&format!("{name}.pem"))),
        ("TSD_CLUSTER_TLS_KEY", file(&format!("{name}.key"))),
        ("TSD_CLUSTER_TLS_CA", file("ca.pem")),
    ]
}

fn encrypted(hbase: &HBase, name: &str, data: &Path, certificate: (&str, &str)) -> DaemonBuilder {
    let (authority, file) = certificate;
    let settings = certificates(authority, file);
    settings.iter().fold(node(hbase, name, data), |node, (key, value)| node.env(key, value))
}

#[test]
fn nodes_with_certificates_forward_read_and_forget_names() {
    let hbase = HBase::with_tables();
    let start = |at: usize| {
        let data = directory();
        (encrypted(&hbase, &format!("tsd{at}"), data.path(), ("one", "node")).start(), data)
    };
    let nodes: Vec<_> = (0..3).map(start).collect();
    let addresses = addresses(&nodes);
    wait_until_shared(&addresses);
    for (part, node) in (0..).zip(&addresses) {
        for metric in ["a", "b", "c", "d"] {
            put(*node, metric, part * 10, part * 10 + 10);
        }
    }
    for node in &addresses {
        check(*node, "a", 30);
    }
    let sum = |name| addresses.iter().filter_map(|node| metric(*node, name)).sum::<f64>();
    assert!(sum("tsd_cluster_forward_cells_total") > 0.0);

    // Checks of the ports, like the checks of a load balancer.
    let status = http(addresses[0], "GET", "/api/cluster", None);
    let status: Value = serde_json::from_str(&status.body).expect("JSON");
    for node in status["nodes"].as_array().expect("nodes") {
        let address = node["address"].as_str().expect("an address");
        let mut checked = TcpStream::connect(address).expect("connect");
        checked.shutdown(Shutdown::Write).expect("close");
        assert_eq!(checked.read(&mut [0]).expect("closed by the node"), 0);
    }
    assert!(sum("tsd_cluster_net_tls_failures_total") < 1.0);

    let settings = certificates("one", "node");
    let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, &value[..])).collect();
    let plain = hbase.tool(&["uid", "rename", "metrics", "a", "e"], &[]);
    let errors = String::from_utf8_lossy(&plain.stderr);
    assert!(!plain.status.success() && errors.contains("tsd.cluster.tls"), "{errors}");
    let renamed = hbase.tool(&["uid", "rename", "metrics", "b", "f"], &settings);
    assert!(renamed.status.success(), "{renamed:?}");
    for node in &addresses {
        check(*node, "f", 30);
    }
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}

#[test]
fn a_node_that_others_do_not_trust_does_not_start_and_both_say_why() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let one = encrypted(&hbase, "tsd0", first.path(), ("one", "node")).start();
    put(one.address(), "m", 0, 10);
    let refused = |builder: DaemonBuilder, reason: &str| {
        let (status, stderr) = builder.run_to_exit();
        assert!(!status.success() && stderr.contains(reason), "{stderr}");
        assert!(stderr.contains("tsd.cluster.tls"), "{stderr}");
    };
    refused(node(&hbase, "tsd1", second.path()), "has no certificates");
    refused(encrypted(&hbase, "tsd1", second.path(), ("two", "node")), "UnknownIssuer");
    let failures = metric(one.address(), "tsd_cluster_net_tls_failures_total");
    assert!(failures.is_some_and(|failures| failures >= 2.0), "{failures:?}");
    // It trusts the others, but its certificate is for another host.
    let (status, stderr) =
        encrypted(&hbase, "tsd1", second.path(), ("one", "elsewhere")).run_to_exit();
    assert!(!status.success() && stderr.contains("not valid for name"), "{stderr}");
    check(one.address(), "m", 10);
    let health = http(one.address(), "GET", "/api/health/ready", None);
    assert_eq!(health.status, 200, "{}", health.body);
}

#[test]
fn a_certificate_that_cannot_be_read_stops_the_start() {
    let hbase = HBase::with_tables();
    let data = directory();
    let settings = certificates("one", "missing");
    let node = node(&hbase, "tsd0", data.path());
    let node = settings.iter().fold(node, |node, (key, value)| node.env(key, value));
    let (status, stderr) = node.run_to_exit();
    assert!(
        status.code() == Some(WRONG_CONFIGURATION) && stderr.contains("one/missing.pem"),
        "{stderr}"
    );
}
