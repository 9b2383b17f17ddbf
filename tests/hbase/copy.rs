//! Tests `tsdb copy` from tables to a data directory while points come in, then a catch-up, and from there to salted
//! tables. Both comparisons must find nothing, and daemons on the first and the last tables must return the same.

use std::{path::Path, process::Command};

use cluster::Cluster;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::{
    TSDB,
    regions::ScenarioResult,
    tsd::{self, Settings, put, query},
};

const SECOND: u64 = 1_600_000_000;
const HOSTS: u64 = 200;
const HOURS: u64 = 24;
/// Values of two bytes, like the corrections: another width would be another column.
const FIRST_VALUE: u64 = 300;
const SOURCE: [(&str, &str); 4] = [
    ("tsd.storage.hbase.data_table", "copy-source"),
    ("tsd.storage.hbase.uid_table", "copy-source-uid"),
    ("tsd.storage.hbase.tree_table", "copy-source-tree"),
    ("tsd.storage.hbase.meta_table", "copy-source-meta"),
];
const SALTED: [(&str, &str); 5] = [
    ("tsd.storage.hbase.data_table", "copy-salted"),
    ("tsd.storage.hbase.uid_table", "copy-salted-uid"),
    ("tsd.storage.hbase.tree_table", "copy-salted-tree"),
    ("tsd.storage.hbase.meta_table", "copy-salted-meta"),
    ("tsd.storage.salt.width", "1"),
];

/// Points of all hosts in one hour.
fn points(hour: u64, value: u64) -> Value {
    let point = |host: u64| {
        json!({
            "metric": "copied",
            "timestamp": SECOND + hour * 3_600 + host,
            "value": value + host,
            "tags": {"host": format!("h{host}")},
        })
    };
    (0..HOSTS).map(point).collect()
}

pub(crate) fn run(cluster: &Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &SOURCE)?;
    tsd::create_tables(cluster, &SALTED)?;
    let directory = tempfile::tempdir()?;
    let source = tsd::start(cluster, &directory.path().join("source"), &SOURCE);
    for hour in 0..HOURS {
        put(source.address(), "/api/put", &points(hour, FIRST_VALUE + hour))?;
    }
    let data = directory.path().join("data");
    let data = data.to_str().ok_or("a path")?;
    let quorum = cluster.client_quorum();
    let from = arguments(cluster, "--from-set", &SOURCE);
    copy(&[&["--from", &quorum, "--to", data][..], &texts(&from)].concat())?;
    // Corrections, and hours that are new.
    for hour in [3, HOURS, HOURS + 1] {
        put(source.address(), "/api/put", &points(hour, 1_000))?;
    }
    let rest = ["--since", "last", "--margin", "60", "--verify"];
    let report = copy(&[&["--from", &quorum, "--to", data][..], &rest, &texts(&from)].concat())?;
    let to = arguments(cluster, "--to-set", &SALTED);
    let state = directory.path().join("salted.json");
    let state = ["--state", path(&state)?, "--verify"];
    let rebuilt = copy(&[&["--from", data, "--to", &quorum][..], &state, &texts(&to)].concat())?;
    if rebuilt["keys"] != "rebuilt" || report["keys"] != "same" {
        return Err(format!("{report} {rebuilt}").into());
    }
    let salted = tsd::start(cluster, &directory.path().join("salted"), &SALTED);
    let end = SECOND + (HOURS + 3) * 3_600;
    let uri = format!("/api/query?start={}&end={end}&m=none:copied", SECOND - 1);
    let (expected, found) = (query(source.address(), &uri)?, query(salted.address(), &uri)?);
    let count = |series: &[Value]| -> usize {
        series.iter().map(|one| one["dps"].as_object().map_or(0, serde_json::Map::len)).sum()
    };
    if expected != found || count(&found) as u64 != HOSTS * (HOURS + 2) {
        return Err(format!("{} points, not {}", count(&found), count(&expected)).into());
    }
    println!("copy: {} points to a data directory and on to salted tables", count(&found));
    Ok(())
}

/// Settings of a store location on the cluster.
fn arguments(cluster: &Cluster, flag: &str, tables: &Settings<'_>) -> Vec<String> {
    let hosts = ("tsd.storage.hbase.hosts", cluster.links().hosts_setting());
    let tables = tables.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let all = tables.chain([hosts]);
    all.flat_map(|(key, value)| [flag.to_owned(), format!("{key}={value}")]).collect()
}

fn texts(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn path(path: &Path) -> ScenarioResult<&str> {
    path.to_str().ok_or_else(|| "a path".into())
}

/// Runs a copy; returns its report, which must have no difference.
fn copy(arguments: &[&str]) -> ScenarioResult<Value> {
    let mut command = Command::new(TSDB);
    command.args(["copy", "--json"]).args(arguments);
    let output = block_in_place(|| command.output())?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("tsdb copy {arguments:?}: {}: {stdout} {stderr}", output.status).into())
}
