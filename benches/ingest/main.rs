//! Measures end-to-end ingest: points from a socket to the disk of a daemon process, checked by queries.
//!
//! ```text
//! cargo bench --bench ingest -- [--points N] [--connections N] [--protocol telnet|http]
//!                               [--series N] [--depth N] [--rate POINTS_PER_SECOND] [--keep]
//! VM_BINARY=/path/to/victoria-metrics cargo bench --bench ingest
//! ```
//!
//! Everything is rendered before the clock starts, so that the sender's cost is the socket alone; it
//! still shares the cores with the daemon. The clock stops when every point is acknowledged (HTTP),
//! or when the daemon has stored the last line and closed (telnet). Then count and sum of every
//! metric are queried.
//!
//! With `--rate` the points come at a steady rate, and their cost includes the [`REST`] after them.
//!
//! If a VictoriaMetrics is given, it gets the same bytes next, and its points are counted. The bench prints its figures,
//! and ours as multiples. VictoriaMetrics acknowledges points before they are on the disk.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

mod load;

use std::{
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use load::IngestLoad;
use tsd_testkit::{
    Arguments, DaemonBuilder, VictoriaMetrics, process,
    put_load::{ConnectionLoad, PutProtocol, Sending, send_as, verify_totals},
};

/// Time after the points of a steady rate in which a server flushes and merges them.
const REST: Duration = Duration::from_secs(15);

/// Options of the command line.
struct Options {
    points: usize,
    connections: Option<usize>,
    protocols: Vec<PutProtocol>,
    series: Vec<usize>,
    depth: usize,
    rate: Option<f64>,
    keep: bool,
}

fn main() {
    let options = Options::parse();
    println!(
        "{:<6} {:>7} {:>5} {:>10} {:>12} {:>10} {:>8} {:>9} {:>9} {:>9}",
        "",
        "series",
        "conns",
        "points",
        "points/s",
        "cpu-s/M",
        "rss MiB",
        "B/pt wr.",
        "B/pt live",
        "B/pt shut"
    );
    for &series in &options.series {
        for &protocol in &options.protocols {
            run(&options, series, protocol);
        }
    }
}

fn run(options: &Options, series: usize, protocol: PutProtocol) {
    let connections = options.connections.unwrap_or(match protocol {
        PutProtocol::Telnet => 4,
        PutProtocol::Http => 32,
    });
    let load = IngestLoad::new(series, options.points / series);
    let loads = load.render(protocol, connections);
    let vm_binary = VictoriaMetrics::binary();
    let for_vm = vm_binary.as_ref().map(|_| loads.clone());
    let directory = tempfile::tempdir().expect("temporary directory");
    let daemon = DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), directory.path())
        .args(&["--log-level", "warn,tsd_cli=info"])
        .start();
    let sending = Sending {
        protocol,
        depth: options.depth,
        duration: options.rate.map(|rate| Duration::from_secs_f64(load.points() as f64 / rate)),
    };
    let put = |address| PutLoad { address, sending, points: load.points() };
    let mut ours = put(daemon.address()).measure(loads, daemon.pid(), directory.path());
    let query_start = Instant::now();
    verify_totals(daemon.address(), load::FIRST_SECOND, load.end_second(), &load.totals);
    let query_seconds = query_start.elapsed().as_secs_f64();
    let warnings = daemon.events_at_level("WARN").len() + daemon.events_at_level("ERROR").len();
    assert!(daemon.terminate().success(), "a clean shutdown");
    ours.left_per_point = process::directory_bytes(directory.path()) as f64 / load.points() as f64;
    println!(
        "{:<6} {series:>7} {connections:>5} {:>10} {}   all there (asked for {query_seconds:.2} s{})",
        protocol.name(),
        load.points(),
        ours.columns(),
        if warnings == 0 { String::new() } else { format!("; {warnings} warnings") },
    );
    if options.keep {
        println!("kept {}", directory.keep().display());
    }
    if let Some((binary, loads)) = vm_binary.zip(for_vm) {
        let directory = tempfile::tempdir().expect("temporary directory");
        let victoria = VictoriaMetrics::start(&binary, directory.path());
        let address = match protocol {
            PutProtocol::Telnet => victoria.telnet(),
            PutProtocol::Http => victoria.puts(),
        };
        let mut theirs = put(address).measure(loads, victoria.pid(), directory.path());
        // The points of a range do not include its begin.
        let (first, last) = (load::FIRST_SECOND, load.end_second() - load::STEP_SECS);
        let range = (last - first + load::STEP_SECS, last);
        victoria.wait_for_points("{__name__=~\"bench.*\"}", range, load.points());
        victoria.stop();
        let left = process::directory_bytes(directory.path());
        theirs.left_per_point = left as f64 / load.points() as f64;
        println!("{:>31} {}", "VM", theirs.columns());
        println!("{:>31} {}", "×", ours.multiples_of(&theirs).columns());
    }
}

/// Points for a server.
struct PutLoad {
    address: SocketAddr,
    sending: Sending,
    points: usize,
}

/// Cost of the points on a server, or multiples of a cost.
struct PutCost {
    points_per_second: f64,
    cpu_secs_per_million: f64,
    peak_resident_mib: f64,
    /// Bytes written to the disk for a point.
    written_per_point: f64,
    /// Bytes in the directory for a point while the server runs.
    live_per_point: f64,
    /// … and after its shutdown.
    left_per_point: f64,
}

impl PutLoad {
    /// Sends the points.
    fn measure(self, loads: Vec<ConnectionLoad>, pid: u32, directory: &Path) -> PutCost {
        let points = self.points as f64;
        let before = (process::cpu_seconds(pid), process::written_bytes(pid));
        let start = Instant::now();
        send_as(self.address, self.sending, loads);
        let seconds = start.elapsed().as_secs_f64();
        if self.sending.duration.is_some() {
            thread::sleep(REST);
        }
        PutCost {
            points_per_second: points / seconds,
            cpu_secs_per_million: (process::cpu_seconds(pid) - before.0) / points * 1e6,
            peak_resident_mib: process::peak_resident_bytes(pid) as f64 / f64::from(1 << 20),
            written_per_point: (process::written_bytes(pid) - before.1) as f64 / points,
            live_per_point: process::directory_bytes(directory) as f64 / points,
            left_per_point: f64::NAN,
        }
    }
}

impl PutCost {
    /// A multiple needs more decimals than a rate.
    fn columns(&self) -> String {
        let decimals = if self.points_per_second < 1e3 { 2 } else { 0 };
        format!(
            "{:>12.decimals$} {:>10.3} {:>8.decimals$} {:>9.2} {:>9.2} {:>9.2}",
            self.points_per_second,
            self.cpu_secs_per_million,
            self.peak_resident_mib,
            self.written_per_point,
            self.live_per_point,
            self.left_per_point
        )
    }

    fn multiples_of(&self, other: &Self) -> Self {
        Self {
            points_per_second: self.points_per_second / other.points_per_second,
            cpu_secs_per_million: self.cpu_secs_per_million / other.cpu_secs_per_million,
            peak_resident_mib: self.peak_resident_mib / other.peak_resident_mib,
            written_per_point: self.written_per_point / other.written_per_point,
            live_per_point: self.live_per_point / other.live_per_point,
            left_per_point: self.left_per_point / other.left_per_point,
        }
    }
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            points: 4_000_000,
            connections: None,
            protocols: vec![PutProtocol::Telnet, PutProtocol::Http],
            series: vec![1_000, 100_000],
            depth: 1,
            rate: None,
            keep: false,
        };
        let mut arguments = Arguments::of_process();
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--points" => options.points = arguments.number(),
                "--connections" => options.connections = Some(arguments.number()),
                "--series" => options.series = vec![arguments.number()],
                "--depth" => options.depth = arguments.number(),
                "--rate" => options.rate = Some(arguments.number()),
                "--keep" => options.keep = true,
                "--protocol" => {
                    let name = arguments.text();
                    options.protocols.retain(|p| p.name() == name);
                    assert!(!options.protocols.is_empty(), "--protocol is telnet or http");
                }
                _ => arguments.unknown(),
            }
        }
        options
    }
}
