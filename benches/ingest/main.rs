//! Points into a daemon of its own process, from socket to disk, and back by query.
//!
//! ```text
//! cargo bench --bench ingest -- [--points N] [--connections N] [--protocol telnet|http]
//!                               [--series 1000|100000] [--depth N] [--keep]
//! ```
//!
//! Everything that is sent is rendered before the clock starts, so that what the sender costs is
//! the socket alone; it still shares the cores with the daemon. The clock stops when every point
//! is acknowledged (HTTP), or when the daemon has stored the last line and closed (telnet). Then
//! the daemon is asked for the count and the sum of every metric.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may stop")]

#[path = "../../tests/daemon.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod daemon;
mod load;
mod process;
mod send;
#[path = "../../tests/socket.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod socket;
mod verify;

use std::{env, time::Instant};

use daemon::Start;
use load::Load;
use send::Protocol;

/// What is asked for on the command line.
struct Options {
    points: usize,
    connections: Option<usize>,
    protocols: Vec<Protocol>,
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

fn run(options: &Options, series: usize, protocol: Protocol) {
    let connections = options.connections.unwrap_or(match protocol {
        Protocol::Telnet => 4,
        Protocol::Http => 32,
    });
    let load = Load::new(series, options.points / series);
    let bodies = load.render(protocol, connections);
    let directory = tempfile::tempdir().expect("temporary directory");
    let daemon = Start::on(directory.path()).args(&["--log-level", "warn,tsd_cli=info"]).serve();
    let before = process::cpu_seconds(daemon.pid());
    let start = Instant::now();
    send::send(daemon.address(), protocol, bodies, options.depth);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = process::cpu_seconds(daemon.pid()) - before;
    let rss = process::peak_resident_bytes(daemon.pid());
    let live = process::disk_bytes(directory.path());
    let asked = Instant::now();
    verify::verify(daemon.address(), &load);
    let asked = asked.elapsed().as_secs_f64();
    let warnings = daemon.at_level("WARN").len() + daemon.at_level("ERROR").len();
    assert!(daemon.terminate().success(), "a clean end");
    let shut = process::disk_bytes(directory.path());
    let points = load.points() as f64;
    println!(
        "{:<6} {:>7} {:>5} {:>10} {:>12.0} {:>10.3} {:>8.0} {:>9.2} {:>9.2}   all there (asked for {asked:.2} s{})",
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
            protocols: vec![Protocol::Telnet, Protocol::Http],
            series: vec![1_000, 100_000],
            depth: 1,
            keep: false,
        };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || -> usize {
                let value = words.next().unwrap_or_default();
                value.replace('_', "").parse().unwrap_or_else(|_| panic!("{word} needs a number"))
            };
            match word.as_str() {
                "--points" => options.points = number(),
                "--connections" => options.connections = Some(number()),
                "--series" => options.series = vec![number()],
                "--depth" => options.depth = number(),
                "--keep" => options.keep = true,
                "--protocol" => {
                    let name = words.next();
                    options.protocols.retain(|p| Some(p.name()) == name.as_deref());
                    assert!(!options.protocols.is_empty(), "--protocol is telnet or http");
                }
                // What cargo says to every bench.
                "--bench" => {}
                _ => panic!("unknown option {word}"),
            }
        }
        options
    }
}
