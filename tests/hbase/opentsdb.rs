//! Tests OpenTSDB 2.4.1 on the same tables: each side reads the points of the other in every
//! storage mode, and the cells have the same bytes.

use std::net::SocketAddr;

use cluster::{Cluster, Node};
use hbase_rs::{Client, Get, Scan, TableName};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tsd_testkit::Daemon;

use crate::{
    regions::{ScenarioResult, TIMEOUT},
    tsd::{self, Settings, put, query, request},
};

const SECOND: u64 = 1_600_000_000;

/// Writers of points: a name, and the settings of our daemon; `None` for OpenTSDB.
const STORAGE_MODES: [(&str, Option<&Settings<'static>>); 4] = [
    ("opentsdb", None),
    ("cells", Some(&[("tsd.storage.enable_compaction", "false")])),
    ("appends", Some(&[("tsd.storage.enable_appends", "true")])),
    ("coalesced", Some(&[("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "1")])),
];

/// Writes the same points in each mode and reads all of them from both sides.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    let opentsdb = cluster.opentsdb_address().ok_or("OpenTSDB does not run")?.parse()?;
    let directory = tempfile::tempdir()?;
    let mut ours: Vec<Daemon> = Vec::new();
    for (mode, settings) in STORAGE_MODES {
        let points = points(mode);
        let Some(settings) = settings else {
            put(opentsdb, "/api/put?sync", &points)?;
            continue;
        };
        let daemon = tsd::start(cluster, &directory.path().join(mode), settings);
        put(daemon.address(), "/api/put", &points)?;
        ours.push(daemon);
    }
    // Before any query: OpenTSDB compacts the rows that it reads.
    let client = cluster.client();
    let (theirs, cells) =
        (cells(&client, "mixed.opentsdb").await?, cells(&client, "mixed.cells").await?);
    if theirs != cells || theirs.is_empty() {
        return Err(format!("cells differ: OpenTSDB {theirs:?}, ours {cells:?}").into());
    }
    let reader = ours.first().ok_or("no daemon of ours")?.address();
    for (mode, _) in STORAGE_MODES {
        compare_results(opentsdb, reader, mode).await?;
    }
    annotations(opentsdb, reader)?;
    println!(
        "opentsdb: {} modes read alike by both, {} cells are the same",
        STORAGE_MODES.len(),
        cells.len()
    );
    drop(ours);
    // The other scenarios need its memory and CPU.
    cluster.kill(Node::OpenTsdb)?;
    Ok(())
}

/// Integers of all widths, floats, seconds and milliseconds, two hours, two series.
fn points(mode: &str) -> Value {
    let values = [
        json!(0),
        json!(1),
        json!(-1),
        json!(300),
        json!(-70_000),
        json!(5_000_000_000_i64),
        json!(1.5),
        json!(-0.25),
        json!(2.236_067_977_499_79),
        json!(1.0e20),
    ];
    let mut points = Vec::new();
    for host in ["web01", "web02"] {
        for (at, value) in values.iter().enumerate() {
            for hour in 0..2 {
                let second = SECOND + hour * 3_600 + at as u64 * 10;
                // Every third point at a millisecond.
                let time = if at % 3 == 2 { second * 1_000 + 250 } else { second };
                points.push(json!({
                    "metric": format!("mixed.{mode}"),
                    "timestamp": time,
                    "value": value,
                    "tags": {"host": host, "dc": "lga"},
                }));
            }
        }
    }
    Value::Array(points)
}

/// Compares the results of queries to both, until all points are returned.
async fn compare_results(opentsdb: SocketAddr, ours: SocketAddr, mode: &str) -> ScenarioResult<()> {
    let deadline = Instant::now() + TIMEOUT;
    for aggregate in ["none", "sum", "max:1m-avg", "sum:rate"] {
        let uri = format!(
            "/api/query?start={}&end={}&ms=true&m={aggregate}:mixed.{mode}%7Bhost=*%7D",
            SECOND - 60,
            SECOND + 7_200
        );
        loop {
            let results = query(opentsdb, &uri).and_then(|a| Ok((a, query(ours, &uri)?)));
            let count = |series: &[Value]| {
                let counts =
                    series.iter().map(|one| one["dps"].as_object().map_or(0, serde_json::Map::len));
                counts.sum::<usize>()
            };
            // Held rows are not flushed yet.
            match &results {
                Ok((theirs, ours))
                    if theirs == ours && (aggregate != "none" || count(ours) == 40) =>
                {
                    break;
                }
                _ if Instant::now() < deadline => sleep(tsd::POLL_INTERVAL).await,
                _ => return Err(format!("{uri}: {results:?}").into()),
            }
        }
    }
    Ok(())
}

/// Each side writes an annotation that the other reads.
fn annotations(opentsdb: SocketAddr, ours: SocketAddr) -> ScenarioResult<()> {
    let uri = format!("/api/query?start={SECOND}&show_tsuids=true&m=none:mixed.cells");
    let series = query(ours, &uri)?;
    let tsuid = series[0]["tsuids"][0].as_str().ok_or("no TSUID")?.to_owned();
    for (writer, reader, at) in [(opentsdb, ours, SECOND + 1), (ours, opentsdb, SECOND + 2)] {
        let annotation =
            json!({"startTime": at, "tsuid": tsuid, "description": format!("note {at}")});
        put(writer, "/api/annotation", &annotation)?;
        let read = request(
            reader,
            "GET",
            &format!("/api/annotation?start_time={at}&tsuid={tsuid}"),
            None,
        )?;
        let read: Value = serde_json::from_str(&read.body)?;
        if read["description"] != annotation["description"] {
            return Err(format!("annotation {annotation} is read as {read}").into());
        }
    }
    Ok(())
}

/// Cells of a metric: row without the metric UID, qualifier, value.
async fn cells(client: &Client, metric: &str) -> ScenarioResult<Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>> {
    let uids = client.table("tsdb-uid".parse::<TableName>()?);
    let row = uids.get(&Get::try_new(metric.to_owned())?).await?;
    let uid = row.value(b"id", b"metrics").ok_or("no UID")?.to_vec();
    let mut found = Vec::new();
    let mut rows = client.table("tsdb".parse::<TableName>()?).scan(Scan::prefix(uid.clone()));
    while let Some(row) = rows.next().await {
        let row = row?.row;
        for cell in row.cells() {
            let key = row.key().get(uid.len()..).unwrap_or_default().to_vec();
            // Qualifiers of annotations have three bytes.
            if cell.qualifier.len() % 2 == 0 {
                found.push((key, cell.qualifier.to_vec(), cell.value.to_vec()));
            }
        }
    }
    Ok(found)
}
