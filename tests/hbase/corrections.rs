//! Tests corrections of points while OpenTSDB compacts their rows: both sides must read the last
//! acknowledged value.
//!
//! OpenTSDB reads a row, puts the compacted column up to a second later, and after that deletes the
//! columns that it read, up to the time of the server. A correction in between is superseded or hidden
//! until it is read back.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use cluster::{Cluster, Node};
use hbase_rs::{Client, TableName};
use serde_json::{Value, json};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};
use tsd_testkit::{Daemon, try_http};

use crate::{
    regions::ScenarioResult,
    row_history::{PointPlace, row_history},
    tsd::{self, Settings},
};

/// OpenTSDB also compacts the rows that were written through it, every second.
const OPENTSDB_SETTINGS: [(&str, &str); 5] = [
    ("tsd.storage.enable_compaction", "true"),
    ("tsd.storage.compaction.flush_interval", "1"),
    ("tsd.storage.compaction.min_flush_threshold", "1"),
    ("tsd.storage.compaction.max_concurrent_flushes", "10000"),
    ("tsd.storage.compaction.flush_speed", "2"),
];

/// Where our daemons acknowledge points; the name is also the name of the metric.
const DAEMONS: [(&str, &Settings<'static>); 2] = [
    ("log", &[("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "1"), READ_BACK_DELAY]),
    (
        "storage",
        &[("tsd.storage.ack", "storage"), ("tsd.storage.fix_duplicates", "true"), READ_BACK_DELAY],
    ),
];
/// Longer than a compaction of OpenTSDB during a stall of HBase: points that are hidden later stay
/// hidden.
const READ_BACK_DELAY: (&str, &str) = ("tsd.storage.hbase.read_back_delay", "12");

/// Start of the hours of all points, which are long over.
const FIRST_HOUR: u64 = 1_500_001_200;
/// Hours per metric that are compacted while they are corrected; each is left alone after that.
const HOURS: u64 = 32;
const HOSTS: u64 = 10;
/// Instants, in milliseconds of the hour.
const OFFSETS_MS: [u64; 4] = [0, 1_000, 4_001, 3_599_000];
/// Writes of an hour; the first and the last write have all instants.
const ROUNDS: u64 = 5;
/// Pause between the first writes of two hours.
const HOUR_PAUSE: Duration = Duration::from_millis(250);
/// Pause between two queries of a metric.
const QUERY_PAUSE: Duration = Duration::from_millis(150);
/// Pause between two flushes of the memory of HBase's regions.
const FLUSH_PAUSE: Duration = Duration::from_secs(2);
/// Longest time after the last write until the values are correct.
const SETTLE: Duration = Duration::from_secs(45);

/// Host and milliseconds since the epoch.
type PointId = (String, u64);
type Points = BTreeMap<PointId, f64>;

/// Corrects points through both, and reads them from both.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    cluster.set_opentsdb_settings(&OPENTSDB_SETTINGS);
    if cluster.is_running(Node::OpenTsdb)? {
        cluster.kill(Node::OpenTsdb)?;
    }
    cluster.restart(Node::OpenTsdb).await?;
    let opentsdb: SocketAddr =
        cluster.opentsdb_address().ok_or("OpenTSDB does not run")?.parse()?;
    let directory = tempfile::tempdir()?;
    let start = |(ack, settings): &(&str, &Settings<'static>)| {
        tsd::start(cluster, &directory.path().join(ack), settings)
    };
    let daemons: Vec<Daemon> = DAEMONS.iter().map(start).collect();
    let mut queries = JoinSet::new();
    let mut writers = JoinSet::new();
    for (daemon, (ack, _)) in daemons.iter().zip(DAEMONS) {
        let metric = format!("corrections.{ack}");
        // The UIDs are assigned before rows are compacted.
        tsd::put(daemon.address(), "/api/put", &json!([point(&metric, "h0", 1, &json!(0))]))?;
        for _ in 0..2 {
            queries.spawn(query_repeatedly(opentsdb, metric.clone()));
        }
        for hour in 0..HOURS {
            writers.spawn(write_hour(metric.clone(), hour, daemon.address(), opentsdb));
        }
    }
    queries.spawn(flush_repeatedly(cluster.client()));
    let mut expected: BTreeMap<String, Points> = BTreeMap::new();
    let mut corrections = 0;
    while let Some(written) = writers.join_next().await {
        let (metric, points, count) = written??;
        expected.entry(metric).or_default().extend(points);
        corrections += count;
    }
    let settled = Instant::now() + SETTLE;
    let readers = [
        ("OpenTSDB", opentsdb),
        ("ack = log", daemons[0].address()),
        ("ack = storage", daemons[1].address()),
    ];
    let (wrong, first_wrong) = loop {
        let (mut wrong, mut first_wrong) = (Vec::new(), None);
        for (metric, points) in &expected {
            for (name, reader) in readers {
                let read = read(reader, metric)?;
                let differs = points.iter().filter(|(id, value)| read.get(*id) != Some(*value));
                let differs: Vec<_> =
                    differs.map(|(id, value)| (id, value, read.get(id))).collect();
                if let Some(first) = differs.first() {
                    first_wrong.get_or_insert_with(|| (metric.clone(), first.0.clone()));
                    wrong.push(format!(
                        "{metric} through {name}: {} wrong, {first:?}",
                        differs.len()
                    ));
                }
            }
        }
        if wrong.is_empty() || Instant::now() > settled {
            break (wrong, first_wrong);
        }
        sleep(tsd::POLL_INTERVAL).await;
    };
    queries.abort_all();
    let instants: usize = expected.values().map(BTreeMap::len).sum();
    println!("corrections: {corrections} writes of {instants} instants, restored points:");
    for (daemon, (ack, _)) in daemons.iter().zip(DAEMONS) {
        let metrics = tsd::request(daemon.address(), "GET", "/metrics", None)?.body;
        let figures = metrics.lines().filter(|line| {
            line.starts_with("tsd_hbase_restored") || line.starts_with("tsd_hbase_read_back")
        });
        println!("  {ack}: {}", figures.collect::<Vec<_>>().join(", "));
    }
    if let Some((metric, (host, at_ms))) = first_wrong {
        println!("corrections: all cells of {host} at {at_ms}:");
        let place = PointPlace { table: "tsdb", metric: &metric, host: &host, at_ms };
        for cell in row_history(cluster, &place).await? {
            println!("  {cell}");
        }
    }
    cluster.kill(Node::OpenTsdb)?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// Writes and corrects the points of an hour, mostly through our daemon. Returns the metric, the last
/// value of each instant and the number of writes.
async fn write_hour(
    metric: String,
    hour: u64,
    ours: SocketAddr,
    opentsdb: SocketAddr,
) -> ScenarioResult<(String, Points, u64)> {
    let mut random = Random((hour << 32) | metric.len() as u64);
    sleep(HOUR_PAUSE * u32::try_from(hour)?).await;
    let (mut last, mut writes) = (Points::new(), 0);
    for round in 1..=ROUNDS {
        let is_partial = round > 1 && round < ROUNDS;
        let mut points = Vec::new();
        for host in 0..HOSTS {
            for offset_ms in OFFSETS_MS {
                if is_partial && random.below(100) < 50 {
                    continue;
                }
                let host = format!("h{host}");
                let at_ms = (FIRST_HOUR + hour * 3_600) * 1_000 + offset_ms;
                let is_seconds = offset_ms % 1_000 == 0 && random.below(2) == 0;
                let time = if is_seconds { at_ms / 1_000 } else { at_ms };
                let number = random.below(100);
                let value = match random.below(3) {
                    0 => json!(number),
                    1 => json!(1_000 + number),
                    _ => json!(number as f64 + 0.5),
                };
                points.push(point(&metric, &host, time, &value));
                last.insert((host, at_ms), value.as_f64().ok_or("no number")?);
            }
        }
        writes += points.len() as u64;
        // Never the last write, since OpenTSDB may lose its own puts while it compacts the row.
        let is_through_opentsdb = is_partial && random.below(100) < 30;
        let (writer, uri) =
            if is_through_opentsdb { (opentsdb, "/api/put?sync") } else { (ours, "/api/put") };
        let body = Value::Array(points).to_string();
        let put = spawn_blocking(move || try_http(writer, "POST", uri, Some(&body))).await??;
        if !matches!(put.status, 200 | 204) {
            return Err(format!("{uri} of {writer}: {} {}", put.status, put.body).into());
        }
        sleep(Duration::from_millis(100 + random.below(1_200))).await;
    }
    Ok((metric, last, writes))
}

fn point(metric: &str, host: &str, time: u64, value: &Value) -> Value {
    json!({"metric": metric, "timestamp": time, "value": value, "tags": {"host": host}})
}

/// Queries make OpenTSDB compact the rows. Their results do not matter, nor do errors.
async fn query_repeatedly(opentsdb: SocketAddr, metric: String) {
    let uri = Arc::new(query_uri(&metric));
    loop {
        let uri = Arc::clone(&uri);
        let _ = spawn_blocking(move || try_http(opentsdb, "GET", &uri, None)).await;
        sleep(QUERY_PAUSE).await;
    }
}

/// A flush of a region makes HBase forget deleted cells. Failed flushes do not matter.
async fn flush_repeatedly(client: Client) {
    let Ok(table) = "tsdb".parse::<TableName>() else { return };
    loop {
        sleep(FLUSH_PAUSE).await;
        let _ = client.admin().flush_table(&table).await;
    }
}

/// A query of all hours.
fn query_uri(metric: &str) -> String {
    let end = FIRST_HOUR + HOURS * 3_600 - 1;
    format!("/api/query?start={FIRST_HOUR}&end={end}&ms=true&m=none:{metric}%7Bhost=*%7D")
}

fn read(reader: SocketAddr, metric: &str) -> ScenarioResult<Points> {
    let mut points = Points::new();
    for series in tsd::query(reader, &query_uri(metric))? {
        let host = series["tags"]["host"].as_str().ok_or("no host")?;
        for (time, value) in series["dps"].as_object().ok_or("no points")? {
            let value = value.as_f64().ok_or("no number")?;
            points.insert((host.to_owned(), time.parse()?), value);
        }
    }
    Ok(points)
}

/// Pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}
