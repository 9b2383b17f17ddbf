//! Compares queries of one host of many over a day: by the series index, by a scan, and by OpenTSDB on the same
//! rows.
//!
//! The test prints the times; all answers must be equal.

use std::{
    fmt::Write,
    net::SocketAddr,
    time::{Duration, Instant},
};

use cluster::Cluster;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tsd_testkit::{exchange, metric, wait_for};

use crate::{
    regions::ScenarioResult,
    tsd::{self, put, query},
};

const DAY: u64 = 1_600_041_600;
/// Hours that are queried.
const HOURS: u64 = 24;
const RACKS: u64 = 40;
/// Lines of one connection.
const LINES: usize = 4_000;
/// Queries of one kind.
const ROUNDS: u64 = 5;

/// The number in an environment variable.
fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn series_count() -> u64 {
    variable("HBASE_SERIES", 4_000)
}

/// Hours of the day in which each series has a point.
fn hours_with_points() -> impl Iterator<Item = u64> {
    (0..HOURS).step_by((HOURS / variable("HBASE_SERIES_HOURS", HOURS).clamp(1, HOURS)) as usize)
}

/// Writes the points of some hosts, at most one an hour, by telnet.
fn load(address: SocketAddr, hosts: std::ops::Range<u64>) {
    for hour in hours_with_points() {
        for first in hosts.clone().step_by(LINES) {
            let mut lines = String::new();
            for host in first..hosts.end.min(first + LINES as u64) {
                let (at, rack) = (DAY + hour * 3_600 + host % 3_600, host % RACKS);
                let tags = format!("host=h{host} rack=r{rack} task=t{host}");
                // Writing to a string does not fail.
                let _ = writeln!(lines, "put series.index {at} {host} {tags}");
            }
            block_in_place(|| {
                let answer = exchange(address, lines.as_bytes());
                assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
            });
        }
    }
}

fn gauge(address: SocketAddr, name: &str) -> f64 {
    block_in_place(|| metric(address, name)).unwrap_or(f64::NAN)
}

fn await_complete(address: SocketAddr) -> ScenarioResult<()> {
    let complete = || (gauge(address, "tsd_hbase_series_index_complete") > 0.5).then_some(());
    block_in_place(|| wait_for(complete)).ok_or_else(|| "no complete index".into())
}

/// A day of some series.
fn uri(tags: &str) -> String {
    let tags = tags.replace('{', "%7B").replace('}', "%7D").replace('|', "%7C");
    format!("/api/query?start={DAY}&end={}&m=none:series.index{tags}", DAY + HOURS * 3_600 - 1)
}

/// Median time of queries of one kind, and their answers.
fn timed(
    address: SocketAddr,
    tags: impl Fn(u64) -> String,
) -> ScenarioResult<(Duration, Vec<Vec<Value>>)> {
    let (mut times, mut answers) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let start = Instant::now();
        let mut answer = query(address, &uri(&tags(round)))?;
        times.push(start.elapsed());
        // The order of the tags differs, and that of series by their text.
        answer.sort_by_key(|one| one["tags"]["host"].to_string());
        answers.push(answer);
    }
    times.sort();
    Ok((times[times.len() / 2], answers))
}

/// Tags of the query of a round.
type Tags = Box<dyn Fn(u64) -> String>;

/// Compares answers and times of both daemons and of OpenTSDB.
fn compare(cluster: &Cluster, indexed: SocketAddr, scanning: SocketAddr) -> ScenarioResult<()> {
    let count = series_count();
    let opentsdb: Option<SocketAddr> = cluster.opentsdb_address().and_then(|of| of.parse().ok());
    let host = move |round: u64| (round * 7_919 + 13) % count;
    let kinds: [(&str, Tags); 5] = [
        ("one host", Box::new(move |round| format!("{{host=h{}}}", host(round)))),
        (
            "three hosts",
            Box::new(move |round| {
                format!("{{host=h{}|h{}|h{}}}", host(round), host(round + 10), host(round + 20))
            }),
        ),
        ("one task", Box::new(move |round| format!("{{task=t{}}}", host(round)))),
        (
            "one host, by its second tag key too",
            Box::new(move |round| {
                format!("{{host=h{},rack=r{}}}", host(round), host(round) % RACKS)
            }),
        ),
        ("one rack of 40", Box::new(|round| format!("{{rack=r{}}}", round * 7 % RACKS))),
    ];
    for (kind, tags) in kinds {
        let (by_index, answers) = timed(indexed, &tags)?;
        let (by_scan, expected) = timed(scanning, &tags)?;
        if answers != expected || answers.iter().any(Vec::is_empty) {
            return Err(format!("{kind}: answers differ or are empty").into());
        }
        print!("series-index: {kind}: by index {by_index:.1?}, by scan {by_scan:.1?}");
        if let Some(opentsdb) = opentsdb {
            let (theirs, expected) = timed(opentsdb, &tags)?;
            print!(", OpenTSDB {theirs:.1?}");
            let differs = answers.iter().zip(&expected).find(|(ours, theirs)| ours != theirs);
            if let Some((ours, theirs)) = differs {
                println!();
                let text = format!("{kind}: OpenTSDB answers otherwise: {theirs:?}, ours {ours:?}");
                return Err(text.into());
            }
        }
        println!();
    }
    Ok(())
}

/// Loads two halves of the series, before the index and with it, and compares.
pub(crate) fn run(cluster: &Cluster) -> ScenarioResult<()> {
    let count = series_count();
    tsd::create_tables(cluster, &[("tsd.storage.hbase.series_index", "register")])?;
    let directory = tempfile::tempdir()?;
    let start = |name: &str, mode: &str| {
        let settings = [
            ("tsd.storage.hbase.series_index", mode),
            ("tsd.storage.hbase.series_index.scan_rate", "0"),
        ];
        tsd::start(cluster, &directory.path().join(name), &settings)
    };
    // Half of the series are from before the index.
    let scanning = start("off", "off");
    for tags in [json!({"host": "h0"}), json!({"host": "h0", "rack": "r0"})] {
        // The UIDs of the tag keys are in this order, if no other scenario came before.
        let point = json!([{"metric": "series.index", "timestamp": DAY - 86_400, "value": 1,
                            "tags": tags}]);
        put(scanning.address(), "/api/put", &point)?;
    }
    let began = Instant::now();
    load(scanning.address(), 0..count / 2);
    println!(
        "series-index: {} series loaded in {:.1?}, not registered",
        count / 2,
        began.elapsed()
    );
    let writer = start("register", "register");
    let began = Instant::now();
    load(writer.address(), count / 2..count);
    println!("series-index: {} series loaded in {:.1?}, registered", count / 2, began.elapsed());
    println!(
        "series-index: {} entries of the log, {} series in them",
        gauge(writer.address(), "tsd_hbase_series_index_log_entries_total"),
        gauge(writer.address(), "tsd_hbase_series_index_registered_series_total"),
    );
    let began = Instant::now();
    let indexed = start("complete", "complete");
    await_complete(indexed.address())?;
    println!(
        "series-index: complete {:.1?} after the start, {} rows scanned, {} series in {} bytes",
        began.elapsed(),
        gauge(indexed.address(), "tsd_hbase_series_index_scanned_rows_total"),
        gauge(indexed.address(), "tsd_hbase_series_index_series"),
        gauge(indexed.address(), "tsd_hbase_series_index_memory_bytes"),
    );
    let began = Instant::now();
    let next = start("next", "complete");
    await_complete(next.address())?;
    println!("series-index: a second daemon is complete {:.1?} after its start", began.elapsed());
    compare(cluster, indexed.address(), scanning.address())?;
    // The next query finds points that another daemon has acknowledged.
    for n in 0..50 {
        let point = json!([{"metric": "series.index", "timestamp": DAY + 5, "value": n,
                            "tags": {"host": format!("new{n}")}}]);
        put(writer.address(), "/api/put", &point)?;
        let found = query(indexed.address(), &uri(&format!("{{host=new{n}}}")))?;
        if found.len() != 1 {
            return Err(format!("new{n} was acknowledged and is not found").into());
        }
    }
    if gauge(indexed.address(), "tsd_hbase_series_index_closed") > 0.5 {
        return Err("the index was closed".into());
    }
    Ok(())
}
