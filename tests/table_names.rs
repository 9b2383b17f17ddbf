//! Issue 37, case C15: names of tables that are no names of files. MapR names tables by path, Azure by URL.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tsd_testkit::{DaemonBuilder, http, wait_for};

use crate::{
    TSDB,
    damage::{METRICS, POINTS, daemon, directory, expected, files, metric_value, put, query, text},
};

/// The first one leads out of a data directory that is not deeper than this test's.
const NAMES: [(&str, &str); 4] = [
    ("TSD_STORAGE_HBASE_DATA_TABLE", "x/../../../../../escaped"),
    ("TSD_STORAGE_HBASE_UID_TABLE", "/user/mapr/tsdb-uid"),
    ("TSD_STORAGE_HBASE_META_TABLE", "wasb://c@a/\u{e4} b"),
    ("TSD_STORAGE_HBASE_TREE_TABLE", ".."),
];
const DATA_FILES: &str = "t.x%2f..%2f..%2f..%2f..%2f..%2fescaped";

fn named(data: &Path) -> DaemonBuilder {
    NAMES.iter().fold(daemon(data), |daemon, (key, name)| daemon.env(key, name))
}

/// Runs a tool that must exit with this status; returns its standard output.
#[track_caller]
fn tool(arguments: &[&str], status: i32) -> String {
    let output =
        Command::new(TSDB).args(arguments).envs(NAMES).stdin(Stdio::null()).output().expect("tsdb");
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// Writes the configuration file of a daemon next to its data directory.
fn configuration(data: &Path) -> PathBuf {
    let file = data.with_extension("conf");
    let key = |key: &str| {
        key.to_lowercase().replace("_table", "-table").replace('_', ".").replace('-', "_")
    };
    let names = NAMES
        .map(|(name, value)| format!("{} = {value}\n", key(name)).replace('\u{e4}', "\\u00e4"));
    let text = format!("tsd.storage.data_directory = {}\n{}", data.display(), names.concat());
    fs::write(&file, text).expect("a file");
    file
}

fn parts(data: &Path) -> Vec<PathBuf> {
    let mut parts = files(&data.join("store/points").join(DATA_FILES));
    parts.retain(|path| path.extension().is_some_and(|extension| extension == "part"));
    parts
}

/// Starts a daemon on a directory, and checks that it has all points.
#[track_caller]
fn check(data: &Path) {
    let running = named(data).start();
    for metric in 0..METRICS {
        assert_eq!(query(running.address(), metric), Ok(expected(metric, POINTS)));
    }
    assert!(running.terminate().success());
}

#[test]
fn any_name_of_a_table_is_kept_inside_of_the_data_directory() {
    let dir = directory();
    let data = dir.path().join("data");
    let running = named(&data).start();
    let address = running.address();
    for metric in 0..METRICS {
        assert_eq!(put(address, metric, 0, POINTS), 204);
    }
    let flushed = || {
        (metric_value(address, "tsd_wal_memtable_rows") == 0 && !parts(&data).is_empty())
            .then_some(())
    };
    wait_for(flushed).expect("a flush");
    let index = format!("store/points/series/{DATA_FILES}");
    assert!(data.join(index).is_file(), "{:?}", files(&data.join("store/points")));

    let snapshot = dir.path().join("snapshot");
    tool(&["snapshot", "--data", path(&data), path(&snapshot)], 0);
    let status = http(address, "GET", "/api/status", None).body;
    assert!(status.contains(r#""status":"ok""#), "{status}");
    assert!(running.terminate().success());
    check(&data);

    let restored = dir.path().join("restored");
    tool(&["restore", "--data", path(&restored), path(&snapshot)], 0);
    check(&restored);
    tool(&["verify", "--data", path(&restored)], 0);
    tool(&["fsck", "--data", path(&restored), "--full-scan"], 0);
    let copied = dir.path().join("copied");
    let [from, to] = [&restored, &copied].map(|data| configuration(data));
    tool(&["copy", "--from", path(&from), "--to", path(&to), "--verify"], 0);
    check(&copied);

    // A damaged part is quarantined and accepted by its name.
    let largest =
        parts(&data).into_iter().max_by_key(|part| fs::metadata(part).map_or(0, |m| m.len()));
    let largest = largest.expect("a part");
    let bytes = fs::read(&largest).expect("a part");
    fs::write(&largest, &bytes[..bytes.len() / 2]).expect("damaged");
    let running = named(&data).start();
    let list = tool(&["quarantine", "list", "--json", "--data", path(&data)], 0);
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let name = list[0]["name"].as_str().expect("a name");
    assert!(name.starts_with(&format!("{DATA_FILES}-")), "{list}");
    assert_eq!(list[0]["table"], NAMES[0].1);
    tool(&["quarantine", "accept", name, "--yes", "--data", path(&data)], 0);
    assert!(query(running.address(), 0).is_ok());
    assert!(running.terminate().success());

    let mut outside = files(dir.path());
    // A copy keeps its state next to its target.
    let is_known = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let stem = name.iter().flat_map(|name| name.split('.')).next();
        stem.is_some_and(|stem| ["data", "snapshot", "restored", "copied"].contains(&stem))
    };
    outside.retain(|path| !is_known(path));
    assert!(outside.is_empty(), "{outside:?}");
    for above in dir.path().ancestors() {
        assert!(!above.join("escaped").exists(), "{}", above.display());
    }
}

/// A table of rollups may have the name that the first file of the series index has.
#[test]
fn a_table_is_not_mistaken_for_a_file_of_another_ones_series_index() {
    let dir = directory();
    let data = dir.path().join("data");
    let rollups = r#"{"aggregationIds":{"sum":0},"intervals":[{"table":"tsdb","preAggregationTable":"agg","interval":"1m","rowSpan":"1h","defaultInterval":true},{"table":"tsdb.1","preAggregationTable":"tsdb.2","interval":"1h","rowSpan":"1n"}]}"#;
    let start = || {
        let builder = daemon(&data).env("TSD_ROLLUPS_ENABLE", "true");
        builder.env("TSD_ROLLUPS_CONFIG", rollups).start()
    };
    for round in 0..3 {
        let running = start();
        let address = running.address();
        assert_eq!(metric_value(address, "tsd_parts_series_index_series"), round);
        let damage = running.events_at_level("ERROR");
        assert!(damage.is_empty(), "{damage:?}");
        assert_eq!(put(address, round, 0, 1), 204);
        assert!(running.terminate().success());
    }
}
