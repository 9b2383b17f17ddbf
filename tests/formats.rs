//! Data directories recorded in `data/formats/` are opened by today's daemon, which must return every
//! recorded point and annotation.
//!
//! **A change of a stored format says here what it does with these files**: it reads them, or converts them, or rejects them with
//! an error that names the version to use. A new format adds a recording and leaves the old recordings unchanged.
//!
//! | recording | contents |
//! |---|---|
//! | `parts-log` | embedded store after SIGKILL: everything in the log, the tables empty |
//! | `parts-log-deltas` | the same with segments of version 3: puts as differences between their rows |
//! | `parts-appends` | as `parts-log`, with `tsd.storage.enable_appends`: append records |
//! | `parts-tables` | embedded store after two clean shutdowns: points in parts, small tables in trees |
//! | `parts-summaries` | the same after one shutdown: a day of points every minute, whose sections have summaries |
//! | `parts-damaged` | the same after one shutdown, with a manifest of version 2 that has a damaged block, of a part of version 3 |
//! | `embedded-log`, `embedded-appends`, `embedded-tables` | the same with points in trees (format 1): refused |
//! | `hbase-log` | log of `tsd.storage.ack = log` after SIGKILL, before any row was flushed to HBase |
//!
//! `data/formats/README.md` has the command that makes new recordings.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Once,
};

use serde_json::{Map, Value, json};
use tsd_testkit::{BinaryResponse, DaemonBuilder, http, http_binary, metric};

use crate::{damage::part_files, hbase_fake::HBase, in_process, tsdb};

/// With the value 1, the tests record instead of comparing. With the name of a recording, they add this recording.
const RECORD: &str = "RECORD_FORMATS";
/// Names the cluster of the rows in a log before HBase.
const CLUSTER_FILE: &str = "hbase-log/cluster.conf";
/// ZooKeeper's address in recordings.
const RECORDED_QUORUM: &str = "127.0.0.1:2181";
/// Results of the queries, the same for all recordings.
const EXPECTED: &str = "expected.json";
/// Results of the queries on the recording with summaries, when all of its points were in memory.
const EXPECTED_SUMMARIES: &str = "expected-summaries.json";

/// Start of an hour.
const SECOND: u64 = 1_599_998_400;
/// Start of a UTC day.
const DAY_SECOND: u64 = 1_600_041_600;

#[test]
fn an_embedded_store_with_everything_in_its_log_is_read() {
    check_embedded("parts-log");
}

#[test]
fn an_embedded_store_with_puts_as_differences_in_its_log_is_read() {
    check_embedded("parts-log-deltas");
}

#[test]
fn an_embedded_store_with_append_records_in_its_log_is_read() {
    check_embedded("parts-appends");
}

#[test]
fn an_embedded_store_with_everything_in_tables_is_read() {
    check_embedded("parts-tables");
}

#[test]
fn an_embedded_store_with_summaries_is_read() {
    record_if_requested();
    let data = in_process::directory();
    copy(&recording("parts-summaries"), data.path());
    let daemon = tsdb(data.path()).start();
    let expected = fs::read_to_string(recording(EXPECTED_SUMMARIES)).expect("expected results");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    assert_eq!(summary_results(daemon.address()), expected);
    let count = metric(daemon.address(), "tsd_parts_summaries_total");
    assert!(count.is_some_and(|count| count > 100.0), "{count:?}");
    assert!(daemon.terminate().success());
}

#[test]
fn an_embedded_store_with_points_in_trees_is_refused_unchanged() {
    for name in ["embedded-log", "embedded-appends", "embedded-tables"] {
        let data = in_process::directory();
        copy(&recording(name), data.path());
        let (log, started) = tsdb(data.path()).try_start();
        let Err(status) = started else { panic!("{name} is not refused") };
        assert_eq!(status.code(), Some(1), "{name}: {log}");
        let line = log.lines().last().unwrap_or_default();
        assert!(line.contains("schema.conf was written by an earlier version"), "{name}: {line}");
        assert!(line.contains("--data"), "{name}: {line}");
        assert_eq!(contents(data.path()), contents(&recording(name)), "{name}");
    }
}

/// Every file below a directory with its bytes.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let bytes = fs::read(&path).expect("a file");
                let name = path.strip_prefix(directory).expect("a path below").to_owned();
                found.insert(name, bytes);
            }
        }
    }
    found
}

#[test]
fn a_log_before_hbase_is_replayed() {
    record_if_requested();
    let hbase = HBase::with_tables();
    let (other, data) = (in_process::directory(), in_process::directory());
    let daemon = hbase.daemon(other.path()).start();
    assign_uids(daemon.address());
    // They are written to HBase directly, not to the log.
    write_annotations(daemon.address());
    copy(&recording("hbase-log"), data.path());
    set_quorum(data.path(), RECORDED_QUORUM, hbase.quorum());
    let owner = hbase.daemon_with_log(data.path()).start();
    check_results(owner.address());
    assert!(owner.terminate().success());
    // Now all rows are in HBase.
    check_results(daemon.address());
}

/// Checks a recording unchanged, and again after its rows were flushed and compacted.
#[track_caller]
fn check_embedded(name: &str) {
    record_if_requested();
    let data = in_process::directory();
    copy(&recording(name), data.path());
    for _ in 0..2 {
        let daemon = tsdb(data.path()).start();
        assert!(daemon.events_at_level("ERROR").is_empty());
        check_results(daemon.address());
        assert!(daemon.terminate().success());
    }
}

/// Records everything, once, if the environment requests it.
fn record_if_requested() {
    static RECORDED: Once = Once::new();
    let requested = std::env::var(RECORD).unwrap_or_default();
    if requested == "parts-damaged" {
        RECORDED.call_once(record_damaged);
    } else if requested == "1" {
        RECORDED.call_once(|| {
            record_log("parts-log-deltas", "false");
            record_log("parts-appends", "true");
            record_tables();
            record_summaries();
            record_damaged();
            record_hbase_log();
        });
    }
}

fn record_log(name: &str, appends: &str) {
    let data = in_process::directory();
    let daemon = small(tsdb(data.path())).env("TSD_STORAGE_ENABLE_APPENDS", appends).start();
    assign_uids(daemon.address());
    write_first(daemon.address());
    write_second(daemon.address());
    write_annotations(daemon.address());
    save_results(daemon.address());
    daemon.kill();
    save(name, data.path());
}

fn record_tables() {
    let data = in_process::directory();
    let daemon = small(tsdb(data.path())).start();
    assign_uids(daemon.address());
    write_first(daemon.address());
    assert!(daemon.terminate().success());
    let daemon = small(tsdb(data.path())).start();
    write_second(daemon.address());
    write_annotations(daemon.address());
    assert!(daemon.terminate().success());
    save("parts-tables", data.path());
}

/// Records two days of points every minute; the second day has an empty hour.
fn record_summaries() {
    let data = in_process::directory();
    let daemon = small(tsdb(data.path())).start();
    assign_uids(daemon.address());
    for hour in (0..48).filter(|hour| *hour != 30) {
        let mut points = Vec::new();
        for minute in 0..60 {
            let step = hour * 60 + minute;
            let second = DAY_SECOND + step * 60;
            points.push(point("formats.int", "a", second, step % 700));
            points.push(point("formats.float", "a", second, (step % 977) as f64 / 10.0));
            points.push(point("formats.float", "b", second, (step as f64).sqrt()));
            points.push(point("formats.ms", "a", second * 1_000 + 7, -5_000_000_000_i64));
            match step % 3 {
                0 => points.push(point("formats.mixed", "b", second, step)),
                _ => points.push(point("formats.mixed", "b", second, step as f64 / 4.0)),
            }
        }
        post(daemon.address(), "/api/put", &points.into());
    }
    let text = serde_json::to_string_pretty(&summary_results(daemon.address())).expect("JSON");
    fs::write(recording(EXPECTED_SUMMARIES), text + "\n").expect("write");
    assert!(daemon.terminate().success());
    save("parts-summaries", data.path());
}

/// Records a store that has found a flipped byte of a data block.
fn record_damaged() {
    let data = in_process::directory();
    let daemon = small(tsdb(data.path())).start();
    assign_uids(daemon.address());
    write_first(daemon.address());
    assert!(daemon.terminate().success());
    let part = part_files(data.path()).swap_remove(0);
    let mut bytes = fs::read(&part).expect("a part");
    bytes[40] ^= 4;
    fs::write(&part, bytes).expect("write");
    let daemon = small(tsdb(data.path())).start();
    assert_eq!(damaged_query(daemon.address(), "").status, 424);
    assert!(daemon.terminate().success());
    save("parts-damaged", data.path());
}

fn damaged_query(address: SocketAddr, parameter: &str) -> BinaryResponse {
    let range = format!("start={SECOND}&end={}", SECOND + 7_200);
    let uri = format!("/api/query?{range}&m=none:formats.int{parameter}");
    http_binary(address, "GET", &uri, "")
}

#[test]
fn an_embedded_store_with_a_damaged_block_in_its_manifest_is_read() {
    record_if_requested();
    let data = in_process::directory();
    copy(&recording("parts-damaged"), data.path());
    for _ in 0..2 {
        let daemon = tsdb(data.path()).start();
        let address = daemon.address();
        let listed = http(address, "GET", "/api/quarantine", None).body;
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
        let failed = damaged_query(address, "");
        let text = String::from_utf8_lossy(&failed.body).into_owned();
        assert!(failed.status == 424 && text.contains("formats.int{host=a}"), "{text}");
        let left = damaged_query(address, "&allow_damaged");
        assert_eq!((left.status, left.header("x-partial-result").is_some()), (200, true));
        assert!(daemon.terminate().success());
    }
    let daemon = tsdb(data.path()).start();
    let address = daemon.address();
    let listed = http(address, "GET", "/api/quarantine", None).body;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let files = json!({ "files": [listed[0]["name"]] });
    post(address, "/api/quarantine/accept", &files);
    assert_eq!(damaged_query(address, "").status, 200);
    assert!(daemon.terminate().success());
}

/// Results of queries that summaries answer, by URI.
fn summary_results(address: SocketAddr) -> Value {
    let range = format!("start={DAY_SECOND}&end={}", DAY_SECOND + 2 * 86_400 - 1);
    let mut results = Map::new();
    for m in [
        "1h-avg:formats.int",
        "6h-max:formats.int",
        "1h-last:formats.int",
        "0all-sum:formats.int",
        "1h-avg:formats.float",
        "1d-avg:formats.float",
        "6h-min:formats.float",
        "1d-count:formats.ms",
        "2d-sum:formats.ms",
        "1h-sum:formats.mixed",
        "1d-max:formats.mixed",
        "12h-avg:formats.mixed",
    ] {
        let uri = format!("/api/query?{range}&m=none:{m}");
        let response = http(address, "GET", &uri, None);
        assert_eq!(response.status, 200, "{uri}: {}", response.body);
        results.insert(uri, serde_json::from_str(&response.body).expect("JSON"));
    }
    Value::Object(results)
}

fn record_hbase_log() {
    let hbase = HBase::with_tables();
    let data = in_process::directory();
    let daemon = small(hbase.daemon_with_log(data.path()));
    let daemon = daemon.env("TSD_STORAGE_HOLD_SECONDS", "3600").start();
    assign_uids(daemon.address());
    write_first(daemon.address());
    write_second(daemon.address());
    daemon.kill();
    set_quorum(data.path(), hbase.quorum(), RECORDED_QUORUM);
    save("hbase-log", data.path());
}

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats").join(name)
}

/// Small files, and no row compaction while recording.
fn small(daemon: DaemonBuilder) -> DaemonBuilder {
    daemon
        .env("TSD_STORAGE_LOG_SEGMENT_SIZE", "65536")
        .env("TSD_STORAGE_MEMTABLE_SIZE", "1048576")
        .env("TSD_STORAGE_ENABLE_COMPACTION", "false")
        .env("TSD_STORAGE_COMPACTION_ON_READ", "false")
}

#[track_caller]
fn post(address: SocketAddr, uri: &str, body: &Value) {
    let response = http(address, "POST", uri, Some(&body.to_string()));
    assert!(matches!(response.status, 200 | 204), "{uri}: {response:?}");
}

/// Assigns the UIDs 1, 2, … of each kind, in this order.
fn assign_uids(address: SocketAddr) {
    let names = json!({
        "metric": ["formats.int", "formats.float", "formats.ms", "formats.mixed"],
        "tagk": ["host"],
        "tagv": ["a", "b"],
    });
    post(address, "/api/uid/assign", &names);
}

fn point(metric: &str, host: &str, timestamp: u64, value: impl Into<Value>) -> Value {
    let value = value.into();
    let tags = json!({ "host": host });
    json!({ "metric": metric, "timestamp": timestamp, "value": value, "tags": tags })
}

/// Integers of all widths, floats of both widths, seconds and milliseconds, in rows of two hours.
fn write_first(address: SocketAddr) {
    let integers = [1, -1, 300, -30_000, 70_000, -2_000_000_000, 5_000_000_000, i64::MIN, i64::MAX];
    let floats = [0.5, -0.25, 0.1, 1e300, -4.9e-324, 0.0];
    let mut points = Vec::new();
    for host in ["a", "b"] {
        for hour in [0, 3_600] {
            for (at, value) in (0..).zip(integers) {
                let second = SECOND + hour + at * 60;
                points.push(point("formats.int", host, second, value));
                points.push(point("formats.ms", host, second * 1_000 + 1 + at, value));
            }
            for (at, value) in (0..).zip(floats) {
                let second = SECOND + hour + at * 90;
                points.push(point("formats.float", host, second, value));
                points.push(point("formats.mixed", host, second * 1_000 + 250, value));
                points.push(point("formats.mixed", host, second + 1, at + 1));
            }
        }
    }
    post(address, "/api/put", &points.into());
}

/// Corrections of points, and more points in the same rows and in a new one.
fn write_second(address: SocketAddr) {
    let mut points = vec![
        point("formats.int", "a", SECOND, 2),
        point("formats.float", "b", SECOND, 0.75),
        point("formats.ms", "a", SECOND * 1_000 + 1, -2),
    ];
    for metric in ["formats.int", "formats.mixed"] {
        for second in [30, 3_599, 7_200] {
            points.push(point(metric, "b", SECOND + second, second));
        }
    }
    post(address, "/api/put", &points.into());
}

fn write_annotations(address: SocketAddr) {
    for annotation in [
        json!({
            "startTime": SECOND + 60,
            "endTime": SECOND + 120,
            "tsuid": "000001000001000001",
            "description": "of a series",
            "notes": "deployed",
            "custom": { "owner": "ops" },
        }),
        json!({ "startTime": SECOND + 61, "description": "global" }),
    ] {
        post(address, "/api/annotation", &annotation);
    }
}

/// Results of all queries, by URI.
fn results(address: SocketAddr) -> Value {
    let range = format!("start={}&end={}", SECOND - 1, SECOND + 10_800);
    let mut uris: Vec<String> = ["int", "float", "ms", "mixed"]
        .map(|name| format!("/api/query?{range}&ms&show_tsuids&m=none:formats.{name}"))
        .into();
    uris.push(format!("/api/query?{range}&global_annotations&m=sum:1h-count:formats.int"));
    let annotation = "/api/annotation?start_time=";
    uris.push(format!("{annotation}{}&tsuid=000001000001000001", SECOND + 60));
    uris.push(format!("{annotation}{}", SECOND + 61));
    let mut results = Map::new();
    for uri in uris {
        let response = http(address, "GET", &uri, None);
        assert_eq!(response.status, 200, "{uri}: {}", response.body);
        results.insert(uri, serde_json::from_str(&response.body).expect("JSON"));
    }
    Value::Object(results)
}

#[track_caller]
fn check_results(address: SocketAddr) {
    let expected = fs::read_to_string(recording(EXPECTED)).expect("expected results");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    assert_eq!(results(address), expected);
}

fn save_results(address: SocketAddr) {
    let text = serde_json::to_string_pretty(&results(address)).expect("JSON") + "\n";
    fs::create_dir_all(recording("")).expect("directory");
    fs::write(recording(EXPECTED), text).expect("write");
}

/// Replaces a recording by the files of a data directory.
fn save(name: &str, data: &Path) {
    let target = recording(name);
    let _ = fs::remove_dir_all(&target);
    copy(data, &target);
}

/// Copies the files of a directory, without the lock files of its process. Empty directories are not
/// copied, because git does not keep them.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else if !entry.file_name().eq_ignore_ascii_case("lock") {
            fs::create_dir_all(to).expect("directory");
            fs::copy(entry.path(), target).expect("copy");
        }
    }
}

fn set_quorum(data: &Path, from: &str, to: &str) {
    let file = data.join(CLUSTER_FILE);
    let text = fs::read_to_string(&file).expect("the cluster of the log");
    assert!(text.contains(from), "{text}");
    fs::write(&file, text.replace(from, to)).expect("write");
}
