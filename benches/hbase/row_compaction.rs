//! Measures row compaction with all of its cost: an hour of points is written and acknowledged, then its rows
//! are compacted. The bench compares OpenTSDB with our daemon, which acknowledges by HBase, or by a log with
//! several hold times.
//!
//! A hold time is the number of points that a row has when it is flushed: its points are sent, then the log is
//! flushed. Nothing is read back, as for points of the current hour.

use std::{
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hbase_rs::{CellKind, Scan, Selection};
use serde_json::Value;
use tsd_testkit::{
    Daemon, http, metric, process,
    put_load::{PutProtocol, send},
};

use crate::{
    Options, bench_cluster::BenchCluster, cells::STEP_SECS, daemon, daemon_puts::terminate,
    point_load::PointLoad, report,
};

/// Points of a row.
const STEPS: u32 = 3_600 / STEP_SECS;
const CONNECTIONS: u32 = 8;
/// Hold times that are measured and the points that a row has at its flush, which starts at three quarters of
/// the hold time.
const HOLDS: [(&str, u32); 3] = [("60 s", 4), ("600 s", 45), ("3600 s", 270)];
/// Seconds between two rounds of compaction: the load is written before the first one.
const INTERVAL: &str = "60";
/// Longest wait for the compaction of all rows.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Compaction of all queued rows in one round, in both.
const COMPACTION: [(&str, &str); 4] = [
    ("tsd.storage.enable_compaction", "true"),
    ("tsd.storage.compaction.flush_interval", INTERVAL),
    ("tsd.storage.compaction.min_flush_threshold", "1"),
    ("tsd.storage.compaction.flush_speed", "3600"),
];

/// Resources used since a start.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Calls to HBase; a batch is one.
    calls: f64,
    daemon_cpu: f64,
    server_cpu: f64,
}

impl Usage {
    fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            daemon_cpu: self.daemon_cpu - before.daemon_cpu,
            server_cpu: self.server_cpu - before.server_cpu,
        }
    }
}

/// The two phases of one load.
struct CompactionCost {
    written: Usage,
    compacted: Usage,
    /// Cells and delete markers that HBase has kept.
    cells: u64,
    markers: u64,
    /// Columns after the compaction.
    columns: u64,
}

/// Writes and compacts an hour through each; prints the table.
pub(crate) fn run(cluster: &mut BenchCluster, directory: &Path, options: &Options) {
    let lines = PointLoad { series: options.compact_series, steps: 0..STEPS };
    let theirs = opentsdb(cluster, &lines);
    report::print_head(&[
        "an hour of points, written and compacted, per M points",
        "HBase cpu-s: written, compacted",
        "both × OpenTSDB's",
        "TSD cpu-s: written, compacted",
        "calls: written, compacted",
        "cells put",
        "delete markers",
        "columns a row",
    ]);
    print("OpenTSDB 2.4.1", &theirs, &theirs, &lines);
    let stored = ours(cluster, &directory.join("compact-storage"), &lines, None);
    print("ack = storage", &stored, &theirs, &lines);
    for (hold, points) in HOLDS {
        let data = directory.join(format!("compact-log-{points}"));
        let held = ours(cluster, &data, &lines, Some(points));
        let name = format!("ack = log, held {hold}: {points} points a flush");
        print(&name, &held, &theirs, &lines);
    }
}

fn print(name: &str, cost: &CompactionCost, theirs: &CompactionCost, lines: &PointLoad) {
    let millions = lines.points() as f64 / 1e6;
    let server = |cost: &CompactionCost| cost.written.server_cpu + cost.compacted.server_cpu;
    let pair = |of: fn(&Usage) -> f64| {
        format!("{:.2}, {:.2}", of(&cost.written) / millions, of(&cost.compacted) / millions)
    };
    let calls = |usage: &Usage| report::thousands(usage.calls / millions);
    report::print_row(&[
        name.to_owned(),
        pair(|usage| usage.server_cpu),
        format!("**{:.2}**", server(cost) / server(theirs)),
        pair(|usage| usage.daemon_cpu),
        format!("{}, {}", calls(&cost.written), calls(&cost.compacted)),
        report::thousands(cost.cells as f64 / millions),
        report::thousands(cost.markers as f64 / millions),
        format!("{:.2}", cost.columns as f64 / f64::from(lines.series)),
    ]);
}

fn opentsdb(cluster: &mut BenchCluster, lines: &PointLoad) -> CompactionCost {
    daemon::create_tables(cluster);
    let tables = daemon::table_settings();
    let tables: Vec<_> = tables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let address = cluster.restart_opentsdb(&[&tables[..], &COMPACTION].concat());
    let used = |cluster: &BenchCluster| Usage {
        calls: opentsdb_calls(address),
        daemon_cpu: cluster.opentsdb_cpu(),
        server_cpu: cluster.region_server_cpu(),
    };
    let before = used(cluster);
    put(address, lines);
    // OpenTSDB answers before it writes; it flushes its buffers within about a second.
    thread::sleep(Duration::from_secs(3));
    let written = used(cluster);
    let queue = || opentsdb_stat(address, "tsd.compaction.queue.size", |_| true);
    let rows = || opentsdb_stat(address, "tsd.compaction.writes", |_| true);
    wait_until_compacted(|| queue() == 0.0 && rows() >= f64::from(lines.series));
    let compacted = used(cluster);
    cost(cluster, (before, written, compacted), || daemon::verify(address, lines))
}

/// Measures our daemon; with a log, rows are flushed after every `held_points` new points.
fn ours(
    cluster: &BenchCluster,
    data: &Path,
    lines: &PointLoad,
    held_points: Option<u32>,
) -> CompactionCost {
    daemon::create_tables(cluster);
    let mut settings = COMPACTION.to_vec();
    settings.push(("tsd.storage.hbase.read_back_delay", "0"));
    settings.push(("tsd.storage.hold_seconds", "0.1"));
    settings.push(("tsd.storage.ack", if held_points.is_some() { "log" } else { "storage" }));
    let tsdb = daemon::start(cluster, data, &settings);
    let used = |cluster: &BenchCluster| Usage {
        calls: figure(&tsdb, "tsd_hbase_calls_total"),
        daemon_cpu: process::cpu_seconds(tsdb.pid()),
        server_cpu: cluster.region_server_cpu(),
    };
    let before = used(cluster);
    let chunk = held_points.unwrap_or(STEPS);
    for from in (0..STEPS).step_by(chunk as usize) {
        let steps = from..(from + chunk).min(STEPS);
        put(tsdb.address(), &PointLoad { series: lines.series, steps });
        while figure(&tsdb, "tsd_wal_memtable_rows") > 0.0 {
            thread::sleep(Duration::from_millis(20));
        }
    }
    let written = used(cluster);
    let rows = || figure(&tsdb, "tsd_compaction_rows_total");
    wait_until_compacted(|| rows() >= f64::from(lines.series));
    let compacted = used(cluster);
    let cost = cost(cluster, (before, written, compacted), || {
        daemon::verify(tsdb.address(), lines);
    });
    terminate(tsdb);
    cost
}

/// Counts the stored cells, then checks the points; the check makes OpenTSDB compact.
fn cost(
    cluster: &BenchCluster,
    (before, written, compacted): (Usage, Usage, Usage),
    check: impl FnOnce(),
) -> CompactionCost {
    let (cells, markers) = kept_cells(cluster);
    let columns = daemon::stored_cells(cluster);
    check();
    CompactionCost {
        written: written.since(before),
        compacted: compacted.since(written),
        cells,
        markers,
        columns,
    }
}

fn put(address: SocketAddr, lines: &PointLoad) {
    send(address, PutProtocol::Http, lines.render(PutProtocol::Http, CONNECTIONS));
}

fn wait_until_compacted(mut is_compacted: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_compacted() {
        assert!(Instant::now() < deadline, "the rows are not compacted in {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(500));
    }
    // Deletes follow the puts.
    thread::sleep(Duration::from_secs(3));
}

/// Numbers of put cells, including deleted cells, and of delete markers.
fn kept_cells(cluster: &BenchCluster) -> (u64, u64) {
    let selection = Selection::all().without_block_cache().max_versions(1_000).expect("versions");
    let scan = Scan::all().select(selection).raw();
    cluster.block_on(async {
        let mut rows = cluster.client.table(daemon::points_table()).scan(scan);
        let (mut cells, mut markers) = (0, 0);
        while let Some(row) = rows.next().await {
            for cell in row.expect("a row").row.cells() {
                let is_put = cell.kind == CellKind::Put;
                cells += u64::from(is_put);
                markers += u64::from(!is_put);
            }
        }
        (cells, markers)
    })
}

fn figure(tsdb: &Daemon, name: &str) -> f64 {
    metric(tsdb.address(), name).unwrap_or_default()
}

/// Calls of OpenTSDB's client: single calls and batches.
fn opentsdb_calls(address: SocketAddr) -> f64 {
    let rpcs = opentsdb_stat(address, "tsd.hbase.rpcs", |kind| kind != "batched");
    let batched = opentsdb_stat(address, "tsd.hbase.rpcs.batched", |_| true);
    rpcs - batched + opentsdb_stat(address, "tsd.hbase.flushes", |_| true)
}

/// Sum of a statistic over the wanted types.
fn opentsdb_stat(address: SocketAddr, name: &str, is_wanted: impl Fn(&str) -> bool) -> f64 {
    let response = http(address, "GET", "/api/stats", None);
    let stats: Value = serde_json::from_str(&response.body).expect("JSON");
    let stats = stats.as_array().expect("a list").iter().filter(|stat| stat["metric"] == name);
    let stats = stats.filter(|stat| is_wanted(stat["tags"]["type"].as_str().unwrap_or_default()));
    let value = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    stats.filter_map(|stat| value(&stat["value"])).sum()
}
