//! Measures puts into the daemon on HBase: their latency at light load, and the rate of points
//! acknowledged by HBase or by the log, which holds the rows.

use std::{
    io::Write,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tsd_testkit::{
    Daemon, close_and_drain, connect, process,
    put_load::{ConnectionLoad, PutProtocol, PutResponses, send},
};

use crate::{
    Options,
    bench_cluster::BenchCluster,
    cells::STEP_SECS,
    daemon,
    point_load::PointLoad,
    report::{self, Measurement, median, percentile, ratio, thousands},
    writes::Baseline,
};

/// Requests of the light load, and the interval between two of them.
const REQUESTS: u32 = 500;
const INTERVAL: Duration = Duration::from_millis(20);

/// Telnet connections.
const CONNECTIONS: u32 = 4;

/// Series of the loads with held rows.
const HELD_SERIES: u32 = 100_000;
/// Points of a row that are flushed together, steps of the load, and offered rate as a multiple of the
/// Java client's.
const HELD_LOADS: [(u32, u32, f64); 2] = [(6, 150, 4.4), (60, 420, 10.8)];
/// Fraction of `tsd.storage.hold_seconds` after which the flush of rows starts.
pub(crate) const FLUSH_STARTS_AFTER: f64 = 0.75;

/// Latency of puts at light load; prints the table.
pub(crate) fn light(cluster: &BenchCluster, directory: &Path) {
    report::print_head(&["put of 50 points, 50 a second", "p50, ms", "p99, ms", "worst, ms"]);
    for ack in ["storage", "log"] {
        daemon::create_tables(cluster);
        let data = directory.join(format!("light-{ack}"));
        let tsdb = daemon::start(cluster, &data, &[("tsd.storage.ack", ack)]);
        // In a separate hour, because the check queries whole hours.
        let warm = PointLoad { series: 1_000, steps: 720..725 };
        let lines = PointLoad { series: 1_000, steps: 0..REQUESTS * 50 / 1_000 };
        put_slowly(tsdb.address(), &warm, Duration::ZERO);
        let mut times = put_slowly(tsdb.address(), &lines, INTERVAL);
        daemon::verify(tsdb.address(), &lines);
        report::print_row(&[
            format!("acknowledged by {}", if ack == "log" { "the log" } else { "HBase" }),
            format!("{:.1}", percentile(&mut times, 0.5)),
            format!("{:.1}", percentile(&mut times, 0.99)),
            format!("{:.1}", percentile(&mut times, 1.0)),
        ]);
        terminate(tsdb);
    }
}

/// Puts a request per interval; returns the milliseconds of each.
fn put_slowly(address: SocketAddr, lines: &PointLoad, interval: Duration) -> Vec<f64> {
    let load = lines.render(PutProtocol::Http, 1).pop().expect("a connection");
    let mut stream = connect(address);
    let mut responses = PutResponses::default();
    let start = Instant::now();
    let mut times = Vec::new();
    let mut from = 0;
    for (at, to) in load.request_ends.into_iter().enumerate() {
        thread::sleep((start + interval * at as u32).saturating_duration_since(Instant::now()));
        let sent = Instant::now();
        stream.write_all(&load.bytes[from..to]).expect("send");
        from = to;
        responses.read(&mut stream);
        times.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    times
}

/// Sends points as fast as the daemon accepts them, each a cell acknowledged by HBase, in
/// alternating rounds with the Java client. Prints the table.
pub(crate) fn stored(
    cluster: &BenchCluster,
    directory: &Path,
    baseline: &mut Baseline,
    options: &Options,
) {
    let load = options.load(1);
    let lines = PointLoad { series: load.series, steps: 0..load.steps };
    report::print_head(&[
        "points acknowledged by HBase",
        "points/s",
        "× BufferedMutator's",
        "cells a call",
        "TSD cpu-s per M",
        "server cpu-s per M",
    ]);
    for (protocol, connections) in
        [(PutProtocol::Telnet, CONNECTIONS), (PutProtocol::Http, 32), (PutProtocol::Http, 128)]
    {
        daemon::create_tables(cluster);
        let data = directory.join(format!("stored-{protocol:?}-{connections}"));
        let tsdb = daemon::start(cluster, &data, &[]);
        // Assigns UIDs and fills caches.
        let warm = PointLoad { series: load.series, steps: 0..4 };
        put_all(&tsdb, &warm);
        let (mut java, mut ours) = (Vec::new(), Vec::new());
        let before = daemon::batches(tsdb.address());
        for _ in 0..options.rounds.min(2) {
            java.push(baseline.round(cluster, load));
            daemon::truncate_points(cluster);
            let loads = lines.render(protocol, connections);
            let (cpu, server) = (process::cpu_seconds(tsdb.pid()), cluster.region_server_cpu());
            let start = Instant::now();
            send(tsdb.address(), protocol, loads);
            let seconds = start.elapsed().as_secs_f64();
            let cpu = process::cpu_seconds(tsdb.pid()) - cpu;
            let server = cluster.region_server_cpu() - server;
            daemon::verify(tsdb.address(), &lines);
            ours.push(Measurement::new(lines.points(), seconds, cpu, server));
        }
        let after = daemon::batches(tsdb.address());
        report::print_row(&[
            format!("{}, {connections} connections", protocol.name()),
            thousands(median(&ours, |r| r.rate)),
            format!("**{:.2}**", ratio(&ours, &java, |r| r.rate)),
            format!("{:.0}", (after.1 - before.1) / (after.0 - before.0)),
            format!("{:.2}", median(&ours, |r| r.client_cpu)),
            format!("{:.2}", median(&ours, |r| r.server_cpu)),
        ]);
        terminate(tsdb);
    }
}

/// Sends points acknowledged by the log, whose rows are held until they have a given number of
/// points. Prints the table.
///
/// Time is compressed: timestamps of a series are ten seconds apart, the sender sends them many
/// times faster, and the hold time shrinks by the same factor. The flush of rows starts at three
/// quarters of `tsd.storage.hold_seconds`, so six points of a row are flushed together if that is
/// 80 s. The clock stops when the daemon, after SIGTERM, has flushed everything to HBase and
/// exited. Then another daemon, without a log, is queried, and the cells in HBase are counted.
pub(crate) fn held(
    cluster: &BenchCluster,
    directory: &Path,
    baseline: &mut Baseline,
    options: &Options,
) {
    report::print_head(&[
        "acknowledged by the log, 100 000 series, a point every 10 s",
        "time runs",
        "offered, points/s",
        "acknowledged, points/s",
        "points a cell in HBase",
        "points/s until HBase has all",
        "× BufferedMutator's, one point a cell",
        "TSD cpu-s per M",
        "server cpu-s per M",
    ]);
    for (row_points, steps, multiple) in HELD_LOADS {
        for round in 0..options.held_rounds {
            let java = baseline.round(cluster, options.load(1));
            let offered = options.offered.unwrap_or(java.rate * multiple);
            let data = directory.join(format!("held-{row_points}-{round}"));
            let held = held_round(cluster, &data, row_points, steps, offered);
            // Hold time without compression, in seconds.
            let real = f64::from(row_points * STEP_SECS) / FLUSH_STARTS_AFTER;
            report::print_row(&[
                format!("held for {real:.0} s, {row_points} points"),
                format!("{:.0} × as fast", real / held.hold),
                thousands(held.offered),
                thousands(held.acknowledged),
                format!("{:.1}", held.density),
                thousands(held.measurement.rate),
                format!("**{:.2}**", held.measurement.rate / java.rate),
                format!("{:.3}", held.measurement.client_cpu),
                format!("{:.3}", held.measurement.server_cpu),
            ]);
        }
    }
}

/// Result of a load with held rows.
struct HeldResult {
    measurement: Measurement,
    /// Hold time in seconds.
    hold: f64,
    /// Offered points per second.
    offered: f64,
    /// Acknowledged points per second.
    acknowledged: f64,
    /// Points per cell in HBase.
    density: f64,
}

fn held_round(
    cluster: &BenchCluster,
    data: &Path,
    row_points: u32,
    steps: u32,
    offered: f64,
) -> HeldResult {
    daemon::create_tables(cluster);
    let hold = f64::from(row_points) * f64::from(HELD_SERIES) / FLUSH_STARTS_AFTER / offered;
    let settings = [
        ("tsd.storage.ack", "log"),
        ("tsd.storage.hold_seconds", &format!("{hold:.3}")),
        ("tsd.storage.memtable.size", "2147483648"),
        ("tsd.storage.log.segment_size", "1073741824"),
        // A stop writes all rows to HBase, as long as it takes.
        ("tsd.shutdown.timeout", "600"),
    ];
    let tsdb = daemon::start(cluster, data, &settings);
    // Assigns UIDs, in an hour that is not counted.
    let warm = PointLoad { series: HELD_SERIES, steps: 720..721 };
    put_all(&tsdb, &warm);
    let lines = PointLoad { series: HELD_SERIES, steps: 0..steps };
    let loads = lines.render(PutProtocol::Telnet, CONNECTIONS);
    let interval = Duration::from_secs_f64(f64::from(HELD_SERIES) / offered);
    let (cpu, server) = (process::cpu_seconds(tsdb.pid()), cluster.region_server_cpu());
    let start = Instant::now();
    send_steps(tsdb.address(), loads, start, interval);
    // Everything is acknowledged; SIGTERM flushes the held rows.
    let acknowledged = start.elapsed().as_secs_f64();
    let used = terminate_and_count(tsdb);
    let seconds = start.elapsed().as_secs_f64();
    let server = cluster.region_server_cpu() - server;
    let cells = daemon::stored_cells(cluster) - u64::from(HELD_SERIES);
    let reader = daemon::start(cluster, &data.join("reader"), &[]);
    daemon::verify(reader.address(), &lines);
    terminate(reader);
    let points = lines.points();
    HeldResult {
        measurement: Measurement::new(points, seconds, used - cpu, server),
        hold,
        offered,
        acknowledged: points as f64 / acknowledged,
        density: points as f64 / cells as f64,
    }
}

/// Sends each step when it is due, or as soon as the daemon accepts it.
fn send_steps(address: SocketAddr, loads: Vec<ConnectionLoad>, start: Instant, interval: Duration) {
    let senders: Vec<_> = loads
        .into_iter()
        .map(|load| {
            let mut stream = connect(address);
            thread::spawn(move || {
                let mut from = 0;
                for (at, to) in load.request_ends.into_iter().enumerate() {
                    let due = start + interval * at as u32;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    stream.write_all(&load.bytes[from..to]).expect("send");
                    from = to;
                }
                close_and_drain(stream);
            })
        })
        .collect();
    for sender in senders {
        sender.join().expect("a sender");
    }
}

pub(crate) fn put_all(tsdb: &Daemon, lines: &PointLoad) {
    let loads = lines.render(PutProtocol::Telnet, CONNECTIONS);
    send(tsdb.address(), PutProtocol::Telnet, loads);
    daemon::verify(tsdb.address(), lines);
}

/// Terminates a daemon, which flushes its rows; returns its used CPU seconds.
pub(crate) fn terminate_and_count(tsdb: Daemon) -> f64 {
    tsdb.signal("TERM");
    let mut used = 0.0;
    let pid = tsdb.pid();
    while let Some(now) = process::try_cpu_seconds(pid) {
        used = now;
        thread::sleep(Duration::from_millis(5));
    }
    assert!(tsdb.wait().success(), "a clean shutdown");
    used
}

pub(crate) fn terminate(tsdb: Daemon) {
    assert!(tsdb.terminate().success(), "a clean shutdown");
}
