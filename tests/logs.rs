//! Tests `/logs` and `tsd.http.staticroot` of a daemon process.

use std::fs;

use serde_json::Value;
use tsd_testkit::{Daemon, exchange, http, http_binary, wait_for};

use crate::tsdb;

/// Message that a daemon logs on a busy disk.
const SLOW_COMMIT: &str = "slow commit";

#[test]
fn events_of_the_process_are_listed_and_its_level_is_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = tsdb(&directory.path().join("data")).start();
    let get = |uri: &str| http(daemon.address(), "GET", uri, None).body;
    let ready = get("/logs");
    let line = ready.lines().find(|line| line.contains("ready to serve")).expect("the start");
    let fields: Vec<&str> = line.split('\t').collect();
    assert_eq!((fields.len(), fields[1], fields[3]), (5, "INFO", "tsd_cli::daemon"), "{line}");
    assert!(fields[0].parse::<u64>().is_ok() && fields[4].contains("address="), "{line}");
    let newest = get("/logs?level=debug&logger=tsd_cli::node");
    assert_eq!(newest, "Set the log level to DEBUG on 1 logger.\n");
    // Newest first; the daemon may have logged other messages since.
    let lines = get("/logs");
    let at = |text: &str| lines.lines().position(|line| line.contains(text)).expect("an event");
    assert!(at("the log level was set") < at("ready to serve"), "{lines}");
    let all = get("/logs?level=off");
    let count = all
        .strip_prefix("Set the log level to OFF on ")
        .and_then(|rest| rest.strip_suffix(" loggers.\n"))
        .unwrap_or_else(|| panic!("{all}"));
    assert!(count.parse::<usize>().is_ok_and(|count| count > 1), "{all}");
    let before = get("/logs");
    assert_eq!(get("/logs?level=warn&logger=tsd_cli"), "Set the log level to WARN on 1 logger.\n");
    assert_eq!(get("/logs"), before, "nothing of this level is logged");
    // The configuration's level is restored.
    daemon.signal("HUP");
    tsd_testkit::wait_for(|| get("/logs").contains("SIGHUP: reloaded").then_some(()))
        .expect("an event at the level of the configuration");
    let metrics = get("/metrics");
    assert!(metrics.contains("tsd_server_log_events_total{level=\"info\"}"), "{metrics}");
    assert!(daemon.terminate().success());
}

#[test]
fn slow_queries_are_logged_with_their_costs() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = tsdb(&directory.path().join("data")).args(&["--auto-metric"]);
    let daemon = daemon.env("TSD_QUERY_SLOW_LOG", "1").start();
    let points = (0..5_000).map(|at| {
        format!(
            r#"{{"metric":"m","timestamp":{},"value":1,"tags":{{"h":"a"}}}}"#,
            1_600_000_000 + at
        )
    });
    let body = format!("[{}]", points.collect::<Vec<_>>().join(","));
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(&body)).status, 204);
    let uri = "/api/query?start=1600000000&end=1600010000&m=sum:m%7Bh=a%7D";
    let slow = tsd_testkit::wait_for(|| {
        assert_eq!(http(daemon.address(), "GET", uri, None).status, 200);
        daemon.events("slow query").into_iter().next()
    })
    .expect("a query of a millisecond");
    assert_eq!((&slow["level"], &slow["outcome"]), (&"WARN".into(), &"sent".into()), "{slow}");
    assert_eq!((&slow["points"], &slow["emitted_points"]), (&5_000.into(), &5_000.into()));
    assert!(slow["took_ms"].as_u64() >= Some(1) && slow["bytes"].as_u64() > Some(0), "{slow}");
    let query: Value = serde_json::from_str(slow["query"].as_str().expect("a text")).expect("JSON");
    assert_eq!(query["queries"][0]["metric"], "m");
    assert!(slow["remote"].as_str().is_some_and(|remote| remote.starts_with("127.0.0.1:")));
}

#[test]
fn log_lines_name_the_request_or_the_connection() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = tsdb(&directory.path().join("data")).args(&["--auto-metric"]);
    let daemon = daemon.env("TSD_QUERY_SLOW_LOG", "1").start();
    let address = daemon.address();
    let id = "trace-42";
    let headers = format!("X-Request-Id: {id}\r\n");
    let get = |uri: &str, headers: &str| http_binary(address, "GET", uri, headers);
    let answer = get("/api/version", &headers);
    assert_eq!(answer.header("X-Request-Id"), Some(id));
    for unsafe_id in ["", "X-Request-Id: a b\r\n", "X-Request-Id: {\"a\":1}\r\n"] {
        let answer = get("/api/version", unsafe_id);
        let generated = answer.header("X-Request-Id").expect("an id").to_owned();
        assert!(generated.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'), "{generated}");
    }
    let refused = get("/api/uid/rename?metric=a&name=b", &format!("{headers}Forwarded: for=x\r\n"));
    assert_eq!((refused.status, refused.header("X-Request-Id")), (403, Some(id)));
    let _ = daemon.wait_for_event("a request was refused", |event| event["request"] == id);
    let slow = wait_for(|| {
        let _ = get("/api/query?start=1h-ago&m=sum:tsd.none", &headers);
        let _ = get("/api/search/lookup?m=*", &headers);
        daemon.events("slow query").into_iter().next()
    });
    assert_eq!(slow.expect("a query of a millisecond")["request"], id);
    // Lines of the threads that read have the id too.
    let body = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"h":"a"}}"#;
    assert_eq!(http(address, "POST", "/api/put", Some(body)).status, 204);
    assert_eq!(get("/logs?level=debug&logger=tsd_read", "").status, 200);
    assert_eq!(get("/api/query?start=1356998400&end=1357000000&m=sum:m", &headers).status, 200);
    let _ = daemon.wait_for_event("planned", |event| event["request"] == id);
    let reply = exchange(address, b"put m 1356998400 x h=a\n");
    assert!(!reply.is_empty(), "an error");
    let refused = daemon.wait_for_event("a point was refused", |_| true);
    assert!(refused["connection"].as_u64() > Some(0), "{refused}");
    assert_eq!(refused.get("request"), None, "{refused}");
    let malformed = String::from_utf8_lossy(&exchange(address, b"GET\r\n\r\n")).into_owned();
    assert!(malformed.contains("\r\nX-Request-Id: "), "{malformed}");
}

/// Warnings other than about a slow disk.
fn warnings(daemon: &Daemon) -> Vec<Value> {
    let mut warnings = daemon.events_at_level("WARN");
    warnings.retain(|event| !event.to_string().contains(SLOW_COMMIT));
    warnings
}

#[test]
fn static_root_of_another_installation_may_be_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("static");
    let start = || {
        tsdb(&directory.path().join("data"))
            .args(&["--staticroot", root.to_str().expect("a path")])
            .start()
    };
    let daemon = start();
    assert_eq!(http(daemon.address(), "GET", "/s/a.css", None).status, 404);
    assert_eq!(http(daemon.address(), "GET", "/favicon.ico", None).status, 200);
    assert_eq!(warnings(&daemon).len(), 1, "{:?}", warnings(&daemon));
    assert!(daemon.terminate().success());
    fs::create_dir(&root).expect("a directory");
    fs::write(root.join("a.css"), "a{}").expect("a file");
    let daemon = start();
    assert_eq!(http(daemon.address(), "GET", "/s/a.css", None).body, "a{}");
    assert!(warnings(&daemon).is_empty(), "{:?}", warnings(&daemon));
    assert!(daemon.terminate().success());
}
