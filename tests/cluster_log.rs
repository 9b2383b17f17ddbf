//! Daemon processes with `tsd.storage.ack = cluster` on a fake HBase: one is killed with its data directory, two
//! run at once, one is paused, HBase is unavailable.

use std::{fs, path::Path};

use tsd_testkit::{Daemon, DaemonBuilder, http, metric, wait_for};

use crate::{
    hbase_fake::{HBase, body, check, put},
    in_process::directory,
};

fn daemon(hbase: &HBase, data: &Path) -> DaemonBuilder {
    hbase.daemon(data).args(&["--ack", "cluster"])
}

fn gauge(daemon: &Daemon, name: &str) -> f64 {
    metric(daemon.address(), name).unwrap_or(f64::NAN)
}

#[test]
fn acknowledged_points_survive_the_loss_of_a_daemon_with_its_directory() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let one = daemon(&hbase, first.path()).start();
    put(one.address(), "m", 0, 100);
    check(one.address(), "m", 100);
    one.kill();
    fs::remove_dir_all(first.path()).expect("a directory");
    // A daemon without the log would not see points that only the log has.
    let third = directory();
    for other in [hbase.daemon(second.path()), hbase.daemon_with_log(third.path())] {
        let (status, stderr) = other.run_to_exit();
        assert!(!status.success() && stderr.contains("tsd.storage.ack = cluster"), "{stderr}");
    }

    let two = daemon(&hbase, second.path()).start();
    assert_eq!(two.events("ready to serve")[0]["replayed_cells"], 100);
    check(two.address(), "m", 100);
    put(two.address(), "m", 100, 120);
    assert!(two.terminate().success());
    // All is flushed, and the log has ended.
    let three = hbase.daemon(second.path()).start();
    check(three.address(), "m", 120);
    assert!(three.terminate().success());
    let four = daemon(&hbase, second.path()).start();
    assert_eq!(four.events("ready to serve")[0]["replayed_cells"], 0);
    check(four.address(), "m", 120);
}

#[test]
fn two_daemons_of_one_table_have_names_of_their_own() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let one = daemon(&hbase, first.path()).env("TSD_CLUSTER_NAME", "one").start();
    put(one.address(), "m", 0, 10);
    let (status, stderr) =
        daemon(&hbase, second.path()).env("TSD_CLUSTER_NAME", "one").run_to_exit();
    assert!(!status.success() && stderr.contains("a tsd.cluster.name of its own"), "{stderr}");
    let two = daemon(&hbase, second.path()).env("TSD_CLUSTER_NAME", "two").start();
    put(one.address(), "m", 10, 20);
    put(two.address(), "n", 0, 20);
    check(one.address(), "m", 20);
    check(two.address(), "n", 20);
    assert!(two.terminate().success());
    put(one.address(), "m", 20, 30);
    check(one.address(), "m", 30);
    assert!(one.terminate().success());
}

#[test]
fn a_daemon_that_was_paused_is_fenced_by_the_one_that_stores_its_points() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let one = daemon(&hbase, first.path()).env("TSD_CLUSTER_NAME", "one").start();
    put(one.address(), "m", 0, 10);
    let two = daemon(&hbase, second.path()).env("TSD_CLUSTER_NAME", "two").start();
    one.signal("STOP");
    let recovered = || (gauge(&two, "tsd_cluster_log_recoveries_total") > 0.5).then_some(());
    wait_for(recovered).expect("a recovery");
    check(two.address(), "m", 10);
    one.signal("CONT");
    // It stores none of its held rows, and is a member again.
    let _ = one.wait_for_event("joined the cluster again", |_| true);
    assert!((gauge(&one, "tsd_cluster_log_fences_total") - 1.0).abs() < 0.5);
    assert!(!one.events_at_level("ERROR").is_empty());
    put(two.address(), "m", 10, 30);
    check(two.address(), "m", 30);
    put(one.address(), "o", 0, 10);
    check(one.address(), "o", 10);
    assert!(one.terminate().success());
    assert!(two.terminate().success());
}

#[test]
fn nothing_is_acknowledged_while_hbase_is_unavailable() {
    let hbase = HBase::with_tables();
    let data = directory();
    let one = daemon(&hbase, data.path()).start();
    put(one.address(), "m", 0, 10);
    hbase.stop();
    let refused = http(one.address(), "POST", "/api/put", Some(&body("m", 10, 20)));
    assert_eq!(refused.status, 503, "{}", refused.body);
    // Every node would reject them.
    let ready = http(one.address(), "GET", "/api/health/ready", None);
    assert_eq!(ready.status, 200, "{}", ready.body);
    assert!(ready.body.contains("writes are rejected"), "{}", ready.body);
    hbase.restart();
    let again = || {
        let response = http(one.address(), "POST", "/api/put", Some(&body("m", 10, 20)));
        (response.status == 204).then_some(())
    };
    wait_for(again).expect("HBase is available");
    check(one.address(), "m", 20);
    one.kill();
    let two = daemon(&hbase, data.path()).start();
    check(two.address(), "m", 20);
}
