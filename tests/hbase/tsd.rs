//! Daemons of ours on the cluster, and what they are asked.

use std::{collections::BTreeSet, net::SocketAddr, path::Path, process::Command, time::Duration};

use cluster::Cluster;
use serde_json::Value;
use tokio::task::block_in_place;

use crate::{
    daemon::{Daemon, Start, TSDB},
    regions::Outcome,
    socket::{Answer, try_http},
};

/// Settings, by their names.
pub(crate) type Settings<'a> = [(&'a str, &'a str)];

/// The variable that holds a setting.
fn variable(name: &str) -> String {
    name.to_uppercase().replace('.', "_")
}

fn settings(cluster: &Cluster, more: &Settings<'_>) -> Vec<(String, String)> {
    let mut all = vec![
        ("TSD_STORAGE_ENGINE".to_owned(), "hbase".to_owned()),
        ("TSD_STORAGE_HBASE_ZK_QUORUM".to_owned(), cluster.client_quorum()),
        ("TSD_STORAGE_HBASE_HOSTS".to_owned(), cluster.links().hosts_setting()),
        ("TSD_CORE_AUTO_CREATE_METRICS".to_owned(), "true".to_owned()),
    ];
    all.extend(more.iter().map(|(name, value)| (variable(name), (*value).to_owned())));
    all
}

/// A daemon that serves, with its log in this directory.
pub(crate) fn start(cluster: &Cluster, data: &Path, more: &Settings<'_>) -> Daemon {
    let level = ["--log-level", "warn,tsd_cli=info"];
    let start = Start::on(data).args(&level);
    let start =
        settings(cluster, more).iter().fold(start, |start, (name, value)| start.env(name, value));
    block_in_place(|| start.serve())
}

/// Makes the tables, as an operator does.
pub(crate) fn create_tables(cluster: &Cluster, more: &Settings<'_>) -> Outcome<()> {
    let mut create = Command::new(TSDB);
    create.args(["table", "create"]).envs(settings(cluster, more));
    let output = block_in_place(|| create.output())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("tsdb table create: {}: {said}", output.status).into())
}

/// One request.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    uri: &str,
    body: Option<&str>,
) -> Outcome<Answer> {
    let answer = block_in_place(|| try_http(address, method, uri, body));
    answer.map_err(|error| format!("{method} {address}{uri}: {error}").into())
}

/// Puts points; they must be acknowledged.
pub(crate) fn put(address: SocketAddr, uri: &str, points: &Value) -> Outcome<()> {
    let answer = ask(address, "POST", uri, Some(&points.to_string()))?;
    if answer.status == 204 || answer.status == 200 {
        return Ok(());
    }
    Err(format!("{uri}: {} {}", answer.status, answer.body).into())
}

/// What a query answers; series in the order of their text, for daemons may order them differently.
pub(crate) fn query(address: SocketAddr, uri: &str) -> Outcome<Vec<Value>> {
    let answer = ask(address, "GET", uri, None)?;
    if answer.status != 200 {
        return Err(format!("{uri}: {} {}", answer.status, answer.body).into());
    }
    let mut series: Vec<Value> = serde_json::from_str(&answer.body)?;
    for one in &mut series {
        // Sets, told as lists.
        if let Some(tags) = one["aggregateTags"].as_array() {
            let tags: BTreeSet<_> = tags.iter().filter_map(Value::as_str).collect();
            let tags = tags.into_iter().map(Value::from).collect();
            one["aggregateTags"] = tags;
        }
    }
    series.sort_by_key(|one| format!("{}{}", one["metric"], one["tags"]));
    Ok(series)
}

/// Rest between questions.
pub(crate) const REST: Duration = Duration::from_millis(200);
