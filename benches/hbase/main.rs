//! Compares the native client with HBase's Java client, and measures the daemon on HBase, in one
//! run on one HBase.
//!
//! ```text
//! cargo bench --bench hbase -- [--parts write,scan,get,put,store,small,log,log-table,cluster,
//!                                      opentsdb,compact,query | secured | secured-reads] [--rounds N]
//!                              [--series N] [--steps N] [--quick] [--attach DIRECTORY]
//!                              [--request-points N,…] [--clients N,…]
//!                              [--nodes N,…] [--cluster-series N]
//!                              [--cluster-request-points N] [--cluster-mixed-hosts] [--offered N]
//!                              [--query-series N] [--query-rounds N]
//! ```
//!
//! HBase (two region servers, a master, ZooKeeper) runs in separate processes, with the full JIT
//! compiler. Clients are measured in alternating rounds on the same truncated table; the Java
//! programs of `cluster/java` run over all rounds and are warmed up. Everything written is read
//! back before a number is printed. Skipped if there is no JDK.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

mod bench_cluster;
mod cells;
mod cluster_puts;
mod daemon;
mod daemon_puts;
mod gets;
mod java_client;
mod log_table;
mod opentsdb;
mod point_load;
mod put_client;
mod queries;
mod report;
mod row_compaction;
mod scans;
mod secured;
mod small_writes;
mod table;
mod writes;

use std::{path::PathBuf, time::Instant};

use bench_cluster::BenchCluster;
use cells::CellLoad;
use cluster::Cluster;
use java_client::JavaPrograms;
use tsd_testkit::Arguments;
use writes::Baseline;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// All parts.
const PARTS: [&str; 12] = [
    "write",
    "scan",
    "get",
    "put",
    "store",
    "small",
    "log",
    "log-table",
    "cluster",
    "opentsdb",
    "compact",
    "query",
];

/// The parts with a cluster of their own: all of it; and only its scans and connections.
const SECURED: &str = "secured";
const SECURED_READS: &str = "secured-reads";

/// Options of the command line.
struct Options {
    parts: Vec<String>,
    rounds: usize,
    series: u32,
    steps: u32,
    scan_series: u32,
    compact_series: u32,
    query_series: usize,
    query_rounds: usize,
    gets: u32,
    held_rounds: usize,
    /// Sizes of small requests, and numbers of clients that send them.
    request_points: Vec<u32>,
    clients: Vec<u32>,
    /// The rate of paced requests, as a multiple of the rate of a shared `BufferedMutator`.
    paced: f64,
    /// Numbers of nodes of a cluster, and its series.
    nodes: Vec<u32>,
    cluster_series: u32,
    /// Points of a request to a cluster.
    cluster_request_points: u32,
    /// Requests to a cluster have points of several hosts, as from a relay, not of one.
    cluster_mixed_hosts: bool,
    /// Points per second offered to daemons that hold rows. `None` uses a multiple of the Java
    /// client's rate, or a rate that suits several nodes on one host.
    offered: Option<f64>,
    attach: Option<PathBuf>,
}

fn main() {
    let options = Options::parse();
    if Cluster::java().is_none() {
        println!("skipped: HBase needs a JDK of release 17 or later, and there is none");
        return;
    }
    let start = Instant::now();
    if options.has(SECURED) || options.has(SECURED_READS) {
        secured::run(&options);
        println!("\n{:.0} s in all", start.elapsed().as_secs_f64());
        return;
    }
    let opentsdb = ["opentsdb", "compact", "query"].iter().any(|part| options.has(part));
    let mut cluster = BenchCluster::open(options.attach.as_ref(), opentsdb);
    let directory = tempfile::tempdir().expect("temporary directory");
    let programs = JavaPrograms::compile(&cluster, directory.path());
    cluster.block_on(table::create(&cluster.client));
    println!("HBase serves after {:.0} s", start.elapsed().as_secs_f64());
    let needs_baseline = ["write", "store", "log"].iter().any(|part| options.has(part));
    let mut baseline = needs_baseline.then(|| Baseline::start(&cluster, &programs, &options));
    if let Some(baseline) = baseline.as_mut().filter(|_| options.has("write")) {
        writes::run(&cluster, baseline, &options);
    }
    if options.has("scan") {
        scans::run(&cluster, &programs, &options);
    }
    if options.has("get") {
        let load =
            if options.has("scan") { options.scan_load() } else { scans::fill(&cluster, &options) };
        gets::run(&cluster, &programs, &options, load);
    }
    if options.has("put") {
        daemon_puts::light(&cluster, directory.path());
    }
    if let Some(baseline) = baseline.as_mut().filter(|_| options.has("store")) {
        daemon_puts::stored(&cluster, directory.path(), baseline, &options);
    }
    if options.has("small") {
        small_writes::run(&cluster, &programs, directory.path(), &options);
    }
    if let Some(baseline) = baseline.as_mut().filter(|_| options.has("log")) {
        daemon_puts::held(&cluster, directory.path(), baseline, &options);
    }
    if options.has("log-table") {
        log_table::run(&cluster);
    }
    if options.has("cluster") {
        cluster_puts::run(&cluster, directory.path(), &options);
    }
    if options.has("opentsdb") {
        opentsdb::run(&cluster, directory.path(), &options);
    }
    if options.has("compact") {
        row_compaction::run(&mut cluster, directory.path(), &options);
    }
    if options.has("query") {
        queries::run(&mut cluster, directory.path(), &options);
    }
    println!("\n{:.0} s in all", start.elapsed().as_secs_f64());
    cluster.close();
}

impl Options {
    fn has(&self, part: &str) -> bool {
        self.parts.iter().any(|requested| requested == part)
    }

    /// The load of bulk writes.
    const fn load(&self, points_per_put: u32) -> CellLoad {
        CellLoad { series: self.series, steps: self.steps, points_per_put }
    }

    /// The load of scans: rows of a hundred cells.
    const fn scan_load(&self) -> CellLoad {
        CellLoad { series: self.scan_series, steps: 100, points_per_put: 10 }
    }

    fn parse() -> Self {
        let mut options = Self {
            parts: PARTS.map(str::to_owned).to_vec(),
            rounds: 3,
            series: 20_000,
            steps: 42,
            scan_series: 100_000,
            compact_series: 3_000,
            query_series: 1_000,
            query_rounds: 5,
            gets: 5_000,
            held_rounds: 1,
            request_points: vec![1, 10, 50, 500],
            clients: vec![4, 16, 64],
            paced: 1.3,
            nodes: vec![1, 3],
            cluster_series: 6_000,
            cluster_request_points: 50,
            cluster_mixed_hosts: false,
            offered: None,
            attach: None,
        };
        let mut arguments = Arguments::of_process();
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--parts" => {
                    options.parts = arguments.text().split(',').map(str::to_owned).collect();
                    let known = |part: &String| PARTS.contains(&part.as_str());
                    let is_alone = options.parts == [SECURED] || options.parts == [SECURED_READS];
                    assert!(
                        is_alone || options.parts.iter().all(known),
                        "parts are {}, or {SECURED} or {SECURED_READS} alone",
                        PARTS.join(", ")
                    );
                }
                "--rounds" => options.rounds = arguments.number(),
                "--series" => options.series = arguments.number(),
                "--steps" => {
                    options.steps = arguments.number();
                    assert!(options.steps.is_multiple_of(6), "six points of a row make a put");
                }
                "--scan-series" => options.scan_series = arguments.number(),
                "--gets" => options.gets = arguments.number(),
                "--offered" => options.offered = Some(arguments.number()),
                "--held-rounds" => options.held_rounds = arguments.number(),
                "--request-points" => options.request_points = numbers(&arguments.text()),
                "--nodes" => options.nodes = numbers(&arguments.text()),
                "--query-series" => options.query_series = arguments.number(),
                "--query-rounds" => options.query_rounds = arguments.number(),
                "--cluster-series" => options.cluster_series = arguments.number(),
                "--cluster-mixed-hosts" => options.cluster_mixed_hosts = true,
                "--cluster-request-points" => {
                    options.cluster_request_points = arguments.number();
                }
                "--paced" => options.paced = arguments.number(),
                "--clients" => options.clients = numbers(&arguments.text()),
                "--attach" => options.attach = Some(arguments.text().into()),
                // A small run that only tests the bench.
                "--quick" => {
                    options.rounds = 1;
                    options.series = 2_000;
                    options.scan_series = 2_000;
                    options.compact_series = 300;
                    options.cluster_series = 2_000;
                    options.query_series = 20;
                    options.gets = 500;
                }
                _ => arguments.unknown(),
            }
        }
        options
    }
}

fn numbers(list: &str) -> Vec<u32> {
    list.split(',').map(|number| number.parse().expect("a list of numbers")).collect()
}
