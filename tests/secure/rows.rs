//! What each client does: tables, points, queries and checks.

use std::{collections::BTreeMap, path::Path, process::Command};

use cluster::Cluster;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tsd_testkit::{Daemon, DaemonBuilder, bench_binary, try_http};

use crate::{
    TSDB, TestResult,
    client::{ClientSettings, SecureClient},
};

/// Points that are put, one a second.
const POINTS: u64 = 300;
const FIRST_SECOND: u64 = 1_700_000_000;

/// Settings by which a client differs from the last one: each acknowledgement has its turn.
const ACKS: [&str; 3] = ["storage", "log", "cluster"];

/// Creates tables, puts points, reads them through another daemon, and checks the tables.
pub(crate) async fn run(cluster: &Cluster, client: SecureClient, at: usize) -> TestResult<()> {
    let directory = tempfile::tempdir()?;
    let mut settings = client.settings(cluster, directory.path()).await?;
    for table in ["data", "uid", "tree", "meta"] {
        settings.set(&format!("tsd.storage.hbase.{table}_table"), format!("secure{at}-{table}"));
    }
    settings.set("tsd.cluster.log_table", format!("secure{at}-log"));
    settings.set("tsd.storage.ack", ACKS[at % ACKS.len()]);
    let file = directory.path().join("opentsdb.conf");
    settings.write(&file)?;
    block_in_place(|| {
        tool(&settings, &file, &["table", "create"])?;
        let daemon = start(&settings, &file, &directory.path().join("data"))?;
        put(&daemon)?;
        check(&daemon)?;
        stop(daemon)?;
        // What the log held is stored now.
        let daemon = start(&settings, &file, &directory.path().join("data"))?;
        check(&daemon)?;
        stop(daemon)?;
        tool(&settings, &file, &["fsck", "--full-scan"])
    })
}

/// Runs a command, which must succeed.
fn tool(settings: &ClientSettings, file: &Path, arguments: &[&str]) -> TestResult<()> {
    let output = command(settings, file, arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("tsdb {}: {}: {}", arguments.join(" "), output.status, one_line(&stderr)).into())
}

/// A command with the settings.
pub(crate) fn command(settings: &ClientSettings, file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(bench_binary(TSDB));
    command.args(arguments).arg("--config").arg(file);
    command.envs(settings.environment.iter().cloned());
    command
}

/// The end of an output, in one line.
pub(crate) fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" / ").replace('|', "¦")
}

fn start(settings: &ClientSettings, file: &Path, data: &Path) -> TestResult<Daemon> {
    let file = file.display().to_string();
    let daemon = DaemonBuilder::of_bench(TSDB, data).args(&["--config", &file]);
    let environment = settings.environment.iter();
    let daemon = environment.fold(daemon, |daemon, (name, value)| daemon.env(name, value));
    let (log, started) = daemon.try_start();
    started.map_err(|status| format!("the daemon: {status}: {}", one_line(&log)).into())
}

fn stop(daemon: Daemon) -> TestResult<()> {
    let status = daemon.terminate();
    if status.success() { Ok(()) } else { Err(format!("the stop: {status}").into()) }
}

fn put(daemon: &Daemon) -> TestResult<()> {
    let point = |at: u64| json!({ "metric": "secure.points", "timestamp": FIRST_SECOND + at, "value": at, "tags": { "host": format!("h{}", at % 7) } });
    let points: Value = (0..POINTS).map(point).collect();
    let response =
        try_http(daemon.address(), "POST", "/api/put?sync&details", Some(&points.to_string()))?;
    match response.status {
        200 | 204 => Ok(()),
        status => Err(format!("put: {status} {}", response.body).into()),
    }
}

fn check(daemon: &Daemon) -> TestResult<()> {
    let uri = format!(
        "/api/query?start={FIRST_SECOND}&end={}&m=none:secure.points",
        FIRST_SECOND + POINTS
    );
    let response = try_http(daemon.address(), "GET", &uri, None)?;
    let found: Value = serde_json::from_str(&response.body)?;
    let series = found.as_array().ok_or_else(|| format!("query: {}", response.body))?;
    let points: BTreeMap<&String, &Value> =
        series.iter().filter_map(|one| one["dps"].as_object()).flatten().collect();
    let is_right = |at: u64| {
        points.get(&(FIRST_SECOND + at).to_string()).and_then(|value| value.as_u64()) == Some(at)
    };
    let wrong = (0..POINTS).filter(|at| !is_right(*at)).count();
    if wrong == 0 && points.len() as u64 == POINTS {
        return Ok(());
    }
    Err(format!("{wrong} of {POINTS} points are wrong, {} were read", points.len()).into())
}
