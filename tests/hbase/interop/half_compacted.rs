//! Tests half compacted rows: the compacted column is put, but the replaced columns remain, because the process
//! was killed in between. Both daemons must read such rows equally, and either must complete them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use cluster::Node;
use hbase_rs::{Get, Put, Scan, TableName};
use serde_json::{Value, json};
use tokio::{task::block_in_place, time::sleep};
use tsd_testkit::try_http;

use crate::interop::{report::PartReport, run::Context};
use crate::{
    regions::ScenarioResult,
    table_set::{COMPACTION, NO_COMPACTION, TableSet},
    tsd,
};

const FIRST_HOUR: u64 = 1_500_001_200;
const HOURS: u64 = 6;
const HOSTS: u64 = 50;
/// Instants of a row, in milliseconds.
const OFFSETS_MS: [u64; 5] = [0, 1_000, 2_500, 60_000, 3_598_500];
/// Most kills to leave a row half compacted.
const ATTEMPTS: u32 = 8;
/// Time from the query to the first kill; each further kill doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(60);
/// Longest wait for a compaction.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Our rows may be compacted at once.
const AT_ONCE: [(&str, &str); 2] =
    [("tsd.storage.hold_seconds", "0.1"), ("tsd.storage.hbase.read_back_delay", "0")];

/// The daemon that is killed while it compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    OpenTsdb,
    Ours,
}

/// Counts of rows by the state of their columns.
#[derive(Clone, Copy, Debug, Default)]
struct RowCounts {
    /// Rows of one column with all points.
    whole: usize,
    /// Rows with such a column and other columns.
    half: usize,
    /// Rows without such a column.
    single: usize,
}

/// Kills each while it compacts, and plants rows in the state between its two steps.
pub(crate) async fn run(context: &mut Context<'_>) -> ScenarioResult<PartReport> {
    let mut report = PartReport::default();
    let set = TableSet::with_meta(&format!("half-{}", context.round), &[]);
    set.create(context.cluster)?;
    for killed in [Killed::OpenTsdb, Killed::Ours] {
        let metrics = leave_half_compacted(context, &set, killed, &mut report).await?;
        // The daemon that was not killed completes the planted rows.
        complete(context, &set, killed, &metrics, &mut report).await?;
    }
    Ok(report)
}

/// Writes rows and kills their compacting daemon until a row is half compacted; then plants the same state in
/// untouched rows. Returns the metrics.
async fn leave_half_compacted(
    context: &mut Context<'_>,
    set: &TableSet,
    killed: Killed,
    report: &mut PartReport,
) -> ScenarioResult<Vec<String>> {
    let planted = format!("half.{killed:?}.planted").to_lowercase();
    let writer = context.start_ours(&set.with(&NO_COMPACTION));
    put_rows(writer.address(), &planted)?;
    let mut metrics = vec![planted.clone()];
    for attempt in 0..ATTEMPTS {
        let metric = format!("half.{killed:?}.{attempt}").to_lowercase();
        put_rows(writer.address(), &metric)?;
        metrics.push(metric.clone());
        // The delay grows, since the time of the first compaction depends on the machine.
        let delay = FIRST_DELAY * 2_u32.pow(attempt);
        compact_and_kill(context, set, killed, &metric, delay).await?;
        let counts = count(context, set, &metric).await?;
        report.note(format!("{killed:?} killed {delay:.0?} after a query: {counts:?}"));
        // Without remaining single cells, a later kill cannot leave a half compacted row.
        if counts.half > 0 || counts.single == 0 {
            break;
        }
    }
    drop(writer);
    let source = metrics.last().ok_or("no metric")?.clone();
    plant(context, set, (&source, &planted)).await?;
    let counts = count(context, set, &planted).await?;
    report.note(format!("{killed:?}, planted: {counts:?}"));
    if counts.half == 0 {
        report.difference(format!("{killed:?}: no row is half compacted"));
    }
    Ok(metrics)
}

async fn compact_and_kill(
    context: &mut Context<'_>,
    set: &TableSet,
    killed: Killed,
    metric: &str,
    delay: Duration,
) -> ScenarioResult<()> {
    let query = |address: SocketAddr| {
        let uri = query_uri(metric);
        thread::spawn(move || {
            // The daemon may be killed before it answers.
            let _ = try_http(address, "GET", &uri, None);
        })
    };
    let asked = if killed == Killed::OpenTsdb {
        let node = Node::OpenTsdb;
        let address = set.restart_theirs(context.cluster, node, &COMPACTION).await?;
        let asked = query(address);
        sleep(delay).await;
        context.cluster.kill(node)?;
        asked
    } else {
        let daemon = context.start_ours(&set.with(&[&COMPACTION[..], &AT_ONCE].concat()));
        let asked = query(daemon.address());
        sleep(delay).await;
        block_in_place(|| daemon.kill());
        asked
    };
    asked.join().map_err(|_| "a query panicked")?;
    Ok(())
}

/// Checks that both read all rows equally, before and after one compacts them.
async fn complete(
    context: &mut Context<'_>,
    set: &TableSet,
    killed: Killed,
    metrics: &[String],
    report: &mut PartReport,
) -> ScenarioResult<()> {
    let node = Node::OpenTsdb;
    let theirs = set.restart_theirs(context.cluster, node, &NO_COMPACTION).await?;
    let ours = context.start_ours(&set.with(&NO_COMPACTION));
    let readers = [theirs, ours.address()];
    compare(&format!("{killed:?} killed"), &readers, metrics, report)?;
    let (address, compactor) = if killed == Killed::OpenTsdb {
        let daemon = context.start_ours(&set.with(&[&COMPACTION[..], &AT_ONCE].concat()));
        (daemon.address(), Some(daemon))
    } else {
        (set.restart_theirs(context.cluster, node, &COMPACTION).await?, None)
    };
    for metric in metrics {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            tsd::query(address, &query_uri(metric))?;
            sleep(Duration::from_secs(1)).await;
            let counts = count(context, set, metric).await?;
            if (counts.half, counts.single) == (0, 0) {
                break;
            }
            if Instant::now() > deadline {
                report.difference(format!("{metric} is not compacted: {counts:?}"));
                break;
            }
        }
    }
    let theirs = context.cluster.address(node).ok_or("OpenTSDB does not run")?.parse()?;
    let readers = [theirs, ours.address()];
    compare(&format!("completed after {killed:?}"), &readers, metrics, report)?;
    drop(compactor);
    Ok(())
}

fn compare(
    what: &str,
    readers: &[SocketAddr],
    metrics: &[String],
    report: &mut PartReport,
) -> ScenarioResult<()> {
    for metric in metrics {
        for reader in readers {
            let found = read(*reader, metric)?;
            let expected = points();
            report.answers += expected.len() as u64;
            if found != expected {
                let first = expected.iter().find(|(id, value)| found.get(*id) != Some(*value));
                report.difference(format!(
                    "{what}: {metric} through {reader}: {} points, not {}; first {first:?}",
                    found.len(),
                    expected.len()
                ));
            }
        }
    }
    Ok(())
}

/// Host and milliseconds to the value.
fn points() -> BTreeMap<(String, u64), f64> {
    let mut points = BTreeMap::new();
    for host in 0..HOSTS {
        for hour in 0..HOURS {
            for (at, offset_ms) in OFFSETS_MS.into_iter().enumerate() {
                let at_ms = (FIRST_HOUR + hour * 3_600) * 1_000 + offset_ms;
                let value = (host * 100_000 + hour * 1_000) as f64 + at as f64 * 0.5;
                points.insert((format!("h{host}"), at_ms), value);
            }
        }
    }
    points
}

fn put_rows(address: SocketAddr, metric: &str) -> ScenarioResult<()> {
    let points: Vec<Value> = points()
        .into_iter()
        .map(|((host, at_ms), value)| {
            let time = if at_ms.is_multiple_of(1_000) { at_ms / 1_000 } else { at_ms };
            let value = if value.fract() == 0.0 { json!(value as i64) } else { json!(value) };
            json!({"metric": metric, "timestamp": time, "value": value, "tags": {"host": host}})
        })
        .collect();
    points.chunks(500).try_for_each(|points| tsd::put(address, "/api/put", &points.into()))
}

fn query_uri(metric: &str) -> String {
    let end = FIRST_HOUR + HOURS * 3_600 - 1;
    format!("/api/query?start={FIRST_HOUR}&end={end}&ms=true&m=none:{metric}%7Bhost=*%7D")
}

fn read(address: SocketAddr, metric: &str) -> ScenarioResult<BTreeMap<(String, u64), f64>> {
    let mut found = BTreeMap::new();
    for series in tsd::query(address, &query_uri(metric))? {
        let host = series["tags"]["host"].as_str().ok_or("no host")?;
        for (time, value) in series["dps"].as_object().ok_or("no points")? {
            found.insert((host.to_owned(), time.parse()?), value.as_f64().ok_or("no number")?);
        }
    }
    Ok(found)
}

/// Cells of a row: qualifier, value, timestamp.
type Columns = Vec<(Vec<u8>, Vec<u8>, u64)>;

/// The rows of a metric by their keys without its UID.
async fn rows(
    context: &Context<'_>,
    set: &TableSet,
    metric: &str,
) -> ScenarioResult<(Vec<u8>, BTreeMap<Vec<u8>, Columns>)> {
    let client = context.cluster.client();
    let tables = set.tables();
    let uids = client.table(tables[1].parse::<TableName>()?);
    let row = uids.get(&Get::try_new(metric.to_owned())?).await?;
    let uid = row.value(b"id", b"metrics").ok_or("no UID")?.to_vec();
    let mut found = BTreeMap::new();
    let mut rows = client.table(tables[0].parse::<TableName>()?).scan(Scan::prefix(uid.clone()));
    while let Some(row) = rows.next().await {
        let row = row?.row;
        let cells = row.cells();
        let columns = cells.map(|c| (c.qualifier.to_vec(), c.value.to_vec(), c.timestamp));
        found.insert(row.key().get(uid.len()..).unwrap_or_default().to_vec(), columns.collect());
    }
    Ok((uid, found))
}

/// True for a column with all points of a row: two of them at milliseconds.
fn is_whole(qualifier: &[u8]) -> bool {
    qualifier.len() == 2 * 3 + 4 * 2
}

async fn count(context: &Context<'_>, set: &TableSet, metric: &str) -> ScenarioResult<RowCounts> {
    let (_, rows) = rows(context, set, metric).await?;
    let mut counts = RowCounts::default();
    for columns in rows.values() {
        let has_whole = columns.iter().any(|(qualifier, ..)| is_whole(qualifier));
        match (has_whole, columns.len()) {
            (true, 1) => counts.whole += 1,
            (true, _) => counts.half += 1,
            (false, _) => counts.single += 1,
        }
    }
    Ok(counts)
}

/// Puts the compacted columns of one metric into the rows of another metric with the same points.
async fn plant(
    context: &Context<'_>,
    set: &TableSet,
    (source, target): (&str, &str),
) -> ScenarioResult<()> {
    let (_, source) = rows(context, set, source).await?;
    let (uid, targets) = rows(context, set, target).await?;
    let table = context.cluster.client().table(set.tables()[0].parse::<TableName>()?);
    for (key, columns) in source {
        let newest = targets.get(&key).and_then(|columns| columns.iter().map(|c| c.2).max());
        let Some(newest) = newest else { continue };
        for (qualifier, value, _) in columns.iter().filter(|(column, ..)| is_whole(column)) {
            let row = [uid.as_slice(), &key].concat();
            let put = Put::try_new(row)?.cell(b"t", qualifier, newest, value)?;
            table.mutate(put).await?;
        }
    }
    Ok(())
}
