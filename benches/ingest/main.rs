//! End-to-end ingest: points from a socket to the disk of a daemon process, checked by queries.
//!
//! ```text
//! cargo bench --bench ingest -- [--points N] [--connections N] [--protocol telnet|http]
//!                               [--series 1000|100000] [--depth N] [--keep]
//! VM_BINARY=/path/to/victoria-metrics cargo bench --bench ingest
//! ```
//!
//! Everything is rendered before the clock starts, so that the sender's cost is the socket alone; it
//! still shares the cores with the daemon. The clock stops when every point is acknowledged (HTTP),
//! or when the daemon has stored the last line and closed (telnet). Then count and sum of every
//! metric are queried.
//!
//! Where there is a VictoriaMetrics, the same bytes are sent to it next, and its points are counted: its figures, and ours
//! as multiples of them. It acknowledges points before they are on the disk.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

mod load;

use std::{net::SocketAddr, time::Instant};

use load::IngestLoad;
use tsd_testkit::{
    Arguments, DaemonBuilder, VictoriaMetrics, process,
    put_load::{ConnectionLoad, PutProtocol, send, verify_totals},
};

/// Options of the command line.
struct Options {
    points: usize,
    connections: Option<usize>,
    protocols: Vec<PutProtocol>,
    series: Vec<usize>,
    depth: usize,
    keep: bool,
}

fn main() {
    let options = Options::parse();
    println!(
        "{:<6} {:>7} {:>5} {:>10} {:>12} {:>10} {:>8} {:>9} {:>9}",
        "", "series", "conns", "points", "points/s", "cpu-s/M", "rss MiB", "B/pt live", "B/pt shut"
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
    let put = |address| PutLoad { address, protocol, depth: options.depth, points: load.points() };
    let ours = put(daemon.address()).measure(loads, daemon.pid());
    let live = process::directory_bytes(directory.path());
    let query_start = Instant::now();
    verify_totals(daemon.address(), load::FIRST_SECOND, load.end_second(), &load.totals);
    let query_seconds = query_start.elapsed().as_secs_f64();
    let warnings = daemon.events_at_level("WARN").len() + daemon.events_at_level("ERROR").len();
    assert!(daemon.terminate().success(), "a clean shutdown");
    let shut = process::directory_bytes(directory.path());
    let points = load.points() as f64;
    println!(
        "{:<6} {series:>7} {connections:>5} {points:>10} {} {:>9.2} {:>9.2}   all there (asked for {query_seconds:.2} s{})",
        protocol.name(),
        ours.columns(),
        live as f64 / points,
        shut as f64 / points,
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
        let theirs = put(address).measure(loads, victoria.pid());
        // The points of a range do not include its begin.
        let (first, last) = (load::FIRST_SECOND, load.end_second() - load::STEP_SECS);
        let range = (last - first + load::STEP_SECS, last);
        victoria.wait_for_points("{__name__=~\"bench.*\"}", range, load.points());
        println!("{:>31} {}", "VM", theirs.columns());
        println!("{:>31} {}", "×", ours.multiples_of(&theirs));
    }
}

/// Points for a server.
struct PutLoad {
    address: SocketAddr,
    protocol: PutProtocol,
    depth: usize,
    points: usize,
}

/// What the points have cost a server.
struct PutCost {
    points_per_second: f64,
    cpu_secs_per_million: f64,
    peak_resident_mib: f64,
}

impl PutLoad {
    /// Sends the points.
    fn measure(self, loads: Vec<ConnectionLoad>, pid: u32) -> PutCost {
        let points = self.points as f64;
        let before = process::cpu_seconds(pid);
        let start = Instant::now();
        send(self.address, self.protocol, loads, self.depth);
        let seconds = start.elapsed().as_secs_f64();
        let cpu = process::cpu_seconds(pid) - before;
        PutCost {
            points_per_second: points / seconds,
            cpu_secs_per_million: cpu / points * 1e6,
            peak_resident_mib: process::peak_resident_bytes(pid) as f64 / f64::from(1 << 20),
        }
    }
}

impl PutCost {
    fn columns(&self) -> String {
        let Self { points_per_second, cpu_secs_per_million, peak_resident_mib } = self;
        format!("{points_per_second:>12.0} {cpu_secs_per_million:>10.3} {peak_resident_mib:>8.0}")
    }

    fn multiples_of(&self, other: &Self) -> String {
        format!(
            "{:>12.2} {:>10.2} {:>8.2}",
            self.points_per_second / other.points_per_second,
            self.cpu_secs_per_million / other.cpu_secs_per_million,
            self.peak_resident_mib / other.peak_resident_mib
        )
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
            keep: false,
        };
        let mut arguments = Arguments::of_process();
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--points" => options.points = arguments.number(),
                "--connections" => options.connections = Some(arguments.number()),
                "--series" => options.series = vec![arguments.number()],
                "--depth" => options.depth = arguments.number(),
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
