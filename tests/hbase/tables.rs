//! Daemons start, write and read while HBase's master is down, with every acknowledgement. Then the log table is
//! dropped, and the data table is disabled: both are health problems, and no acknowledged point is lost.

use std::{net::SocketAddr, path::Path, time::Duration};

use cluster::{Cluster, Node};
use hbase_rs::TableName;
use serde_json::{Value, json};
use tokio::{
    task::block_in_place,
    time::{Instant, sleep},
};
use tsd_testkit::Daemon;

use crate::{
    regions::{ScenarioResult, TIMEOUT},
    tsd,
};

const DATA_TABLE: &str = "tables";
const LOG_TABLE: &str = "tables-log";
const TABLES: [(&str, &str); 6] = [
    ("tsd.storage.hbase.data_table", DATA_TABLE),
    ("tsd.storage.hbase.uid_table", "tables-uid"),
    ("tsd.storage.hbase.tree_table", "tables-tree"),
    ("tsd.storage.hbase.meta_table", "tables-meta"),
    ("tsd.cluster.log_table", LOG_TABLE),
    // Rows stay held until they must be flushed.
    ("tsd.storage.hold_seconds", "3600"),
];
const FIRST_SECOND: u64 = 1_600_000_000;
/// Points of a metric.
const POINTS: u64 = 100;

/// Starts without the master, then loses tables.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &TABLES)?;
    let directory = tempfile::tempdir()?;
    // Creates the log table.
    end(start(cluster, &directory.path().join("first"), "cluster"))?;
    cluster.kill(Node::Master)?;
    for ack in ["storage", "log", "cluster"] {
        let begun = Instant::now();
        let daemon = start(cluster, &directory.path().join(ack), ack);
        println!(
            "tables: ack = {ack}: serves {:.1?} after its start, without a master",
            begun.elapsed()
        );
        put(daemon.address(), ack)?;
        check(daemon.address(), ack)?;
        end(daemon)?;
    }
    cluster.restart(Node::Master).await?;
    disabled_data_table(cluster, &directory.path().join("cluster")).await?;
    dropped_log_table(cluster, directory.path()).await
}

async fn disabled_data_table(cluster: &Cluster, data: &Path) -> ScenarioResult<()> {
    let table: TableName = DATA_TABLE.parse()?;
    let daemon = start(cluster, data, "cluster");
    let admin = cluster.client().admin();
    admin.disable_table(&table).await?;
    let text = format!("table {DATA_TABLE} is disabled");
    let noticed = wait_for_status(daemon.address(), |status| status.contains(&text)).await?;
    admin.enable_table(&table).await?;
    let ended = wait_for_status(daemon.address(), |status| !status.contains(&text)).await?;
    println!(
        "tables: a disabled table is a problem after {noticed:.1?}, which ends after {ended:.1?}"
    );
    end(daemon)
}

async fn dropped_log_table(cluster: &Cluster, directory: &Path) -> ScenarioResult<()> {
    let table: TableName = LOG_TABLE.parse()?;
    let daemon = start(cluster, &directory.join("cluster"), "cluster");
    put(daemon.address(), "lost")?;
    let admin = cluster.client().admin();
    admin.disable_table(&table).await?;
    admin.delete_table(&table).await?;
    let text = format!("table {LOG_TABLE} does not exist any more");
    let noticed = wait_for_status(daemon.address(), |status| status.contains(&text)).await?;
    let refused =
        tsd::request(daemon.address(), "POST", "/api/put", Some(&points("lost").to_string()))?;
    if refused.status != 503 || !refused.body.contains(LOG_TABLE) {
        return Err(
            format!("a put without the log table: {} {}", refused.status, refused.body).into()
        );
    }
    println!("tables: a dropped log table is a problem after {noticed:.1?}");
    end(daemon)?;
    // A daemon without the log reads only HBase.
    let reader = start(cluster, &directory.join("storage"), "storage");
    for metric in ["storage", "log", "cluster", "lost"] {
        check(reader.address(), metric)?;
    }
    end(reader)?;
    // The log is new.
    end(start(cluster, &directory.join("cluster"), "cluster"))
}

fn start(cluster: &Cluster, data: &Path, ack: &str) -> Daemon {
    let mut settings = TABLES.to_vec();
    settings.push(("tsd.storage.ack", ack));
    tsd::start(cluster, data, &settings)
}

fn end(daemon: Daemon) -> ScenarioResult<()> {
    let ended = block_in_place(|| daemon.terminate());
    if ended.success() { Ok(()) } else { Err(format!("a daemon ended with {ended}").into()) }
}

/// Waits until the status of a daemon is accepted. Returns how long that took.
async fn wait_for_status(
    address: SocketAddr,
    accept: impl Fn(&str) -> bool,
) -> ScenarioResult<Duration> {
    let begun = Instant::now();
    loop {
        let status = tsd::request(address, "GET", "/api/status", None)?.body;
        if accept(&status) {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > TIMEOUT {
            return Err(format!("the status stays {status}").into());
        }
        sleep(tsd::POLL_INTERVAL).await;
    }
}

fn points(metric: &str) -> Value {
    let point = |number| {
        json!({
            "metric": format!("tables.{metric}"),
            "timestamp": FIRST_SECOND + number,
            "value": number,
            "tags": {"host": "a"},
        })
    };
    json!((0..POINTS).map(point).collect::<Vec<_>>())
}

fn put(address: SocketAddr, metric: &str) -> ScenarioResult<()> {
    tsd::put(address, "/api/put", &points(metric))
}

/// Fails unless all points of a metric are read.
fn check(address: SocketAddr, metric: &str) -> ScenarioResult<()> {
    let end = FIRST_SECOND + POINTS;
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=none:tables.{metric}");
    let found = tsd::query(address, &uri)?;
    let points = found.first().and_then(|series| series["dps"].as_object());
    let is_right = |number: &u64| {
        let value = points.and_then(|dps| dps.get(&(FIRST_SECOND + number).to_string()));
        value.and_then(Value::as_u64) == Some(*number)
    };
    let right = (0..POINTS).filter(is_right).count();
    if right as u64 == POINTS {
        return Ok(());
    }
    Err(format!("{metric}: {right} of {POINTS} points are read").into())
}
