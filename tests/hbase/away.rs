//! HBase is away and a daemon dies meanwhile, with `tsd.storage.ack = log`: what was acknowledged is
//! in HBase in the end. A log that is full refuses.

use std::{path::Path, time::Duration};

use cluster::{Cluster, Node};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    load::Load,
    points::Points,
    regions::{Outcome, PATIENCE},
    tsd,
};

const TABLES: [(&str, &str); 6] = [
    ("tsd.storage.hbase.data_table", "away"),
    ("tsd.storage.hbase.uid_table", "away-uid"),
    ("tsd.storage.hbase.tree_table", "away-tree"),
    ("tsd.storage.hbase.meta_table", "away-meta"),
    ("tsd.storage.ack", "log"),
    ("tsd.storage.hold_seconds", "2"),
];

/// What a daemon reaches of HBase.
const SERVERS: [Node; 3] = [Node::RegionServer(0), Node::RegionServer(1), Node::Master];

/// For so long HBase is away.
const AWAY: Duration = Duration::from_mins(1);

/// Between the requests of a writer.
const PAUSE: Duration = Duration::from_millis(50);

/// The minute, and the full log.
pub(crate) async fn run(cluster: &mut Cluster) -> Outcome<()> {
    tsd::create_tables(cluster, &TABLES)?;
    let directory = tempfile::tempdir()?;
    a_minute(cluster, &directory.path().join("minute")).await?;
    a_full_log(cluster, &directory.path().join("full")).await
}

async fn a_minute(cluster: &Cluster, data: &Path) -> Outcome<()> {
    let daemon = tsd::start(cluster, data, &TABLES);
    let load = Points::start("ack = log", "away", daemon.address(), PAUSE);
    load.recover().await?;
    sleep(Duration::from_secs(3)).await;
    let before = load.counts();
    let begun = Instant::now();
    load.outage(true);
    for node in SERVERS {
        cluster.links().refuse(node);
    }
    sleep(AWAY / 2).await;
    let away = load.counts().acknowledged - before.acknowledged;
    if away == 0 {
        return Err("nothing is acknowledged while HBase is away".into());
    }
    daemon.kill();
    sleep(AWAY.saturating_sub(begun.elapsed())).await;
    for node in SERVERS {
        cluster.links().mend(node);
    }
    let daemon = tsd::start(cluster, data, &TABLES);
    load.follow(daemon.address());
    load.recover().await?;
    let back = begun.elapsed();
    load.outage(false);
    let lost = load.prove().await?;
    load.progress().await?;
    // Until all of it is in HBase: another daemon, which knows nothing of this one's log, tells.
    let other = tsd::start(cluster, &data.with_extension("other"), &TABLES);
    let flaws = load.finish().await?;
    load.follow(other.address());
    let deadline = Instant::now() + PATIENCE;
    let mut flaws_by_other = load.check_all().await;
    while flaws_by_other != Ok((0, 0)) && Instant::now() < deadline {
        sleep(tsd::REST).await;
        flaws_by_other = load.check_all().await;
    }
    let counts = load.counts();
    println!(
        "away: HBase away for {AWAY:?}, SIGKILL of the daemon after {:?}: {} points acknowledged, {away} \
         of them meanwhile; lost {lost}, well after {back:.1?}; {flaws:?}; in HBase: {flaws_by_other:?}",
        AWAY / 2,
        counts.acknowledged,
    );
    if lost > 0 || !flaws.is_empty() || counts.bad_scans > 0 || flaws_by_other != Ok((0, 0)) {
        return Err(load.complaints().join("\n").into());
    }
    Ok(())
}

/// Points of a request.
const POINTS: u64 = 500;

async fn a_full_log(cluster: &Cluster, data: &Path) -> Outcome<()> {
    let mut settings = TABLES.to_vec();
    settings.push(("tsd.storage.log.max_size", "4194304"));
    let daemon = tsd::start(cluster, data, &settings);
    let points = |request: u64| {
        let point = |at| {
            let number = request * POINTS + at;
            json!({
                "metric": "away.full",
                "timestamp": 1_600_000_000 + number,
                "value": number,
                "tags": {"host": format!("h{}", number % 8)},
            })
        };
        json!((0..POINTS).map(point).collect::<Vec<_>>())
    };
    // Names are assigned while HBase is there.
    tsd::put(daemon.address(), "/api/put", &points(0))?;
    for node in SERVERS {
        cluster.links().refuse(node);
    }
    let mut acknowledged = 1;
    let refusal = loop {
        let body = points(acknowledged).to_string();
        let answer = tsd::ask(daemon.address(), "POST", "/api/put", Some(&body))?;
        if answer.status != 204 {
            break answer;
        }
        acknowledged += 1;
        if acknowledged * POINTS > 2_000_000 {
            return Err("a log of 4 MB holds two million points".into());
        }
    };
    for node in SERVERS {
        cluster.links().mend(node);
    }
    if refusal.status != 503 {
        return Err(format!("a full log answers {} {}", refusal.status, refusal.body).into());
    }
    // There is room again before long.
    let deadline = Instant::now() + PATIENCE;
    let body = points(acknowledged).to_string();
    while tsd::ask(daemon.address(), "POST", "/api/put", Some(&body))?.status != 204 {
        if Instant::now() > deadline {
            return Err("the log stays full after HBase is back".into());
        }
        sleep(tsd::REST).await;
    }
    acknowledged += 1;
    let until = 1_600_000_000 + acknowledged * POINTS;
    let uri = format!("/api/query?start=1600000000&end={until}&m=zimsum:away.full");
    let found = tsd::query(daemon.address(), &uri)?;
    let found = found.first().and_then(|series| series["dps"].as_object());
    let missing = (0..acknowledged * POINTS)
        .filter(|number| {
            let value = found.and_then(|dps| dps.get(&(1_600_000_000 + number).to_string()));
            value.and_then(serde_json::Value::as_f64) != Some(*number as f64)
        })
        .count();
    println!(
        "away: a log of 4 MB took {} points, then 503; after HBase was back {missing} were missing",
        acknowledged * POINTS
    );
    if missing == 0 { Ok(()) } else { Err("acknowledged points are missing".into()) }
}
