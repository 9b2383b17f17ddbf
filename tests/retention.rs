//! Tests the retention of the embedded store from outside: reads, rejected puts, drops, and wrong
//! clocks.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use tsd_testkit::{Daemon, DaemonBuilder, ProcessClock, http, wait_for};

use crate::{TSDB, tsdb};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
}

/// Memtables that are flushed soon.
fn daemon(data: &Path) -> DaemonBuilder {
    tsdb(data).env("TSD_STORAGE_MEMTABLE_MAX_AGE", "1").env("TSD_HTTP_QUERY_ALLOW_DELETE", "true")
}

/// Puts a point at each time, with the time as value.
fn put(address: SocketAddr, metric: &str, times: &[u64]) {
    let point = |t: &u64| {
        format!(r#"{{"metric":"{metric}","timestamp":{t},"value":{t},"tags":{{"host":"a"}}}}"#)
    };
    let body = format!("[{}]", times.iter().map(point).collect::<Vec<_>>().join(","));
    let response = http(address, "POST", "/api/put?details", Some(&body));
    assert_eq!(response.status, 200, "{}", response.body);
}

fn json(address: SocketAddr, method: &str, uri: &str, body: Option<&str>) -> Value {
    let response = http(address, method, uri, body);
    assert_eq!(response.status, 200, "{uri}: {}", response.body);
    serde_json::from_str(&response.body).expect("JSON")
}

/// Times of the points of a metric; `method` is GET or DELETE.
fn times(address: SocketAddr, method: &str, metric: &str) -> Vec<u64> {
    let end = now_secs() + 1_000;
    let uri = format!("/api/query?start=1&end={end}&m=sum:{metric}");
    let response = http(address, method, &uri, None);
    if response.status == 400 && response.body.contains("No such name") {
        return Vec::new();
    }
    assert_eq!(response.status, 200, "{}", response.body);
    let answer: Value = serde_json::from_str(&response.body).expect("JSON");
    let Some(points) = answer[0]["dps"].as_object() else { return Vec::new() };
    points.keys().map(|time| time.parse().expect("a time")).collect()
}

fn metric(address: SocketAddr, name: &str) -> f64 {
    tsd_testkit::metric(address, name).unwrap_or_else(|| panic!("no {name}"))
}

fn await_metric(daemon: &Daemon, name: &str, least: f64) {
    let is_reached = || (metric(daemon.address(), name) >= least).then_some(());
    wait_for(is_reached).unwrap_or_else(|| panic!("{name} stays below {least}"));
}

fn problems(address: SocketAddr) -> Vec<Value> {
    let status = json(address, "GET", "/api/status", None);
    status["problems"].as_array().expect("a list").clone()
}

/// True if a query of a metric reads points by series, which is many times faster than by rows.
fn is_read_by_series(address: SocketAddr, metric: &str) -> bool {
    let uri = format!("/api/query?start=1&end={}&m=sum:{metric}&explain", now_secs() + 1_000);
    json(address, "GET", &uri, None)["explain"][0]["reads"][0]["bySeries"] == true
}

/// Ten points, one a day, the last now.
fn ten_days() -> Vec<u64> {
    let now = now_secs();
    (0..10).rev().map(|age| now - age * DAY).collect()
}

fn kept(all: &[u64], days: u64) -> Vec<u64> {
    let cutoff = now_secs() - days * DAY;
    let cutoff = cutoff - cutoff % HOUR;
    all.iter().copied().filter(|time| *time >= cutoff).collect()
}

#[test]
fn expired_points_are_hidden_refused_and_dropped() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all = ten_days();
    let running = daemon(dir.path()).start();
    put(running.address(), "m", &all);
    assert_eq!(times(running.address(), "GET", "m"), all);
    assert!(running.terminate().success());

    let running = daemon(dir.path()).env("TSD_STORAGE_RETENTION", "5d").start();
    let address = running.address();
    let left = kept(&all, 5);
    assert!((4..=6).contains(&left.len()));
    assert_eq!(times(address, "GET", "m"), left, "at once");
    assert!(is_read_by_series(address, "m"));
    let exp = format!(
        r#"{{"time":{{"start":"1","end":"{}","aggregator":"sum"}},
            "metrics":[{{"id":"a","metric":"m"}}],
            "expressions":[{{"id":"e","expr":"a + 0"}}]}}"#,
        now_secs() + 1_000
    );
    let answer = json(address, "POST", "/api/query/exp", Some(&exp));
    let points = answer["outputs"][0]["dps"].as_array().expect("points");
    let found: Vec<u64> =
        points.iter().map(|p| p[0].as_f64().expect("a time") as u64 / 1_000).collect();
    assert_eq!(found, left);
    let gexp = format!("/api/query/gexp?start=1&end={}&exp=scale(sum:m,1)", now_secs() + 1_000);
    let answer = json(address, "GET", &gexp, None);
    assert_eq!(answer[0]["dps"].as_object().map(serde_json::Map::len), Some(left.len()));
    let last = "/api/query/last?timeseries=m%7Bhost=a%7D&back_scan=240";
    assert_eq!(json(address, "GET", last, None)[0]["value"], all[9].to_string());

    let refused = tsd_testkit::exchange(address, format!("put m {} 1 host=a\n", all[0]).as_bytes());
    let refused = String::from_utf8(refused).expect("UTF-8");
    let text = format!("put: illegal argument: timestamp {} is too old", all[0]);
    assert!(refused.starts_with(&text) && refused.contains("tsd.storage.retention"), "{refused}");
    // A rejected put assigns no UIDs.
    let old = format!(r#"{{"metric":"n","timestamp":{},"value":1,"tags":{{"host":"b"}}}}"#, all[0]);
    let refused = http(address, "POST", "/api/put?details", Some(&old));
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("Invalid timestamp: timestamp"), "{}", refused.body);
    let suggested = json(address, "GET", "/api/suggest?type=metrics", None);
    assert_eq!(suggested, serde_json::json!(["m"]));
    let annotation = format!(r#"{{"startTime":{},"description":"old"}}"#, all[0]);
    let refused = http(address, "POST", "/api/annotation", Some(&annotation));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("tsd.storage.retention"), "{}", refused.body);
    assert!(metric(address, "tsd_parts_retention_refused_puts_total") >= 3.0);

    await_metric(&running, "tsd_parts_retention_dropped_spans_total", 3.0);
    assert!(metric(address, "tsd_parts_retention_cutoff_timestamp_seconds") > 0.0);
    assert_eq!(times(address, "GET", "m"), left);
    assert_eq!(problems(address), Vec::<Value>::new());
    let status = json(address, "GET", "/api/status", None);
    let number = |name: &str| status["retention"][name].as_u64().expect("a number");
    assert_eq!(
        number("oldestCutoff"),
        metric(address, "tsd_parts_retention_cutoff_timestamp_seconds") as u64
    );
    assert_eq!((number("defaultSeconds"), number("rules")), (5 * DAY, 0));
    assert!(number("droppedSpans") >= 3 && number("droppedBytes") > 0, "{status}");
    assert!(number("refusedPuts") >= 3 && number("now").abs_diff(now_secs()) < DAY, "{status}");
    assert!(running.terminate().success());

    // Without a retention nothing comes back, and old points are accepted only after the floor.
    let running = daemon(dir.path()).start();
    assert_eq!(times(running.address(), "GET", "m"), left);
    assert_eq!(times(running.address(), "DELETE", "m"), left);
    assert_eq!(times(running.address(), "GET", "m"), Vec::<u64>::new());
    assert!(running.terminate().success());
}

#[test]
fn rules_by_metric_follow_their_file_and_a_snapshot_has_no_more_than_is_kept() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (data, rules) = (dir.path().join("data"), dir.path().join("rules"));
    fs::write(&rules, "# none yet\n").expect("the rules");
    let all = ten_days();
    let start = |data: &Path| {
        daemon(data)
            .env("TSD_STORAGE_RETENTION", "8d")
            .env("TSD_STORAGE_RETENTION_FILE", &rules.to_string_lossy())
            .start()
    };
    let running = start(&data);
    let address = running.address();
    // The metrics come before their rules.
    for metric in ["debug.a", "audit.a"] {
        put(address, metric, &kept(&all, 8));
    }
    fs::write(&rules, "debug.* 3d\n*.a forever\n").expect("the rules");
    running.signal("HUP");
    let is_followed = || {
        let expected = kept(&all, 3);
        (times(address, "GET", "debug.a") == expected).then_some(())
    };
    wait_for(is_followed).expect("the shorter retention applies");
    assert!(is_read_by_series(address, "debug.a") && is_read_by_series(address, "audit.a"));
    assert_eq!(times(address, "GET", "audit.a"), kept(&all, 8));
    let old = format!("put debug.a {} 1 host=a\nput audit.a {} 1 host=a\n", all[4], all[4]);
    let refused = tsd_testkit::exchange(address, old.as_bytes());
    let refused = String::from_utf8(refused).expect("UTF-8");
    assert_eq!(refused.matches("is too old").count(), 1, "{refused}");

    // A broken file is reported and changes nothing.
    fs::write(&rules, "debug.* 1d\naudit.a\n").expect("the rules");
    running.signal("HUP");
    await_metric(&running, "tsd_file_invalid{file=\"retentions by metric\"}", 1.0);
    let problem = problems(address).into_iter().find(|p| p["part"] == "files");
    let reason = problem.expect("a problem")["reason"].to_string();
    assert!(reason.contains("line 2") && reason.contains("unchanged"), "{reason}");
    assert_eq!(times(address, "GET", "debug.a"), kept(&all, 3));

    // Without a retention, the restored store hides possibly discarded points.
    let (target, restored) = (dir.path().join("snapshot"), dir.path().join("restored"));
    tool(&["snapshot"], &data, &target);
    assert!(running.terminate().success());
    tool(&["restore"], &restored, &target);
    fs::write(&rules, "*.a forever\n").expect("the rules");
    for _ in 0..2 {
        let running = start(&restored);
        assert_eq!(times(running.address(), "GET", "audit.a"), kept(&all, 8));
        assert_eq!(problems(running.address()), Vec::<Value>::new());
        assert!(running.terminate().success());
    }
    tool(&["verify"], &restored, Path::new("--json"));
}

/// Runs a command of the tool that must succeed.
fn tool(arguments: &[&str], data: &Path, argument: &Path) {
    let mut command = Command::new(TSDB);
    command.args(arguments).arg("--data").arg(data).arg(argument);
    let output = command.output().expect("run tsdb");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[test]
fn a_clock_set_forward_by_years_does_not_delete_the_store() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let clock = ProcessClock::prepare(dir.path()).expect("a C compiler");
    let set_clock = |years: i64| clock.set_offset(years * 365 * 86_400);
    let data = dir.path().join("data");
    let start = || clock.apply(daemon(&data).env("TSD_STORAGE_RETENTION", "20d")).start();
    let all = ten_days();
    let running = start();
    put(running.address(), "m", &all);
    assert_eq!(problems(running.address()), Vec::<Value>::new());
    // While it runs, and over restarts.
    set_clock(10);
    let is_ahead = || problems(running.address()).into_iter().find(|p| p["part"] == "retention");
    let problem = wait_for(is_ahead).expect("a problem");
    assert!(problem["reason"].to_string().contains("hours ahead"), "{problem}");
    assert_eq!(times(running.address(), "GET", "m"), all);
    put(running.address(), "m", &[now_secs()]);
    running.kill();
    for _ in 0..2 {
        let running = start();
        let address = running.address();
        assert_eq!(times(address, "GET", "m").len(), all.len() + 1);
        assert!(metric(address, "tsd_parts_retention_clock_ahead_seconds") > 86_400.0 * 365.0);
        assert_eq!(running.events_at_level("WARN").len().min(1), 1);
        // Flushes and drops have had their time.
        await_metric(&running, "tsd_parts_files", 1.0);
        assert!(metric(address, "tsd_parts_retention_dropped_spans_total") < 0.5);
        assert!(running.terminate().success());
    }
    // The problem names the setting that declares the clock correct.
    assert!(problem["reason"].to_string().contains("tsd.storage.accept_clock"), "{problem}");
    set_clock(-1);
    let running = start();
    assert_eq!(times(running.address(), "GET", "m").len(), all.len() + 1);
    assert!(running.terminate().success());
    set_clock(0);
    let running = start();
    assert_eq!(times(running.address(), "GET", "m").len(), all.len() + 1);
    assert_eq!(problems(running.address()), Vec::<Value>::new());
    assert!(running.terminate().success());
}
