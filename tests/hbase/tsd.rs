//! Daemons on the cluster, their tables, and requests to them.

use std::{collections::BTreeSet, net::SocketAddr, path::Path, process::Command, time::Duration};

use cluster::Cluster;
use serde_json::Value;
use tokio::task::block_in_place;
use tsd_testkit::{Daemon, DaemonBuilder, HttpResponse, bench_binary, try_http};

use crate::{TSDB, regions::ScenarioResult};

/// Keys and values of settings.
pub(crate) type Settings<'a> = [(&'a str, &'a str)];

/// The environment variable of a setting.
fn variable(name: &str) -> String {
    name.to_uppercase().replace('.', "_")
}

/// The environment of a daemon or tool.
pub(crate) fn settings(cluster: &Cluster, more: &Settings<'_>) -> Vec<(String, String)> {
    let mut all = vec![
        ("TSD_STORAGE_ENGINE".to_owned(), "hbase".to_owned()),
        ("TSD_STORAGE_HBASE_ZK_QUORUM".to_owned(), cluster.client_quorum()),
        ("TSD_STORAGE_HBASE_HOSTS".to_owned(), cluster.links().hosts_setting()),
        ("TSD_CORE_AUTO_CREATE_METRICS".to_owned(), "true".to_owned()),
    ];
    all.extend(environment(more));
    all
}

/// Settings as variables of the environment.
pub(crate) fn environment(settings: &Settings<'_>) -> Vec<(String, String)> {
    settings.iter().map(|(name, value)| (variable(name), (*value).to_owned())).collect()
}

/// Least log level at which a daemon reports that it serves.
pub(crate) const LOG_LEVEL: &str = "warn,tsd_cli=info";

/// Starts a daemon with its log in `data`.
pub(crate) fn start(cluster: &Cluster, data: &Path, more: &Settings<'_>) -> Daemon {
    let daemon = builder(&settings(cluster, more), data, LOG_LEVEL);
    block_in_place(|| daemon.start())
}

/// A daemon with this environment that logs at this level, with its log in `data`.
pub(crate) fn builder(
    environment: &[(String, String)],
    data: &Path,
    log_level: &str,
) -> DaemonBuilder {
    let daemon = DaemonBuilder::of_bench(TSDB, data).args(&["--log-level", log_level]);
    environment.iter().fold(daemon, |daemon, (name, value)| daemon.env(name, value))
}

/// Creates the tables with `tsdb table create`.
pub(crate) fn create_tables(cluster: &Cluster, more: &Settings<'_>) -> ScenarioResult<()> {
    let mut create = Command::new(bench_binary(TSDB));
    create.args(["table", "create"]).envs(settings(cluster, more));
    let output = block_in_place(|| create.output())?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("tsdb table create: {}: {stderr}", output.status).into())
}

/// Sends one request.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    uri: &str,
    body: Option<&str>,
) -> ScenarioResult<HttpResponse> {
    let response = block_in_place(|| try_http(address, method, uri, body));
    response.map_err(|error| format!("{method} {address}{uri}: {error}").into())
}

/// Puts points; they must be acknowledged.
pub(crate) fn put(address: SocketAddr, uri: &str, points: &Value) -> ScenarioResult<()> {
    let response = request(address, "POST", uri, Some(&points.to_string()))?;
    if response.status == 204 || response.status == 200 {
        return Ok(());
    }
    Err(format!("{uri}: {} {}", response.status, response.body).into())
}

/// Result of a query; series are sorted by their text because daemons may order them differently.
pub(crate) fn query(address: SocketAddr, uri: &str) -> ScenarioResult<Vec<Value>> {
    let response = request(address, "GET", uri, None)?;
    if response.status != 200 {
        return Err(format!("{uri}: {} {}", response.status, response.body).into());
    }
    let mut series: Vec<Value> = serde_json::from_str(&response.body)?;
    for one in &mut series {
        // Lists without an order.
        if let Some(tags) = one["aggregateTags"].as_array() {
            let tags: BTreeSet<_> = tags.iter().filter_map(Value::as_str).collect();
            let tags = tags.into_iter().map(Value::from).collect();
            one["aggregateTags"] = tags;
        }
    }
    series.sort_by_key(|one| format!("{}{}", one["metric"], one["tags"]));
    Ok(series)
}

/// Pause between two polls.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);
