//! A table is restored from a snapshot while a daemon uses it: in place, with the regions from before a split, and
//! dropped and cloned to its name. The daemon and a client with cached locations go on without a restart.

use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cluster::Cluster;
use hbase_rs::{Get, Scan, Table};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    fault_admin::administer,
    regions::{ScenarioResult, split, wait_until},
    tsd,
};

const DATA_TABLE: &str = "restored";
const TABLES: [(&str, &str); 4] = [
    ("tsd.storage.hbase.data_table", DATA_TABLE),
    ("tsd.storage.hbase.uid_table", "restored-uid"),
    ("tsd.storage.hbase.tree_table", "restored-tree"),
    ("tsd.storage.hbase.meta_table", "restored-meta"),
];
const SNAPSHOT: &str = "restored-snapshot";
const FIRST_SECOND: u64 = 1_600_000_000;
/// Points of a metric, an hour apart, so that each is a row.
const POINTS: u64 = 60;
const STEP: u64 = 3_600;
/// Reads of one row after a restore, and the lookups that they may need.
const READS: u64 = 30;
const LOOKUPS: u64 = 4;
/// Pause between the puts of the writer.
const PAUSE: Duration = Duration::from_millis(50);
/// Points that the writer must get acknowledged after a restore.
const ACKNOWLEDGED_AFTER: usize = 20;

/// Restores a table in place and from its snapshot alone.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &TABLES)?;
    let directory = tempfile::tempdir()?;
    let daemon = tsd::start(cluster, directory.path(), &TABLES);
    let address = daemon.address();
    let client = cluster.client();
    let table = client.table(DATA_TABLE.parse()?);
    put_all(address, "kept").await?;
    let first_regions = names(&table).await?;
    administer(cluster, &["snapshot", SNAPSHOT, DATA_TABLE]).await?;
    let writer = SingleWriter::start(address);
    for command in ["restore", "recreate"] {
        // The new regions have higher ids.
        split(&client, std::slice::from_ref(&table)).await?;
        wait_until("a split", async || Ok(names(&table).await?.len() > first_regions.len()))
            .await?;
        put_all(address, "later").await?;
        check(address, "later", true)?;
        let row = last_row(&table).await?;
        writer.await_acknowledgements(Instant::now()).await?;
        let begun = Instant::now();
        administer(cluster, &[command, SNAPSHOT, DATA_TABLE]).await?;
        let enabled = Instant::now();
        writer.await_acknowledgements(enabled).await?;
        let gap = writer.longest_gap(begun);
        check(address, "kept", true)?;
        check(address, "later", false)?;
        if names(&table).await? != first_regions {
            return Err(format!("{command}: the regions are not those of the snapshot").into());
        }
        let lookups = client.stats().lookups;
        for _ in 0..READS {
            table.get(&Get::try_new(row.clone())?).await?;
        }
        let lookups = client.stats().lookups - lookups;
        if lookups > LOOKUPS {
            return Err(format!("{command}: {lookups} lookups for {READS} reads of a row").into());
        }
        writer.check(enabled)?;
        println!(
            "restore: {command}: no put was acknowledged for {gap:.1?}, {} puts failed; {lookups} lookups",
            writer.take_failures()
        );
    }
    wait_until("no problem is left", async || {
        let status = tsd::request(address, "GET", "/api/status", None)?.body;
        Ok(!status.contains(DATA_TABLE))
    })
    .await?;
    writer.end().await
}

/// Names of the regions of a table in hbase:meta, without the parents of splits.
async fn names(table: &Table) -> ScenarioResult<Vec<Bytes>> {
    let rows = table.regions().await?;
    let open = rows.iter().filter(|row| !row.region.is_split_parent());
    Ok(open.map(|row| row.region.name().clone()).collect())
}

/// The last row of a table, which is in its last region.
async fn last_row(table: &Table) -> ScenarioResult<Bytes> {
    let mut rows = table.scan(Scan::all().reversed().limit(1));
    let row = rows.next().await.ok_or("an empty table")??;
    Ok(row.row.key_bytes())
}

/// Puts the points of a metric until they are acknowledged.
async fn put_all(address: SocketAddr, metric: &str) -> ScenarioResult<()> {
    let point = |number| {
        json!({
            "metric": format!("restored.{metric}"),
            "timestamp": FIRST_SECOND + number * STEP,
            "value": number,
            "tags": {"host": "a"},
        })
    };
    let points = json!((0..POINTS).map(point).collect::<Vec<_>>());
    wait_until("points are stored", async || Ok(tsd::put(address, "/api/put", &points).is_ok()))
        .await
}

/// Fails unless all points of a metric are read, or none of them.
fn check(address: SocketAddr, metric: &str, is_stored: bool) -> ScenarioResult<()> {
    let end = FIRST_SECOND + POINTS * STEP;
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=none:restored.{metric}");
    let found = tsd::query(address, &uri)?;
    let points = found.first().and_then(|series| series["dps"].as_object());
    let is_right = |number: &u64| {
        let second = FIRST_SECOND + number * STEP;
        let value = points.and_then(|dps| dps.get(&second.to_string()));
        value.and_then(Value::as_u64) == Some(*number)
    };
    let right = (0..POINTS).filter(is_right).count() as u64;
    let expected = if is_stored { POINTS } else { 0 };
    if right == expected && points.map_or(0, serde_json::Map::len) as u64 == expected {
        return Ok(());
    }
    Err(format!("{metric}: {right} points are right, {expected} expected: {found:?}").into())
}

/// Puts one point after the other, each until it is acknowledged.
struct SingleWriter {
    address: SocketAddr,
    shared: Arc<Written>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Written {
    /// When the points were acknowledged, by number.
    times: Mutex<Vec<Instant>>,
    failures: Mutex<u64>,
    stopped: AtomicBool,
}

impl SingleWriter {
    fn start(address: SocketAddr) -> Self {
        let shared = Arc::new(Written::default());
        let written = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while !written.stopped.load(Ordering::SeqCst) {
                let number = written.times.lock().len() as u64;
                let point = json!({
                    "metric": "restored.written",
                    "timestamp": FIRST_SECOND + number,
                    "value": number,
                    "tags": {"host": "w"},
                });
                if tsd::put(address, "/api/put", &point).is_ok() {
                    written.times.lock().push(Instant::now());
                } else {
                    *written.failures.lock() += 1;
                }
                sleep(PAUSE).await;
            }
        });
        Self { address, shared, task }
    }

    async fn await_acknowledgements(&self, since: Instant) -> ScenarioResult<()> {
        wait_until("puts are acknowledged", async || {
            let times = self.shared.times.lock();
            Ok(times.iter().filter(|at| **at > since).count() >= ACKNOWLEDGED_AFTER)
        })
        .await
    }

    /// The longest time between two acknowledgements since a time.
    fn longest_gap(&self, since: Instant) -> Duration {
        let times = self.shared.times.lock();
        let gaps = times.windows(2).filter(|pair| pair[1] > since).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }

    /// Fails unless every point that was acknowledged since this time is read.
    fn check(&self, since: Instant) -> ScenarioResult<()> {
        let times = self.shared.times.lock().clone();
        let end = FIRST_SECOND + times.len() as u64;
        let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=none:restored.written");
        let found = tsd::query(self.address, &uri)?;
        let points = found.first().and_then(|series| series["dps"].as_object());
        let acknowledged = times.iter().enumerate().filter(|(_, at)| **at > since);
        let missing = acknowledged.filter(|(number, _)| {
            let second = FIRST_SECOND + *number as u64;
            let value = points.and_then(|dps| dps.get(&second.to_string()));
            value.and_then(Value::as_u64) != Some(*number as u64)
        });
        match missing.count() {
            0 => Ok(()),
            missing => Err(format!("{missing} points are missing after a restore").into()),
        }
    }

    /// Takes the number of failed puts since the last call.
    fn take_failures(&self) -> u64 {
        std::mem::take(&mut self.shared.failures.lock())
    }

    async fn end(self) -> ScenarioResult<()> {
        self.shared.stopped.store(true, Ordering::SeqCst);
        Ok(self.task.await?)
    }
}
