//! Daemon processes on a fake HBase without a master, and with tables that are disabled or dropped.

use std::{net::SocketAddr, path::Path};

use tsd_testkit::{DaemonBuilder, http, wait_for};

use crate::{
    hbase_fake::{HBase, body, check, put},
    in_process::directory,
};

/// Settings of `ack = cluster` for tools.
const CLUSTER: [(&str, &str); 1] = [("TSD_STORAGE_ACK", "cluster")];

fn daemon(hbase: &HBase, data: &Path, ack: &str) -> DaemonBuilder {
    // Rows stay held until they must be flushed.
    hbase.daemon(data).args(&["--ack", ack]).env("TSD_STORAGE_HOLD_SECONDS", "3600")
}

fn status(address: SocketAddr) -> String {
    http(address, "GET", "/api/status", None).body
}

#[track_caller]
fn wait_for_status(address: SocketAddr, accept: impl Fn(&str) -> bool) {
    wait_for(|| accept(&status(address)).then_some(()))
        .unwrap_or_else(|| panic!("{}", status(address)));
}

#[test]
fn daemons_and_tools_start_without_the_master() {
    let hbase = HBase::with_tables();
    hbase.stop_master();
    for ack in ["storage", "log"] {
        let data = directory();
        let daemon = daemon(&hbase, data.path(), ack).start();
        put(daemon.address(), ack, 0, 10);
        check(daemon.address(), ack, 10);
        assert!(daemon.terminate().success());
    }
    // Only the master can create the log table.
    let data = directory();
    let impatient =
        daemon(&hbase, data.path(), "cluster").env("TSD_STORAGE_HBASE_START_TIMEOUT", "3");
    let (exit, stderr) = impatient.run_to_exit();
    assert!(!exit.success());
    let expected = "table tsdb-log does not exist; HBase's master is needed to create it";
    assert!(stderr.contains(expected), "{stderr}");
    hbase.start_master();
    let first = daemon(&hbase, data.path(), "cluster").start();
    put(first.address(), "cluster", 0, 10);
    first.kill();
    hbase.stop_master();
    let second = daemon(&hbase, data.path(), "cluster").start();
    put(second.address(), "cluster", 10, 20);
    check(second.address(), "cluster", 20);
    // The other levels see that the log is in use.
    for ack in ["storage", "log"] {
        let other = directory();
        let (exit, stderr) = daemon(&hbase, other.path(), ack).run_to_exit();
        assert!(!exit.success() && stderr.contains("tsd.storage.ack = cluster"), "{stderr}");
    }
    let shown = hbase.tool(&["cluster", "settings"], &CLUSTER);
    assert!(shown.status.success(), "{shown:?}");
    hbase.start_master();
    let _ = second.wait_for_event("the attributes of the log table are right", |_| true);
    assert!(second.terminate().success());
}

#[test]
fn attributes_of_the_log_table_are_checked_when_the_master_is_back() {
    let hbase = HBase::with_tables();
    let data = directory();
    assert!(daemon(&hbase, data.path(), "cluster").start().terminate().success());
    hbase.stop_master();
    hbase.alter_table("tsdb-log", "SPLIT_ENABLED", "true");
    let daemon = daemon(&hbase, data.path(), "cluster").start();
    put(daemon.address(), "m", 0, 10);
    assert!(!status(daemon.address()).contains("SPLIT_ENABLED"));
    hbase.start_master();
    let wrong = "SPLIT_ENABLED = true, not false";
    wait_for_status(daemon.address(), |status| status.contains(wrong));
    hbase.alter_table("tsdb-log", "SPLIT_ENABLED", "false");
    wait_for_status(daemon.address(), |status| !status.contains(wrong));
    assert!(daemon.terminate().success());
}

#[test]
fn held_rows_are_flushed_when_the_log_table_is_dropped() {
    let hbase = HBase::with_tables();
    let data = directory();
    let node = daemon(&hbase, data.path(), "cluster").start();
    put(node.address(), "m", 0, 100);
    assert_eq!(hbase.cells("tsdb"), 0, "the rows are held");
    hbase.drop_table("tsdb-log");
    let lost = "table tsdb-log does not exist any more";
    wait_for_status(node.address(), |status| status.contains(lost));
    let refused = http(node.address(), "POST", "/api/put", Some(&body("m", 100, 110)));
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("tsdb-log"), "{}", refused.body);
    wait_for(|| (hbase.cells("tsdb") > 0).then_some(())).expect("the rows are flushed");
    assert!(node.terminate().success());
    let other = directory();
    let reader = hbase.daemon(other.path()).start();
    check(reader.address(), "m", 100);
    assert!(reader.terminate().success());
    let next = daemon(&hbase, data.path(), "cluster").start();
    let new = next.events_at_level("WARN");
    assert!(new.iter().any(|event| event.to_string().contains("the log is new")), "{new:?}");
    check(next.address(), "m", 100);
    assert!(next.terminate().success());
}

#[test]
fn a_stop_without_log_table_and_data_table_says_what_is_lost() {
    let hbase = HBase::with_tables();
    let data = directory();
    let node = daemon(&hbase, data.path(), "cluster").env("TSD_SHUTDOWN_TIMEOUT", "4").start();
    put(node.address(), "m", 0, 100);
    hbase.set_enabled("tsdb", false);
    hbase.drop_table("tsdb-log");
    wait_for_status(node.address(), |status| status.contains("does not exist any more"));
    node.signal("TERM");
    let line = || {
        let stderr = node.stderr();
        stderr.lines().last().filter(|line| line.contains("are lost")).map(str::to_owned)
    };
    let line = wait_for(line).unwrap_or_else(|| panic!("{}", node.stderr()));
    assert!(line.contains("acknowledged points are lost (rows: 1): table tsdb-log"), "{line}");
    assert!(!node.wait().success());
}

#[test]
fn a_disabled_or_missing_table_is_a_problem_before_the_flush() {
    for ack in ["log", "cluster"] {
        let hbase = HBase::with_tables();
        let data = directory();
        let daemon = daemon(&hbase, data.path(), ack).env("TSD_SHUTDOWN_TIMEOUT", "2").start();
        put(daemon.address(), "m", 0, 10);
        hbase.set_enabled("tsdb", false);
        let disabled = "table tsdb is disabled in HBase";
        wait_for_status(daemon.address(), |status| status.contains(disabled));
        // Points are still acknowledged, because the log has them.
        put(daemon.address(), "m", 10, 20);
        hbase.set_enabled("tsdb", true);
        wait_for_status(daemon.address(), |status| !status.contains(disabled));
        check(daemon.address(), "m", 20);
        hbase.drop_table("tsdb");
        let missing = "table tsdb does not exist in HBase";
        wait_for_status(daemon.address(), |status| status.contains(missing));
        daemon.kill();
    }
}
