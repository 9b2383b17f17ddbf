//! Tests two daemons on one HBase: a name new to both gets one UID, and both return the same
//! results.

use std::collections::BTreeMap;

use cluster::Cluster;
use hbase_rs::{Client, Scan, TableName};
use serde_json::{Value, json};
use tokio::task::{JoinSet, spawn_blocking};
use tsd_testkit::try_http;

use crate::{
    regions::ScenarioResult,
    tsd::{self, query},
};

/// New metrics, and new tag values.
const NAMES: u64 = 60;
const SECOND: u64 = 1_600_000_000;
const TABLES: [(&str, &str); 4] = [
    ("tsd.storage.hbase.data_table", "two-daemons"),
    ("tsd.storage.hbase.uid_table", "two-daemons-uid"),
    ("tsd.storage.hbase.tree_table", "two-daemons-tree"),
    ("tsd.storage.hbase.meta_table", "two-daemons-meta"),
];

/// Sends the same names to both at once.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &TABLES)?;
    let directory = tempfile::tempdir()?;
    let first = tsd::start(cluster, &directory.path().join("first"), &TABLES);
    let second = tsd::start(cluster, &directory.path().join("second"), &TABLES);
    let mut puts = JoinSet::new();
    for name in 0..NAMES {
        for (which, address) in [first.address(), second.address()].into_iter().enumerate() {
            let body = json!([{
                "metric": format!("two-daemons.{name}"),
                "timestamp": SECOND + which as u64,
                "value": name,
                "tags": {"host": format!("h{name}"), "of": format!("d{which}")},
            }]);
            puts.spawn(spawn_blocking(move || {
                try_http(address, "POST", "/api/put", Some(&body.to_string()))
            }));
        }
    }
    while let Some(put) = puts.join_next().await {
        let response = put???;
        if response.status != 204 {
            return Err(format!("put: {} {}", response.status, response.body).into());
        }
    }
    let assigned = uids(&cluster.client(), "two-daemons-uid").await?;
    // Metrics, two keys, values of both keys.
    let expected = [("metrics", NAMES), ("tagk", 2), ("tagv", NAMES + 2)];
    for (kind, count) in expected {
        let found = assigned.get(kind).copied().unwrap_or_default();
        if found != count {
            return Err(
                format!("{found} names of {kind} have a UID of their own, not {count}").into()
            );
        }
    }
    for name in 0..NAMES {
        let uri = format!("/api/query?start={}&m=sum:two-daemons.{name}{{of=*}}", SECOND - 10);
        let uri = uri.replace('{', "%7B").replace('}', "%7D");
        let responses = [query(first.address(), &uri)?, query(second.address(), &uri)?];
        let points = |series: &Value| series["dps"].as_object().map_or(0, serde_json::Map::len);
        if responses[0] != responses[1] || responses[0].iter().map(points).sum::<usize>() != 2 {
            return Err(format!("{uri}: {responses:?}").into());
        }
    }
    println!("two-daemons: {NAMES} metrics and their tags assigned by two daemons at once");
    Ok(())
}

/// Number of names of each kind whose UID maps back to the name.
async fn uids(client: &Client, table: &str) -> ScenarioResult<BTreeMap<String, u64>> {
    let table: TableName = table.parse()?;
    let mut ids = BTreeMap::new();
    let mut names = BTreeMap::new();
    let mut rows = client.table(table).scan(Scan::all());
    while let Some(row) = rows.next().await {
        let row = row?.row;
        // Counters.
        if row.key() == [0] {
            continue;
        }
        for cell in row.cells() {
            let kind = String::from_utf8_lossy(cell.qualifier).into_owned();
            match cell.family {
                b"id" => ids.insert((kind, row.key().to_vec()), cell.value.to_vec()),
                b"name" => names.insert((kind, row.key().to_vec()), cell.value.to_vec()),
                _ => None,
            };
        }
    }
    let mut counts = BTreeMap::new();
    for ((kind, name), id) in ids {
        if names.get(&(kind.clone(), id)) == Some(&name) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    Ok(counts)
}
