//! Measures puts into several daemons that acknowledge by the log in HBase (`tsd.storage.ack = cluster`), and
//! compares them with one daemon with a local log.
//!
//! Successive HTTP requests go to different nodes, as behind a load balancer, so that the points of a series reach all nodes. Time is
//! compressed as in the section `log`: points of a series are ten seconds apart by their timestamps, and the hold time shrinks by the same
//! factor. Requests are sent when they are due, while small queries run. A run ends when HBase has all points; then the bench reads them
//! back and counts the cells. Ratios to one node compare results of the same run.

use std::{
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use tokio::{runtime::Builder, task::JoinSet};
use tsd_testkit::{Daemon, http, metric, process, put_load::ConnectionLoad, wait_for};

use crate::{
    Options,
    bench_cluster::BenchCluster,
    cells, daemon,
    daemon_puts::{FLUSH_STARTS_AFTER, put_all, terminate, terminate_and_count},
    point_load::PointLoad,
    put_client::PutClient,
    report::{self, percentile, thousands},
    table,
};

/// Clients, each of which waits for a response before its next request.
const CLIENTS: u32 = 40;
/// Points of a row that are flushed together.
const ROW_POINTS: u32 = 60;
/// Steps of the load: an hour and a sixth, as in the section `log`.
const STEPS: u32 = 420;
/// Offered points per second, all nodes together.
const OFFERED: f64 = 50_000.0;
/// The step that assigns UIDs, in an hour that is not counted.
const WARM_STEP: u32 = 720;
/// Time between two queries.
const QUERY_INTERVAL: Duration = Duration::from_millis(200);
/// Metrics of cells that a node has sent to their owners, and of their frames.
const FORWARDED_CELLS: &str = "tsd_cluster_forward_cells_total";
const FORWARDED_FRAMES: &str = "tsd_cluster_forward_frames_total";
/// Slots of a cluster.
const SLOTS: f64 = 16_384.0;

/// Which daemons a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    /// This many daemons, each with a local log.
    LocalLogs(usize),
    /// This many daemons of one cluster.
    Cluster(usize),
}

/// Measurements of a run.
struct NodesResult {
    points_a_cell: f64,
    /// Share of the points that reached another node than their owner.
    forwarded: f64,
    frame_points: f64,
    acknowledged: f64,
    tsd_cpu: f64,
    server_cpu: f64,
    /// Milliseconds.
    puts: Vec<f64>,
    queries: Vec<f64>,
}

/// All runs; prints the table.
pub(crate) fn run(cluster: &BenchCluster, directory: &Path, options: &Options) {
    let puts = format!(
        "HTTP puts of {} points{}, each to another node",
        options.cluster_request_points,
        if options.cluster_mixed_hosts { "" } else { " of one host" },
    );
    report::print_head(&[
        &puts,
        "acknowledged, points/s",
        "forwarded",
        "points a frame",
        "points a cell in HBase",
        "TSD cpu-s per M",
        "× one node's",
        "server cpu-s per M",
        "put p50, ms",
        "p99, ms",
        "query p50, ms",
        "p99, ms",
    ]);
    let mut base = None;
    let mut all = Vec::new();
    for &number in &options.nodes {
        let number = number as usize;
        all.push(Nodes::LocalLogs(number));
        all.push(Nodes::Cluster(number));
    }
    // Not counted: HBase has just started and compiles its code.
    let data = directory.join("cluster-warm-up");
    run_nodes(cluster, &data, all.len(), Nodes::LocalLogs(1), options);
    for (at, nodes) in all.into_iter().enumerate() {
        let data = directory.join(format!("cluster-{at}"));
        let mut result = run_nodes(cluster, &data, at, nodes, options);
        let one = matches!(nodes, Nodes::Cluster(1)).then_some(result.tsd_cpu);
        base = base.or(one);
        report::print_row(&[
            nodes.to_string(),
            thousands(result.acknowledged),
            format!("{:.0} %", result.forwarded * 100.0),
            format!("{:.0}", result.frame_points),
            format!("{:.1}", result.points_a_cell),
            format!("{:.2}", result.tsd_cpu),
            base.map_or_else(String::new, |one| format!("**{:.2}**", result.tsd_cpu / one)),
            format!("{:.2}", result.server_cpu),
            format!("{:.1}", percentile(&mut result.puts, 0.5)),
            format!("{:.1}", percentile(&mut result.puts, 0.99)),
            format!("{:.1}", percentile(&mut result.queries, 0.5)),
            format!("{:.1}", percentile(&mut result.queries, 0.99)),
        ]);
    }
}

impl std::fmt::Display for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LocalLogs(1) => write!(f, "`ack = log`, 1 daemon"),
            Self::LocalLogs(number) => write!(f, "`ack = log`, {number} daemons"),
            Self::Cluster(1) => write!(f, "`ack = cluster`, 1 node"),
            Self::Cluster(number) => write!(f, "`ack = cluster`, {number} nodes"),
        }
    }
}

fn run_nodes(
    cluster: &BenchCluster,
    data: &Path,
    at: usize,
    nodes: Nodes,
    options: &Options,
) -> NodesResult {
    daemon::create_tables(cluster);
    let offered = options.offered.unwrap_or(OFFERED);
    let series = options.cluster_series;
    let hold = f64::from(ROW_POINTS) * f64::from(series) / FLUSH_STARTS_AFTER / offered;
    let log_table = format!("bench-log-{at}");
    let daemons = start(cluster, data, nodes, hold, &log_table);
    let addresses: Vec<SocketAddr> = daemons.iter().map(Daemon::address).collect();
    for daemon in &daemons {
        // Every node has looked up all names before the clock starts.
        put_all(daemon, &PointLoad::of_this_hour(series, WARM_STEP..WARM_STEP + 1));
    }
    let is_cluster = !matches!(nodes, Nodes::LocalLogs(_));
    let warm_cells = if is_cluster {
        flush(addresses[0]);
        daemon::stored_cells(cluster)
    } else {
        series.into()
    };
    let load = PointLoad::of_this_hour(series, 0..STEPS);
    let request_points = options.cluster_request_points;
    let requests = if options.cluster_mixed_hosts {
        load.render_requests_of(request_points as usize, CLIENTS)
    } else {
        load.render_host_requests(request_points as usize, CLIENTS)
    };
    let pids: Vec<u32> = daemons.iter().map(Daemon::pid).collect();
    let cpu = || pids.iter().map(|pid| process::cpu_seconds(*pid)).sum::<f64>();
    let (cpu_before, server_before) = (cpu(), cluster.region_server_cpu());
    let total = |name| addresses.iter().filter_map(|node| metric(*node, name)).sum::<f64>();
    let sent = || (total(FORWARDED_CELLS), total(FORWARDED_FRAMES));
    let sent_before = sent();
    let start = Instant::now();
    let interval = f64::from(request_points * CLIENTS) / offered;
    let interval = Duration::from_secs_f64(interval);
    let (puts, queries) = send_beside_queries(&addresses, requests, interval, &load);
    let acknowledged = load.points() as f64 / start.elapsed().as_secs_f64();
    let sent_after = sent();
    let (forwarded, frames) = (sent_after.0 - sent_before.0, sent_after.1 - sent_before.1);
    let used = if is_cluster {
        flush(addresses[0]);
        let used = cpu() - cpu_before;
        daemon::verify(addresses[addresses.len() - 1], &load);
        daemons.into_iter().for_each(terminate);
        used
    } else {
        daemons.into_iter().map(terminate_and_count).sum::<f64>() - cpu_before
    };
    let server_cpu = cluster.region_server_cpu() - server_before;
    if is_cluster {
        cluster.block_on(table::remove(&cluster.client, &log_table.parse().expect("a name")));
    } else {
        let reader = daemon::start(cluster, &data.join("reader"), &[]);
        daemon::verify(reader.address(), &load);
        terminate(reader);
    }
    let cells = daemon::stored_cells(cluster) - warm_cells;
    let (points, millions) = (load.points() as f64, load.points() as f64 / 1e6);
    NodesResult {
        points_a_cell: points / cells as f64,
        forwarded: forwarded / points,
        frame_points: if frames > 0.0 { forwarded / frames } else { 0.0 },
        acknowledged,
        tsd_cpu: used / millions,
        server_cpu: server_cpu / millions,
        puts,
        queries,
    }
}

/// Starts the daemons, and waits until each has its share of the slots.
fn start(
    cluster: &BenchCluster,
    data: &Path,
    nodes: Nodes,
    hold: f64,
    log_table: &str,
) -> Vec<Daemon> {
    let hold = format!("{hold:.3}");
    let common =
        [("tsd.storage.hold_seconds", &hold[..]), ("tsd.storage.memtable.size", "2147483648")];
    let number = match nodes {
        Nodes::Cluster(number) => number,
        Nodes::LocalLogs(number) => {
            let settings = [&common[..], &[("tsd.storage.ack", "log")]].concat();
            let start = |at| daemon::start(cluster, &data.join(format!("log{at}")), &settings);
            return (0..number).map(start).collect();
        }
    };
    let start = |at: usize| {
        let name = format!("node{at}");
        let own = [
            ("tsd.storage.ack", "cluster"),
            ("tsd.cluster.name", &name),
            ("tsd.cluster.log_table", log_table),
        ];
        daemon::start(cluster, &data.join(&name), &[&common[..], &own].concat())
    };
    let daemons: Vec<Daemon> = (0..number).map(start).collect();
    wait_for(|| is_shared(&daemons).then_some(())).expect("every node has slots");
    daemons
}

fn is_shared(daemons: &[Daemon]) -> bool {
    let value = |daemon: &Daemon, name| metric(daemon.address(), name).unwrap_or(0.0);
    let owned: Vec<f64> =
        daemons.iter().map(|daemon| value(daemon, "tsd_cluster_slots_owned")).collect();
    owned.iter().all(|owned| *owned > 0.0)
        && owned.iter().sum::<f64>().total_cmp(&SLOTS).is_eq()
        && daemons.iter().all(|daemon| value(daemon, "tsd_cluster_slots_moving") < 1.0)
}

fn flush(node: SocketAddr) {
    let flushed = http(node, "POST", "/api/cluster/flush", Some(""));
    assert_eq!(flushed.status, 200, "{}", flushed.body);
}

/// Sends all requests, one per client and interval, while small queries run. Returns the milliseconds of each request and of each query.
fn send_beside_queries(
    nodes: &[SocketAddr],
    requests: Vec<ConnectionLoad>,
    interval: Duration,
    load: &PointLoad,
) -> (Vec<f64>, Vec<f64>) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let queries = scope.spawn(|| query_until(&is_over, nodes, load));
        let puts = send(nodes, requests, interval);
        is_over.store(true, Ordering::SeqCst);
        (puts, queries.join().expect("queries"))
    })
}

/// Queries an hour of one series again and again, each time through another node.
fn query_until(is_over: &AtomicBool, nodes: &[SocketAddr], load: &PointLoad) -> Vec<f64> {
    let (start, _) = load.seconds();
    let end = start + 3_599;
    let mut times = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(QUERY_INTERVAL);
        let at = times.len();
        let name = PointLoad::query_of(at as u32 % load.series);
        let uri = format!("/api/query?start={start}&end={end}&m={name}");
        let sent = Instant::now();
        let answer = http(nodes[at % nodes.len()], "GET", &uri, None);
        assert_eq!(answer.status, 200, "{}", answer.body);
        times.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    times
}

/// Sends the requests of all clients when they are due, or as soon as the nodes accept them; returns the milliseconds of each.
fn send(nodes: &[SocketAddr], loads: Vec<ConnectionLoad>, interval: Duration) -> Vec<f64> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let start = Instant::now();
        let mut clients = JoinSet::new();
        for (client, load) in loads.into_iter().enumerate() {
            let start = start + interval * client as u32 / CLIENTS;
            clients.spawn(send_requests(client as u32, nodes.to_vec(), load, start, interval));
        }
        clients.join_all().await.concat()
    })
}

async fn send_requests(
    client: u32,
    nodes: Vec<SocketAddr>,
    load: ConnectionLoad,
    start: Instant,
    interval: Duration,
) -> Vec<f64> {
    let connections = nodes.into_iter().map(PutClient::connect);
    let mut connections = futures_util::future::join_all(connections).await;
    let mut times = Vec::with_capacity(load.request_ends.len());
    let mut from = 0;
    for (at, to) in load.request_ends.into_iter().enumerate() {
        let due = start + interval * at as u32;
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
        // Chosen by a hash, since round robin could send all points of a series to one node.
        let node = cells::number(client, at as u32) as usize % connections.len();
        times.push(connections[node].put(&load.bytes[from..to]).await);
        from = to;
    }
    times
}
