//! Compares queries through our daemon and through OpenTSDB on the same tables, which have a day of points in compacted
//! rows.
//!
//! Our daemon writes the day with `ack = log` and holds it until it stops, so that each row is one column, as after row
//! compaction. Queries alternate, and both results are compared point by point.

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use serde_json::Value;
use tsd_testkit::{
    day_load::{DayLoad, FIRST_SECOND, ValueKind},
    process,
    timed_http::{self, BodyUse},
};

use crate::{
    Options,
    bench_cluster::BenchCluster,
    daemon,
    daemon_puts::terminate,
    report::{self, median_of},
};

/// Points of a series: a day.
const STEPS: usize = 8_640;
/// Uncounted queries of each kind, which fill the caches of HBase and compile the code of the JVM.
const WARM_UP: usize = 3;
/// Largest relative difference of two sums, whose order differs from OpenTSDB's.
const TOLERANCE: f64 = 1e-9;

/// A question of the day's points.
struct DayQuery {
    name: &'static str,
    /// Seconds from the begin of the query to the end of the day; `None` for the whole day.
    last_secs: Option<u64>,
    m: String,
}

/// Cost of one answer.
#[derive(Clone, Copy, Debug)]
struct QueryCost {
    millis: f64,
    daemon_cpu: f64,
    server_cpu: f64,
}

/// Writes the day and asks both; prints the table.
pub(crate) fn run(cluster: &mut BenchCluster, directory: &Path, options: &Options) {
    // Two metrics.
    let day = DayLoad { series: options.query_series / 2, steps: STEPS };
    daemon::create_tables(cluster);
    let held = [
        ("tsd.storage.ack", "log"),
        ("tsd.storage.hold_seconds", "3600"),
        ("tsd.storage.memtable.size", "2147483648"),
        ("tsd.storage.hbase.read_back_delay", "0"),
        // Until all rows are flushed.
        ("tsd.shutdown.timeout", "3600"),
    ];
    let writer = daemon::start(cluster, &directory.join("day"), &held);
    day.write(writer.address());
    terminate(writer);
    let rows = 2 * day.series * STEPS.div_ceil(360);
    let cells = daemon::stored_cells(cluster);
    assert_eq!(cells, rows as u64, "each row is a cell");
    println!("\n{} points of {} series in {rows} rows", 2 * day.points(), 2 * day.series);
    let tables = daemon::table_settings();
    let tables: Vec<_> = tables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let quiet = [("tsd.storage.enable_compaction", "false")];
    let theirs = cluster.restart_opentsdb(&[&tables[..], &quiet].concat());
    let cacheless = [("tsd.query.cache.size", "0"), ("tsd.storage.compaction.on_read", "false")];
    let tsdb = daemon::start(cluster, &directory.join("asked"), &cacheless);
    report::print_head(&[
        "a day in compacted rows",
        "ms: ours, OpenTSDB",
        "× as fast",
        "TSD CPU, ms: ours, OpenTSDB",
        "HBase CPU, ms: ours, OpenTSDB",
    ]);
    for query in queries(day) {
        let uri = query.uri(day);
        let cpu = |cluster: &BenchCluster| {
            (process::cpu_seconds(tsdb.pid()), cluster.opentsdb_cpu(), cluster.region_server_cpu())
        };
        let (mut our_costs, mut their_costs) = (Vec::new(), Vec::new());
        for round in 0..WARM_UP + options.query_rounds {
            let start = cpu(cluster);
            let (our_ms, ours) = ask(tsdb.address(), &uri);
            let between = cpu(cluster);
            let (their_ms, answer) = ask(theirs, &uri);
            let end = cpu(cluster);
            assert_equal(query.name, &ours, &answer);
            if round < WARM_UP {
                continue;
            }
            our_costs.push(QueryCost {
                millis: our_ms,
                daemon_cpu: between.0 - start.0,
                server_cpu: between.2 - start.2,
            });
            their_costs.push(QueryCost {
                millis: their_ms,
                daemon_cpu: end.1 - between.1,
                server_cpu: end.2 - between.2,
            });
        }
        print(query.name, &our_costs, &their_costs);
    }
    terminate(tsdb);
}

fn queries(day: DayLoad) -> Vec<DayQuery> {
    let (integers, walk) = (ValueKind::Integers.metric(), ValueKind::Walk.metric());
    let host = day.series / 2;
    let query = |name, last_secs, m| DayQuery { name, last_secs, m };
    vec![
        query("5m-avg by series", None, format!("avg:5m-avg:{walk}%7Bhost=*%7D")),
        query("sum of 5m-avg of all", None, format!("sum:5m-avg:{walk}")),
        query("max of 1h-max of all, integers", None, format!("max:1h-max:{integers}")),
        query("raw points of one host", None, format!("sum:{walk}%7Bhost=host{host:04}%7D")),
        query("last hour by series, 1m-avg", Some(3_600), format!("avg:1m-avg:{walk}%7Bhost=*%7D")),
    ]
}

impl DayQuery {
    fn uri(&self, day: DayLoad) -> String {
        let end = day.last_second();
        let start = self.last_secs.map_or(FIRST_SECOND, |secs| end + 1 - secs);
        format!("/api/query?start={start}&end={end}&m={}", self.m)
    }
}

/// The values of each series by time.
type Answer = BTreeMap<String, BTreeMap<String, f64>>;

/// Asks a question; returns the milliseconds, too.
fn ask(address: SocketAddr, uri: &str) -> (f64, Answer) {
    let response = timed_http::get(address, uri, BodyUse::Keep);
    assert_eq!(response.status, 200, "{uri}: {}", String::from_utf8_lossy(&response.body));
    let series: Value = serde_json::from_slice(&response.body).expect("JSON");
    let values = |series: &Value| {
        let points = series["dps"].as_object().expect("points");
        let value =
            |(time, value): (&String, &Value)| (time.clone(), value.as_f64().expect("a number"));
        (series["tags"].to_string(), points.iter().map(value).collect())
    };
    let answer = series.as_array().expect("a list").iter().map(values).collect();
    (response.total.as_secs_f64() * 1e3, answer)
}

fn assert_equal(name: &str, ours: &Answer, theirs: &Answer) {
    assert!(!ours.is_empty(), "{name}: no series");
    assert!(ours.keys().eq(theirs.keys()), "{name}: {} and {} series", ours.len(), theirs.len());
    for (tags, points) in ours {
        let other = &theirs[tags];
        assert!(points.keys().eq(other.keys()), "{name}: times of {tags}");
        for (time, value) in points {
            let difference = (value - other[time]).abs();
            assert!(difference <= TOLERANCE * value.abs(), "{name}: {tags} at {time}: {value}");
        }
    }
}

fn print(name: &str, ours: &[QueryCost], theirs: &[QueryCost]) {
    let of =
        |costs: &[QueryCost], of: fn(&QueryCost) -> f64| median_of(costs.iter().map(of).collect());
    let mean = |costs: &[QueryCost], of: fn(&QueryCost) -> f64| {
        costs.iter().map(of).sum::<f64>() / costs.len() as f64 * 1e3
    };
    let (our_ms, their_ms) = (of(ours, |cost| cost.millis), of(theirs, |cost| cost.millis));
    let pair =
        |what: fn(&QueryCost) -> f64| format!("{:.0}, {:.0}", mean(ours, what), mean(theirs, what));
    report::print_row(&[
        name.to_owned(),
        format!("{our_ms:.1}, {their_ms:.1}"),
        format!("**{:.2}**", their_ms / our_ms),
        pair(|cost| cost.daemon_cpu),
        pair(|cost| cost.server_cpu),
    ]);
}
