//! Tests that refused points are reported to their sender, logged and counted.

#![expect(clippy::format_collect, reason = "tests")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tsd_testkit::{Daemon, http};

use crate::tsdb;

/// Tag values of a daemon whose UIDs have one byte.
const ALL: usize = 255;

fn get(daemon: &Daemon, uri: &str) -> String {
    http(daemon.address(), "GET", uri, None).body
}

/// Sends telnet lines and returns the replies.
fn exchange(daemon: &Daemon, lines: &[u8]) -> String {
    let replies = tsd_testkit::exchange(daemon.address(), lines);
    String::from_utf8(replies).expect("UTF-8")
}

fn metric(daemon: &Daemon, name: &str) -> f64 {
    tsd_testkit::metric(daemon.address(), name).expect("a sample")
}

#[test]
fn points_without_a_uid_left_are_answered_logged_and_counted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).env("TSD_STORAGE_UID_WIDTH_TAGV", "1").start();
    let points = |from: usize, to: usize| -> String {
        (from..to).map(|i| format!("put m 1600000000 {i} host=h{i}\n")).collect()
    };
    assert_eq!(exchange(&daemon, points(0, 200).as_bytes()), "");
    let status: Value = serde_json::from_str(&get(&daemon, "/api/status")).expect("JSON");
    assert_eq!(status, json!({ "status": "ok", "problems": [] }));
    // More refusals than a queue of replies or of failures holds.
    let sent = 5_000;
    let reported = exchange(&daemon, points(200, sent).as_bytes());
    let expected =
        "put: illegal argument: All Unique IDs for tagv on 1 bytes are already assigned!";
    assert_eq!(reported.lines().collect::<BTreeSet<_>>(), BTreeSet::from([expected]));
    assert_eq!(reported.lines().count(), sent - ALL, "each refused point is reported");

    let put = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"one-more"}}"#;
    let plain = http(daemon.address(), "POST", "/api/put", Some(put));
    assert_eq!(plain.status, 400, "{}", plain.body);
    let details = http(daemon.address(), "POST", "/api/put?details", Some(put));
    assert_eq!(details.status, 400);
    let text = "Unexpected exception: All Unique IDs for tagv on 1 bytes are already assigned!";
    assert!(details.body.contains(text), "{}", details.body);

    let logged = daemon.wait_for_event("a point was refused", |_| true);
    assert_eq!(logged["level"], "WARN");
    for (field, part) in
        [("reason", "All Unique IDs for tagv"), ("line", "m host=h"), ("peer", "127.0.0.1:")]
    {
        assert!(logged[field].to_string().contains(part), "{logged}");
    }
    assert_eq!(daemon.events("a point was refused").len(), 1, "one per interval and cause");
    assert!(exchange(&daemon, b"put m 1 x a=b\n").starts_with("put: invalid value"));
    let is_of_line = |event: &Value| event["line"].to_string().contains("put m 1 x a=b");
    assert_eq!(daemon.wait_for_event("a point was refused", is_of_line)["level"], "WARN");

    assert!(metric(&daemon, "tsd_uid_used{kind=\"tagv\"}") - 255.0 < 0.5);
    assert!(metric(&daemon, "tsd_uid_left{kind=\"tagv\"}") < 0.5);
    assert!(metric(&daemon, "tsd_uid_left{kind=\"metrics\"}") > 16e6);
    let status: Value = serde_json::from_str(&get(&daemon, "/api/status")).expect("JSON");
    assert_eq!(status["status"], "ok", "known series are stored");
    assert_eq!(status["problems"][0]["part"], "uid");
    let reason = "all 255 UIDs for tagv are assigned: points with new names are rejected";
    assert_eq!(status["problems"][0]["reason"], reason);
    assert_eq!(http(daemon.address(), "GET", "/api/health/ready", None).status, 200);
    assert!(daemon.terminate().success());
}

#[test]
fn a_problem_is_logged_when_it_begins_and_shown_as_a_gauge() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).env("TSD_STORAGE_UID_WIDTH_METRIC", "1").start();
    assert!(metric(&daemon, "tsd_health_problem{part=\"uid\"}") < 0.5);
    let points: String = (0..240).map(|i| format!("put m{i} 1600000000 1 a=b\n")).collect();
    assert_eq!(exchange(&daemon, points.as_bytes()), "");
    // The first check after the points; it publishes its problems before the next one ends.
    let mut checks = 0;
    while daemon.events("health problem").is_empty() {
        get(&daemon, "/api/status");
        std::thread::sleep(std::time::Duration::from_millis(10));
        checks += 1;
        assert!(checks < 3_000, "no message");
    }
    let begun = daemon.events("health problem");
    assert_eq!(begun.len(), 1);
    assert_eq!((&begun[0]["part"], &begun[0]["level"]), (&json!("uid"), &json!("WARN")));
    assert_eq!(begun[0]["reason"], "15 of 255 UIDs for metrics are left");
    assert!((metric(&daemon, "tsd_health_problem{part=\"uid\"}") - 1.0).abs() < 0.5);
    assert!(daemon.terminate().success());
}
