//! While HBase is unavailable, a daemon with `tsd.storage.ack = log` is killed: afterwards HBase
//! has every acknowledged point. A full log rejects puts.

use std::{path::Path, time::Duration};

use cluster::{Cluster, Node};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    daemon_workload::DaemonWorkload,
    regions::{ScenarioResult, TIMEOUT},
    tsd,
    workload::Workload,
};

const TABLES: [(&str, &str); 6] = [
    ("tsd.storage.hbase.data_table", "outage"),
    ("tsd.storage.hbase.uid_table", "outage-uid"),
    ("tsd.storage.hbase.tree_table", "outage-tree"),
    ("tsd.storage.hbase.meta_table", "outage-meta"),
    ("tsd.storage.ack", "log"),
    ("tsd.storage.hold_seconds", "2"),
];

/// Nodes of HBase that a daemon connects to.
const SERVERS: [Node; 3] = [Node::RegionServer(0), Node::RegionServer(1), Node::Master];

/// Duration of the outage.
const OUTAGE: Duration = Duration::from_mins(1);

/// Pause between the requests of a writer.
const PAUSE: Duration = Duration::from_millis(50);

/// An outage of a minute, and a full log.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &TABLES)?;
    let directory = tempfile::tempdir()?;
    minute_outage(cluster, &directory.path().join("minute")).await?;
    full_log(cluster, &directory.path().join("full")).await
}

async fn minute_outage(cluster: &Cluster, data: &Path) -> ScenarioResult<()> {
    let daemon = tsd::start(cluster, data, &TABLES);
    let load = DaemonWorkload::start("ack = log", "outage", daemon.address(), PAUSE);
    load.wait_for_recovery().await?;
    sleep(Duration::from_secs(3)).await;
    let before = load.counts();
    let start = Instant::now();
    load.expect_failures(true);
    for node in SERVERS {
        cluster.links().refuse(node);
    }
    sleep(OUTAGE / 2).await;
    let during_outage = load.counts().acknowledged - before.acknowledged;
    if during_outage == 0 {
        return Err("no put is acknowledged while HBase is unavailable".into());
    }
    daemon.kill();
    sleep(OUTAGE.saturating_sub(start.elapsed())).await;
    for node in SERVERS {
        cluster.links().restore(node);
    }
    let daemon = tsd::start(cluster, data, &TABLES);
    load.set_address(daemon.address());
    load.wait_for_recovery().await?;
    let recovery = start.elapsed();
    load.expect_failures(false);
    let lost = load.count_lost().await?;
    load.wait_for_progress().await?;
    // Another daemon, with an empty log, reads only HBase.
    let other = tsd::start(cluster, &data.with_extension("other"), &TABLES);
    let errors = load.finish().await?;
    load.set_address(other.address());
    let deadline = Instant::now() + TIMEOUT;
    let mut missing_in_hbase = load.check_all().await;
    while missing_in_hbase != Ok((0, 0)) && Instant::now() < deadline {
        sleep(tsd::POLL_INTERVAL).await;
        missing_in_hbase = load.check_all().await;
    }
    let counts = load.counts();
    println!(
        "outage: HBase unavailable for {OUTAGE:?}, SIGKILL of the daemon after {:?}: {} points \
         acknowledged, {during_outage} of them meanwhile; lost {lost}, recovered after {recovery:.1?}; \
         {errors:?}; missing and wrong in HBase: {missing_in_hbase:?}",
        OUTAGE / 2,
        counts.acknowledged,
    );
    if lost > 0 || !errors.is_empty() || counts.wrong_reads > 0 || missing_in_hbase != Ok((0, 0)) {
        return Err(load.problems().join("\n").into());
    }
    Ok(())
}

/// Points of a request.
const POINTS: u64 = 500;

async fn full_log(cluster: &Cluster, data: &Path) -> ScenarioResult<()> {
    let mut settings = TABLES.to_vec();
    settings.push(("tsd.storage.log.max_size", "4194304"));
    let daemon = tsd::start(cluster, data, &settings);
    let points = |request: u64| {
        let point = |at| {
            let number = request * POINTS + at;
            json!({
                "metric": "outage.full",
                "timestamp": 1_600_000_000 + number,
                "value": number,
                "tags": {"host": format!("h{}", number % 8)},
            })
        };
        json!((0..POINTS).map(point).collect::<Vec<_>>())
    };
    // UIDs are assigned before the outage.
    tsd::put(daemon.address(), "/api/put", &points(0))?;
    for node in SERVERS {
        cluster.links().refuse(node);
    }
    let mut acknowledged = 1;
    let rejection = loop {
        let body = points(acknowledged).to_string();
        let response = tsd::request(daemon.address(), "POST", "/api/put", Some(&body))?;
        if response.status != 204 {
            break response;
        }
        acknowledged += 1;
        if acknowledged * POINTS > 2_000_000 {
            return Err("a log of 4 MB accepts two million points".into());
        }
    };
    for node in SERVERS {
        cluster.links().restore(node);
    }
    if rejection.status != 503 {
        return Err(
            format!("response at a full log: {} {}", rejection.status, rejection.body).into()
        );
    }
    // The log accepts points again after a while.
    let deadline = Instant::now() + TIMEOUT;
    let body = points(acknowledged).to_string();
    while tsd::request(daemon.address(), "POST", "/api/put", Some(&body))?.status != 204 {
        if Instant::now() > deadline {
            return Err("the log stays full after the outage".into());
        }
        sleep(tsd::POLL_INTERVAL).await;
    }
    acknowledged += 1;
    let until = 1_600_000_000 + acknowledged * POINTS;
    let uri = format!("/api/query?start=1600000000&end={until}&m=zimsum:outage.full");
    let found = tsd::query(daemon.address(), &uri)?;
    let found = found.first().and_then(|series| series["dps"].as_object());
    let missing = (0..acknowledged * POINTS)
        .filter(|number| {
            let value = found.and_then(|dps| dps.get(&(1_600_000_000 + number).to_string()));
            value.and_then(serde_json::Value::as_f64) != Some(*number as f64)
        })
        .count();
    println!(
        "outage: a log of 4 MB accepted {} points, then 503; after the outage {missing} were missing",
        acknowledged * POINTS
    );
    if missing == 0 { Ok(()) } else { Err("acknowledged points are missing".into()) }
}
