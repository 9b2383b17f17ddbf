//! End-to-end ingest: points from a socket to the disk of a daemon process, checked by queries.
//!
//! ```text
//! cargo bench --bench ingest -- [--points N] [--connections N] [--protocol telnet|http]
//!                               [--series 1000|100000] [--depth N] [--keep]
//! ```
//!
//! Everything is rendered before the clock starts, so that the sender's cost is the socket alone; it
//! still shares the cores with the daemon. The clock stops when every point is acknowledged (HTTP),
//! or when the daemon has stored the last line and closed (telnet). Then count and sum of every
//! metric are queried.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

mod load;

use std::time::Instant;

use load::IngestLoad;
use tsd_testkit::{
    Arguments, DaemonBuilder, process,
    put_load::{PutProtocol, send, verify_totals},
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
    let directory = tempfile::tempdir().expect("temporary directory");
    let daemon = DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), directory.path())
        .args(&["--log-level", "warn,tsd_cli=info"])
        .start();
    let before = process::cpu_seconds(daemon.pid());
    let start = Instant::now();
    send(daemon.address(), protocol, loads, options.depth);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = process::cpu_seconds(daemon.pid()) - before;
    let rss = process::peak_resident_bytes(daemon.pid());
    let live = process::directory_bytes(directory.path());
    let query_start = Instant::now();
    verify_totals(daemon.address(), load::FIRST_SECOND, load.end_second(), &load.totals);
    let query_seconds = query_start.elapsed().as_secs_f64();
    let warnings = daemon.events_at_level("WARN").len() + daemon.events_at_level("ERROR").len();
    assert!(daemon.terminate().success(), "a clean shutdown");
    let shut = process::directory_bytes(directory.path());
    let points = load.points() as f64;
    println!(
        "{:<6} {:>7} {:>5} {:>10} {:>12.0} {:>10.3} {:>8.0} {:>9.2} {:>9.2}   all there (asked for {query_seconds:.2} s{})",
        protocol.name(),
        series,
        connections,
        load.points(),
        points / seconds,
        cpu / points * 1e6,
        rss as f64 / f64::from(1 << 20),
        live as f64 / points,
        shut as f64 / points,
        if warnings == 0 { String::new() } else { format!("; {warnings} warnings") },
    );
    if options.keep {
        println!("kept {}", directory.keep().display());
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
