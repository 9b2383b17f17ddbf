//! The daemon while HBase is unavailable, with each way of acknowledging points.

use std::{fs, io::Write, thread};

use tsd_testkit::{connect, http, wait_for};

use super::{FIRST_SECOND, HBase, body, check, directory, metric, put, wait_until_readable};

#[test]
fn with_ack_log_no_point_is_lost_while_hbase_is_unavailable() {
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase.daemon_with_log(data.path()).start();
    put(daemon.address(), "m", 0, 10);
    check(daemon.address(), "m", 10);
    hbase.stop();
    // The UIDs are cached, so points are accepted.
    for from in (10..500).step_by(10) {
        put(daemon.address(), "m", from, from + 10);
    }
    daemon.kill();
    // The daemon starts without HBase and replays the acknowledged points.
    let daemon = hbase.patient_daemon_with_log(data.path()).start();
    let ready = daemon.events("ready to serve");
    assert_eq!(ready[0]["replayed_cells"], 500);
    hbase.restart();
    wait_until_readable(&daemon, "m");
    check(daemon.address(), "m", 500);
    put(daemon.address(), "m", 500, 510);
    assert!(daemon.terminate().success());

    // Everything was flushed, so a daemon with an empty directory also reads it.
    let other = directory();
    let daemon = hbase.daemon(other.path()).start();
    check(daemon.address(), "m", 510);
}

#[test]
fn a_daemon_stopped_while_hbase_is_unavailable_keeps_its_log() {
    let hbase = HBase::with_tables();
    let data = directory();
    let start = || hbase.daemon_with_log(data.path()).env("TSD_SHUTDOWN_TIMEOUT", "2");
    let daemon = start().start();
    put(daemon.address(), "m", 0, 10);
    hbase.stop();
    put(daemon.address(), "m", 10, 20);
    assert!(daemon.terminate().success());
    hbase.restart();
    // With `ack = storage` the log is first flushed to HBase.
    let daemon = hbase.daemon(data.path()).start();
    check(daemon.address(), "m", 20);
    assert!(daemon.terminate().success());
    // The log of one cluster is not replayed into another cluster.
    let daemon = start().start();
    put(daemon.address(), "m", 20, 30);
    daemon.kill();
    let other_cluster = HBase::with_tables();
    let (status, stderr) = other_cluster.daemon_with_log(data.path()).run_to_exit();
    assert!(!status.success());
    assert!(stderr.contains("contains rows of the HBase at"), "{stderr}");
    let daemon = start().start();
    wait_until_readable(&daemon, "m");
    check(daemon.address(), "m", 30);
}

#[test]
fn a_log_directory_that_is_missing_stops_the_start_unless_it_was_empty() {
    let hbase = HBase::with_tables();
    let data = directory();
    let log = data.path().join("hbase-log");
    let start = || hbase.daemon_with_log(data.path()).env("TSD_SHUTDOWN_TIMEOUT", "2");
    // A first start, and a log that was closed empty.
    let daemon = start().start();
    put(daemon.address(), "m", 0, 10);
    assert!(daemon.terminate().success());
    fs::remove_dir_all(&log).expect("a log");
    let daemon = start().start();
    put(daemon.address(), "m", 10, 20);
    hbase.stop();
    put(daemon.address(), "m", 20, 30);
    let is_clean = daemon.terminate().success();
    assert!(is_clean && log.exists());
    let kept = data.path().join("kept");
    fs::rename(&log, &kept).expect("a log");
    hbase.restart();
    for daemon in [start(), hbase.daemon(data.path())] {
        let (status, stderr) = daemon.run_to_exit();
        assert!(!status.success());
        assert!(stderr.contains("hbase-log is missing") && stderr.contains("--accept-damage"));
        assert!(!log.exists(), "nothing was changed");
    }
    // An empty directory in its place is not the log either.
    fs::create_dir(&log).expect("a directory");
    assert!(!start().run_to_exit().0.success());
    fs::remove_dir_all(&log).expect("a directory");
    fs::rename(&kept, &log).expect("the log");
    let daemon = start().start();
    wait_until_readable(&daemon, "m");
    check(daemon.address(), "m", 30);
    daemon.kill();
    // After a kill the daemon cannot know that HBase has all points, so one consent is needed.
    fs::remove_dir_all(&log).expect("a log");
    assert!(!start().run_to_exit().0.success());
    let daemon = start().args(&["--accept-damage"]).start();
    put(daemon.address(), "m", 30, 40);
    daemon.kill();
    let daemon = start().start();
    check(daemon.address(), "m", 40);
}

#[test]
fn a_full_log_rejects_points_and_loses_none() {
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase
        .daemon_with_log(data.path())
        .env("TSD_STORAGE_LOG_MAX_SIZE", "1048576")
        .env("TSD_STORAGE_WRITE_DEADLINE", "20000")
        .start();
    put(daemon.address(), "m", 0, 1);
    hbase.stop();
    let mut accepted = 1;
    let rejected = loop {
        let body = body("m", accepted, accepted + 500);
        let response = http(daemon.address(), "POST", "/api/put", Some(&body));
        if response.status != 204 {
            break response;
        }
        accepted += 500;
        assert!(accepted < 900_000, "the log has no bound");
    };
    assert_eq!(rejected.status, 503, "{}", rejected.body);
    // A point on telnet is held until the log accepts it.
    let mut telnet = connect(daemon.address());
    telnet
        .write_all(format!("put m {} {accepted} host=a\n", FIRST_SECOND + accepted).as_bytes())
        .expect("send");
    let is_held = || (metric(&daemon, "tsd_write_held_points") >= 1.0).then_some(());
    wait_for(is_held).expect("the point is held");
    assert!(metric(&daemon, "tsd_wal_rejected_writes_total") > 0.0);
    assert!(metric(&daemon, "tsd_wal_log_bytes") > 0.0);
    hbase.restart();
    let accepted_again = || {
        let body = body("m", accepted, accepted + 500);
        (http(daemon.address(), "POST", "/api/put", Some(&body)).status == 204).then_some(())
    };
    wait_for(accepted_again).expect("the log accepts points again");
    wait_until_readable(&daemon, "m");
    check(daemon.address(), "m", accepted + 500);
}

#[test]
fn with_ack_storage_puts_are_rejected_within_the_deadline_while_hbase_is_unavailable() {
    const CLIENTS: u64 = 100;
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase.daemon(data.path()).env("TSD_STORAGE_WRITE_DEADLINE", "1500").start();
    let address = daemon.address();
    for client in 0..CLIENTS {
        put(address, &format!("m{client}"), 0, 1);
    }
    hbase.stop();
    let statuses = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let body = body(&format!("m{client}"), 1, 11);
                    http(address, "POST", "/api/put", Some(&body)).status
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}");
    hbase.restart();
    for client in 0..CLIENTS {
        let metric = format!("m{client}");
        wait_until_readable(&daemon, &metric);
        // A 503 asks for a retry. Points that were stored nevertheless are rewritten as the same cells.
        let retry = || {
            let response = http(address, "POST", "/api/put", Some(&body(&metric, 1, 11)));
            (response.status == 204).then_some(())
        };
        wait_for(retry).expect("HBase is available");
        check(address, &metric, 11);
    }
}
