//! Measures small writes by many clients at once: HTTP requests of a few points into the daemon on HBase. HBase's Java
//! client writes the same rows with as many threads, in lists of the same size.
//!
//! The Java client is used in two ways. All threads share one `BufferedMutator` with its defaults:
//! a list is then not durable when the call returns. Or each thread waits for `Table::put` of its
//! list, as the daemon's clients wait for their points.
//!
//! The daemon acknowledges by HBase, or by its own log. With the log, rows are held for a tenth of a second, so that
//! requests of all clients share calls, and the clock runs until HBase has everything.
//!
//! A client that waits for each response before the next request shows the highest rate, and the latency of a saturated
//! machine. So the daemon is also offered `--paced` times the rate that the shared `BufferedMutator` had just before:
//! each client then has a timetable, and the latency of a request counts from the instant when it was due.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use tokio::{runtime::Builder, task::JoinSet, time::sleep_until};
use tsd_testkit::{Daemon, process, put_load::ConnectionLoad};

use crate::{
    Options,
    bench_cluster::BenchCluster,
    cells::{CellLoad, STEP_SECS},
    daemon,
    daemon_puts::{put_all, terminate, terminate_and_count},
    java_client::{JavaClient, JavaPrograms},
    point_load::PointLoad,
    put_client::PutClient,
    report::{self, percentile, thousands},
    table,
};

/// Most points and requests of a round; whole steps of all series.
const POINTS: u32 = 400_000;
const REQUESTS: u32 = 20_000;
/// Rounds until the Java code is compiled.
const WARM_UP: usize = 2;
/// Steps of an hour. The points that assign UIDs are in a later hour, which is not checked.
const HOUR: u32 = 3_600 / STEP_SECS;

/// Requests of one size, from some clients at once.
#[derive(Clone, Copy)]
struct Shape {
    request_points: u32,
    clients: u32,
}

/// One round of one client.
#[derive(Clone, Copy)]
struct Round {
    points: u64,
    seconds: f64,
    /// Milliseconds of a request.
    p50: f64,
    p99: f64,
    /// Actions in a Multi, if the client counts them.
    cells_a_call: Option<f64>,
    /// Points of a row that share a cell.
    points_a_cell: f64,
    client_cpu: f64,
    /// CPU seconds of the clients that send requests, if they are not the client itself.
    sender_cpu: f64,
    server_cpu: f64,
}

/// The ways of writing that are compared; ours are last.
const WAYS: [&str; 6] = [
    "one BufferedMutator, not durable",
    "Table.put(List), durable",
    "HTTP put, acknowledged by HBase",
    "HTTP put, acknowledged by the log",
    "… by HBase, paced",
    "… by the log, paced",
];

/// Settings of the last way.
const ACKNOWLEDGED_BY_LOG: [(&str, &str); 2] =
    [("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "0.1")];

/// All shapes; prints the table.
pub(crate) fn run(
    cluster: &BenchCluster,
    programs: &JavaPrograms,
    directory: &Path,
    options: &Options,
) {
    let mut java = programs.start(cluster, "SmallWritesLoad");
    daemon::create_tables(cluster);
    let tsdb = daemon::start(cluster, &directory.join("small"), &[]);
    let warm = PointLoad::of_this_hour(options.series, 2 * HOUR..2 * HOUR + 2);
    put_all(&tsdb, &warm);
    let warm = Shape { request_points: 50, clients: 16 };
    for _ in 0..WARM_UP {
        java_round(cluster, &mut java, options, warm, "mutator");
        java_round(cluster, &mut java, options, warm, "put");
        our_round(cluster, &tsdb, options, warm, None);
    }
    report::print_head(&[
        "points a request",
        "clients",
        "way",
        "points/s",
        "p50, ms",
        "p99, ms",
        "cells a call",
        "points a cell",
        "client cpu-s per M",
        "senders' cpu-s per M",
        "server cpu-s per M",
        "by HBase × this way's rate",
        "by the log × this way's rate",
    ]);
    for &request_points in &options.request_points {
        for &clients in &options.clients {
            let shape = Shape { request_points, clients };
            let mut rounds: [Vec<Round>; WAYS.len()] = Default::default();
            for number in 0..options.rounds {
                let mutator = java_round(cluster, &mut java, options, shape, "mutator");
                rounds[0].push(mutator);
                rounds[1].push(java_round(cluster, &mut java, options, shape, "put"));
                let paced = mutator.rate() * options.paced;
                let data = directory.join(format!("log-{request_points}-{clients}-{number}"));
                for (at, pace) in [(2, None), (4, Some(paced))] {
                    rounds[at].push(our_round(cluster, &tsdb, options, shape, pace));
                    let data = data.join(at.to_string());
                    rounds[at + 1].push(log_round(cluster, &tsdb, &data, options, (shape, pace)));
                }
            }
            print_shape(shape, &rounds);
        }
    }
    terminate(tsdb);
}

fn print_shape(shape: Shape, all: &[Vec<Round>; WAYS.len()]) {
    for (way, rounds) in WAYS.iter().zip(all) {
        let median = |of: fn(&Round) -> f64| report::median_of(rounds.iter().map(of).collect());
        let ratios_of = |ours: &[Round]| {
            let ratios = ours.iter().zip(rounds).map(|(ours, these)| ours.rate() / these.rate());
            ratios.map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ")
        };
        let calls: Option<Vec<f64>> = rounds.iter().map(|round| round.cells_a_call).collect();
        report::print_row(&[
            shape.request_points.to_string(),
            shape.clients.to_string(),
            (*way).to_owned(),
            thousands(median(Round::rate)),
            format!("{:.1}", median(|r| r.p50)),
            format!("{:.1}", median(|r| r.p99)),
            calls.map_or_else(String::new, |all| format!("{:.0}", report::median_of(all))),
            format!("{:.1}", median(|r| r.points_a_cell)),
            format!("{:.2}", median(|r| r.client_cpu / r.millions())),
            format!("{:.2}", median(|r| r.sender_cpu / r.millions())),
            format!("{:.2}", median(|r| r.server_cpu / r.millions())),
            ratios_of(&all[2]),
            ratios_of(&all[3]),
        ]);
    }
}

impl Round {
    fn rate(&self) -> f64 {
        self.points as f64 / self.seconds
    }

    fn millions(&self) -> f64 {
        self.points as f64 / 1e6
    }
}

impl Shape {
    /// Steps of all series, so that a round has a bounded number of points and requests.
    fn steps(self, options: &Options) -> u32 {
        let points = (REQUESTS * self.request_points).min(POINTS);
        (points / options.series).max(1)
    }

    /// Time between two requests of one client, so that all send `pace` points a second.
    fn interval(self, pace: Option<f64>) -> Option<Duration> {
        let points = f64::from(self.request_points) * f64::from(self.clients);
        pace.map(|pace| Duration::from_secs_f64(points / pace))
    }
}

fn java_round(
    cluster: &BenchCluster,
    program: &mut JavaClient,
    options: &Options,
    shape: Shape,
    way: &str,
) -> Round {
    let Shape { request_points, clients } = shape;
    let load = CellLoad { series: options.series, steps: shape.steps(options), points_per_put: 1 };
    cluster.block_on(table::truncate(&cluster.client, &table::name()));
    let server_cpu = cluster.region_server_cpu();
    let CellLoad { series, steps, .. } = load;
    let request = format!("{} {series} 0 {steps} {clients} {request_points} {way}", table::NAME);
    let result = program.run(&request);
    let server_cpu = cluster.region_server_cpu() - server_cpu;
    let total = cluster.block_on(table::read(&cluster.client));
    assert_eq!(total, load.total(), "everything was written");
    let milliseconds = |at: usize| result.values[at] as f64 / 1e3;
    Round {
        points: load.cells(),
        seconds: result.seconds,
        p50: milliseconds(0),
        p99: milliseconds(1),
        cells_a_call: None,
        points_a_cell: 1.0,
        client_cpu: result.cpu,
        sender_cpu: 0.0,
        server_cpu,
    }
}

/// A round of the daemon that HBase acknowledges. `pace` is the rate in points per second; without it, requests are not
/// paced.
fn our_round(
    cluster: &BenchCluster,
    tsdb: &Daemon,
    options: &Options,
    shape: Shape,
    pace: Option<f64>,
) -> Round {
    let load = PointLoad::of_this_hour(options.series, 0..shape.steps(options));
    daemon::truncate_points(cluster);
    let requests = load.render_requests_of(shape.request_points as usize, shape.clients);
    let before = daemon::batches(tsdb.address());
    let client_cpu = process::cpu_seconds(tsdb.pid());
    let (server_cpu, sender_cpu) = (cluster.region_server_cpu(), process::own_cpu_seconds());
    let start = Instant::now();
    let mut times = send(tsdb.address(), requests, shape.interval(pace));
    let seconds = start.elapsed().as_secs_f64();
    let sender_cpu = process::own_cpu_seconds() - sender_cpu;
    let client_cpu = process::cpu_seconds(tsdb.pid()) - client_cpu;
    let server_cpu = cluster.region_server_cpu() - server_cpu;
    let after = daemon::batches(tsdb.address());
    daemon::verify(tsdb.address(), &load);
    Round {
        points: load.points(),
        seconds,
        p50: percentile(&mut times, 0.5),
        p99: percentile(&mut times, 0.99),
        cells_a_call: Some((after.1 - before.1) / (after.0 - before.0)),
        points_a_cell: 1.0,
        client_cpu,
        sender_cpu,
        server_cpu,
    }
}

/// A round of a daemon that acknowledges by its log, from the first request until it has flushed everything and exited.
/// `reader` checks the points in HBase.
fn log_round(
    cluster: &BenchCluster,
    reader: &Daemon,
    data: &Path,
    options: &Options,
    (shape, pace): (Shape, Option<f64>),
) -> Round {
    let load = PointLoad::of_this_hour(options.series, 0..shape.steps(options));
    daemon::truncate_points(cluster);
    let tsdb = daemon::start(cluster, data, &ACKNOWLEDGED_BY_LOG);
    // Looks up the UIDs, in an hour that is not counted.
    let warm = PointLoad::of_this_hour(options.series, 2 * HOUR..2 * HOUR + 1);
    put_all(&tsdb, &warm);
    let requests = load.render_requests_of(shape.request_points as usize, shape.clients);
    let client_cpu = process::cpu_seconds(tsdb.pid());
    let (server_cpu, sender_cpu) = (cluster.region_server_cpu(), process::own_cpu_seconds());
    let before = daemon::batches(tsdb.address());
    let start = Instant::now();
    let mut times = send(tsdb.address(), requests, shape.interval(pace));
    let sender_cpu = process::own_cpu_seconds() - sender_cpu;
    // Read before the last flush, which belongs to the shutdown.
    let after = daemon::batches(tsdb.address());
    let used = terminate_and_count(tsdb);
    let seconds = start.elapsed().as_secs_f64();
    let server_cpu = cluster.region_server_cpu() - server_cpu;
    daemon::verify(reader.address(), &load);
    let cells = daemon::stored_cells(cluster) - u64::from(options.series);
    Round {
        points: load.points(),
        seconds,
        p50: percentile(&mut times, 0.5),
        p99: percentile(&mut times, 0.99),
        cells_a_call: Some((after.1 - before.1) / (after.0 - before.0)),
        points_a_cell: load.points() as f64 / cells as f64,
        client_cpu: used - client_cpu,
        sender_cpu,
        server_cpu,
    }
}

/// Sends the requests of all clients. Each request follows the response to the previous one and, with an interval, waits
/// until it is due. Returns the milliseconds of each from its due time. All clients share one thread, which is cheaper
/// than switching threads.
fn send(address: SocketAddr, loads: Vec<ConnectionLoad>, interval: Option<Duration>) -> Vec<f64> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut clients = JoinSet::new();
        // Staggers the clients, since clients that are due at once would queue.
        let share = interval.map(|interval| interval / u32::try_from(loads.len()).unwrap_or(1));
        let start = Instant::now();
        for (load, number) in loads.into_iter().zip(0..) {
            let first = share.map_or(start, |share| start + share * number);
            clients.spawn(send_requests(address, load, first, interval));
        }
        clients.join_all().await.concat()
    })
}

async fn send_requests(
    address: SocketAddr,
    load: ConnectionLoad,
    first: Instant,
    interval: Option<Duration>,
) -> Vec<f64> {
    let mut client = PutClient::connect(address).await;
    let mut times = Vec::with_capacity(load.request_ends.len());
    let mut from = 0;
    let mut due = first;
    for to in load.request_ends {
        sleep_until(due.into()).await;
        let milliseconds = client.put(&load.bytes[from..to]).await;
        from = to;
        match interval {
            Some(interval) => {
                times.push(due.elapsed().as_secs_f64() * 1e3);
                due += interval;
            }
            None => times.push(milliseconds),
        }
    }
    times
}
