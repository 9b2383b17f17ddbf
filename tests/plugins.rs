//! Tests built-in plug-ins from outside: their settings, the files that they follow, and their effect on tools.

use std::{fs, process::Command};

use tsd_testkit::{exchange, http, wait_for};

use crate::{TSDB, WRONG_CONFIGURATION, hbase_fake::HBase, invariants::ROLLUPS, tsdb};

#[test]
fn a_daemon_and_an_import_follow_the_rules_of_the_time_series_filter() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, rules) = (directory.path().join("data"), directory.path().join("rules"));
    fs::write(&rules, "deny tmp.*\n").expect("write");
    let settings = [
        ("TSD_TIMESERIESFILTER_ENABLE", "true"),
        ("TSD_TIMESERIESFILTER_PLUGIN", "rules"),
        ("TSD_TIMESERIESFILTER_RULES_FILE", rules.to_str().expect("a path")),
    ];
    let builder =
        || settings.iter().fold(tsdb(&data), |daemon, (key, value)| daemon.env(key, value));
    let daemon = builder().start();
    let put = |metric: &str| {
        let line = format!("put {metric} 1600000000 1 host=a\nexit\n");
        String::from_utf8_lossy(&exchange(daemon.address(), line.as_bytes())).into_owned()
    };
    assert_eq!(put("m"), "");
    assert!(put("tmp.x").contains("line 1 of its rules"));
    fs::write(&rules, "permit *\n").expect("write");
    daemon.signal("HUP");
    let _ = daemon
        .wait_for_event("the file of rules of the filter is invalid; they are unchanged", |_| true);
    assert!(put("tmp.x").contains("line 1 of its rules"));
    fs::write(&rules, "allow tmp.*\ndeny *\n").expect("write");
    daemon.signal("HUP");
    wait_for(|| put("tmp.x").is_empty().then_some(())).expect("the new rules");
    assert!(put("m").contains("line 2 of its rules"), "a series that was cached");
    assert!(daemon.terminate().success());

    let points = directory.path().join("points");
    fs::write(&points, "tmp.x 1600000001 1 host=a\nm 1600000001 1 host=a\n").expect("write");
    let output = Command::new(TSDB)
        .envs(settings)
        .args(["import", "--skip-errors", "--data", data.to_str().expect("a path")])
        .arg(&points)
        .output()
        .expect("run tsdb");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let shown = format!("{}{stderr}", String::from_utf8_lossy(&output.stdout));
    assert!(shown.contains("line 2 of its rules"), "{shown}");

    fs::remove_file(&rules).expect("remove");
    let (status, stderr) = builder().run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    assert!(stderr.contains("tsd.timeseriesfilter.rules_file"), "{stderr}");
}

#[test]
fn stored_points_are_published_to_a_file_and_those_of_an_import_into_the_directory_are_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, file) = (directory.path().join("data"), directory.path().join("published"));
    let settings = [
        ("TSD_RTPUBLISHER_ENABLE", "true"),
        ("TSD_RTPUBLISHER_PLUGIN", "file"),
        ("TSD_RTPUBLISHER_FILE", file.to_str().expect("a path")),
    ];
    let builder =
        || settings.iter().fold(tsdb(&data), |daemon, (key, value)| daemon.env(key, value));
    let daemon = builder().start();
    assert_eq!(exchange(daemon.address(), b"put m 1600000000 1 host=a\nexit\n"), b"");
    assert!(daemon.terminate().success());
    let published = fs::read_to_string(&file).expect("the file");
    let line = r#"{"type":"point","metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"},"tsuid":"000001000001000001"}"#;
    assert_eq!(published, format!("{line}\n"), "a shutdown delivers what is queued");

    let points = directory.path().join("points");
    fs::write(&points, "m 1600000001 1 host=a\n").expect("write");
    let output = Command::new(TSDB)
        .envs(settings)
        .args(["import", "--data", data.to_str().expect("a path")])
        .arg(&points)
        .output()
        .expect("run tsdb");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&file).expect("the file"), published);
}

/// Points that HBase rejected are in the spool, and after an import in HBase.
#[test]
fn what_hbase_refuses_is_spooled_and_replayed() {
    let hbase = HBase::with_tables();
    let directory = tempfile::tempdir().expect("a directory");
    let spool = directory.path().join("spool");
    let daemon = hbase
        .daemon(&directory.path().join("data"))
        .env("TSD_CORE_STORAGE_EXCEPTION_HANDLER_ENABLE", "true")
        .env("TSD_CORE_STORAGE_EXCEPTION_HANDLER_PLUGIN", "spool")
        .env("TSD_CORE_STORAGE_EXCEPTION_HANDLER_DIRECTORY", spool.to_str().expect("a path"))
        .start();
    let put = |time: u64, value: &str| {
        let body = format!(
            r#"[{{"metric":"m","timestamp":{time},"value":{value},"tags":{{"host":"a"}}}}]"#
        );
        http(daemon.address(), "POST", "/api/put?sync&details", Some(&body))
    };
    assert_eq!(put(1_600_000_000, "1.5").status, 200);
    hbase.stop();
    // Later times first: the spool is not ordered by time.
    for (time, value) in [(1_600_000_002, "0.1"), (1_600_000_001, "12345.6")] {
        let refused = put(time, value);
        assert!(refused.status != 204 && refused.body.contains("\"failed\":1"), "{}", refused.body);
    }
    hbase.restart();
    wait_for(|| (put(1_600_000_003, "3.5").status == 200).then_some(())).expect("HBase");
    let query = |address| {
        let uri = "/api/query?start=1599999999&end=1600000010&m=none:m";
        http(address, "GET", uri, None).body
    };
    assert!(!query(daemon.address()).contains("1600000001"));
    assert!(daemon.terminate().success());

    let file = fs::read_dir(&spool).expect("the spool").next().expect("a file").expect("an entry");
    let path = file.path();
    let output = hbase.tool(&["import", "--spool", path.to_str().expect("a path")], &[]);
    assert!(output.status.success(), "{output:?}");
    let daemon = hbase.daemon(&directory.path().join("data")).start();
    let found = query(daemon.address());
    let dps = r#""dps":{"1600000000":1.5,"1600000001":12345.6,"1600000002":0.1,"1600000003":3.5}"#;
    assert!(found.contains(dps), "{found}");
}

/// Histograms, rolled-up values, pre-aggregates and names with blanks are spooled, too, and replayed through a daemon.
#[test]
fn what_import_lines_cannot_hold_is_spooled_and_replayed() {
    let settings = [
        ("TSD_ROLLUPS_ENABLE", "true"),
        ("TSD_ROLLUPS_CONFIG", ROLLUPS),
        ("TSD_CORE_HISTOGRAMS_CONFIG", r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#),
        ("TSD_CORE_TAG_ALLOW_SPECIALCHARS", "+ +"),
    ];
    let hbase = HBase::with_tables_of(&settings);
    let directory = tempfile::tempdir().expect("a directory");
    let (data, spool) = (directory.path().join("data"), directory.path().join("spool"));
    let daemon = settings
        .iter()
        .fold(hbase.daemon(&data), |daemon, (key, value)| daemon.env(key, value))
        .env("TSD_CORE_STORAGE_EXCEPTION_HANDLER_ENABLE", "true")
        .env("TSD_CORE_STORAGE_EXCEPTION_HANDLER_PLUGIN", "spool")
        .env("TSD_CORE_STORAGE_EXCEPTION_HANDLER_DIRECTORY", spool.to_str().expect("a path"))
        .start();
    let post = |path: &str, body: &str| http(daemon.address(), "POST", path, Some(body));
    let series = r#""timestamp":1600000000,"tags":{"host":"web 1"}"#;
    let values = [
        ("/api/put", format!(r#"{{"metric":"a metric","value":1.25,{series}}}"#)),
        (
            "/api/rollup",
            format!(r#"{{"metric":"m","value":7,"interval":"1h","aggregator":"sum",{series}}}"#),
        ),
        (
            "/api/rollup",
            format!(
                r#"{{"metric":"m","value":9,"interval":"1h","aggregator":"max","groupByAggregator":"sum",{series}}}"#
            ),
        ),
        (
            "/api/rollup",
            format!(r#"{{"metric":"m","value":11,"groupByAggregator":"max",{series}}}"#),
        ),
        ("/api/histogram", format!(r#"{{"metric":"h","buckets":{{"0,10":5}},{series}}}"#)),
    ];
    // So that their series have UIDs.
    let earlier = |body: &str| body.replace("1600000000", "1599990000");
    for (path, body) in &values {
        let stored = post(&format!("{path}?sync&details"), &earlier(body));
        assert_eq!(stored.status, 200, "{}", stored.body);
    }
    hbase.stop();
    for (path, body) in &values {
        let refused = post(&format!("{path}?details"), body);
        assert!(refused.body.contains("\"failed\":1"), "{} {}", refused.status, refused.body);
    }
    hbase.restart();
    let ready = || (post("/api/put?sync", &earlier(&values[0].1)).status == 204).then_some(());
    wait_for(ready).expect("HBase");
    assert!(daemon.terminate().success());

    let file = fs::read_dir(&spool).expect("the spool").next().expect("a file").expect("an entry");
    let lines = fs::read_to_string(file.path()).expect("its lines");
    let kinds = |kind: &str| lines.matches(&format!("{{\"type\":\"{kind}\"")).count();
    assert_eq!([kinds("point"), kinds("rollup"), kinds("histogram")], [1, 3, 1], "{lines}");
    let daemon = settings
        .iter()
        .fold(hbase.daemon(&data), |daemon, (key, value)| daemon.env(key, value))
        .start();
    let url = format!("http://{}", daemon.address());
    let output = Command::new(TSDB)
        .args(["import", "--spool", "--url", &url])
        .arg(file.path())
        .output()
        .expect("run tsdb");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("imported 5 data points"), "{output:?}");
    for (m, expected) in [
        ("none:a%20metric", r#""dps":{"1600000000":1.25}"#),
        ("none:1h-sum:rollup_nofallback:m", r#""dps":{"1599998400":7.0}"#),
        ("sum:percentiles%5B50%5D:h", "\"1600000000\":5"),
    ] {
        let uri = format!("/api/query?start=1599998400&end=1600001000&m={m}");
        let found = http(daemon.address(), "GET", &uri, None);
        assert!(found.body.contains(expected), "{m}: {} {}", found.status, found.body);
    }
}
