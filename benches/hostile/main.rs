//! Queries that want too much, and what small queries and ingest feel beside them.
//!
//! ```text
//! cargo bench --bench hostile -- [--quick] [--seconds N] [--clients N] [--data DIR] [--only TEXT]
//! ```
//!
//! Several clients ask the same heavy query again and again. Meanwhile one client asks small
//! queries, and another puts points at a steady pace and waits for each acknowledgement. The same
//! is measured without heavy queries before. At the end the heavy clients hang up in the middle of
//! their queries, and the time is taken until the daemon has let go of them.
//!
//! It prints the table of docs/performance.md. `--data` is a directory that `--bench query` kept.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may stop")]

#[path = "../query/client.rs"]
#[expect(dead_code, reason = "the bench of queries uses more of it")]
mod client;
#[path = "../../tests/daemon.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod daemon;
#[path = "../query/day.rs"]
#[expect(dead_code, reason = "the bench of queries uses more of it")]
mod day;
mod heavy;
#[path = "../query/process.rs"]
#[expect(dead_code, reason = "the bench of queries uses more of it")]
mod process;
mod steady;

use std::{
    env, fs,
    net::SocketAddr,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use daemon::{Daemon, Start};
use day::Day;
use heavy::{Heavy, Outcomes};
use steady::{Latencies, Steady};

/// What is asked for on the command line.
struct Options {
    day: Day,
    time: Duration,
    clients: usize,
    data: Option<PathBuf>,
    only: Option<String>,
}

/// What one stretch of time showed.
struct Felt {
    small: Latencies,
    ingest: Steady,
    peak_bytes: u64,
}

fn main() {
    let options = Options::parse();
    let temporary = tempfile::tempdir().expect("temporary directory");
    let directory = options.data.clone().unwrap_or_else(|| temporary.path().join("data"));
    if !directory.join("WRITTEN").exists() {
        let daemon = start(&directory);
        options.day.write(daemon.address());
        assert!(daemon.terminate().success(), "a clean end");
        fs::write(directory.join("WRITTEN"), "").expect("mark");
    }
    let daemon = start(&directory);
    process::wait_until_idle(daemon.pid());
    println!(
        "{} clients a heavy query, {} s each; {} series of a day, points put at {} a second",
        options.clients,
        options.time.as_secs(),
        options.day.series,
        steady::POINTS_A_SECOND,
    );
    println!(
        "| heavy query | answers | small p50, ms: alone, beside | p99: alone, beside | \
         points/s: alone, beside | put p99, ms: alone, beside | peak MiB | let go, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for heavy in heavy::all(options.day) {
        if options.only.as_ref().is_some_and(|only| !heavy.name.contains(only.as_str())) {
            continue;
        }
        let alone = feel(&daemon, &options, || {});
        let mut outcomes = Outcomes::default();
        let mut let_go = Duration::ZERO;
        let beside = beside(&daemon, &options, &heavy, &mut outcomes, &mut let_go);
        print_row(&heavy, &outcomes, &alone, &beside, let_go);
    }
    assert!(daemon.terminate().success(), "a clean end");
}

fn start(directory: &std::path::Path) -> Daemon {
    Start::on(directory).args(&["--log-level", "warn,tsd_cli=info"]).serve()
}

/// Measures small queries and ingest for a while; calls `at_end` when it is over, before ingest
/// stops.
fn feel(daemon: &Daemon, options: &Options, at_end: impl FnOnce()) -> Felt {
    process::forget_peak(daemon.pid());
    let stop = AtomicBool::new(false);
    let end = Instant::now() + options.time;
    let small_uri = options.day.small_uri();
    thread::scope(|scope| {
        let ingest = scope.spawn(|| steady::put(daemon.address(), end, &stop));
        let small = Latencies::measure(daemon.address(), &small_uri, end);
        let ingest = {
            stop.store(true, Ordering::Relaxed);
            ingest.join().expect("ingest")
        };
        at_end();
        Felt { small, ingest, peak_bytes: process::peak_resident_bytes(daemon.pid()) }
    })
}

/// As [`feel`], with heavy queries all the time.
fn beside(
    daemon: &Daemon,
    options: &Options,
    heavy: &Heavy,
    outcomes: &mut Outcomes,
    let_go: &mut Duration,
) -> Felt {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|_| scope.spawn(|| heavy.ask_until(daemon.address(), &stop)))
            .collect();
        thread::sleep(Duration::from_millis(50));
        let felt = feel(daemon, options, || stop.store(true, Ordering::Relaxed));
        for client in clients {
            outcomes.add(client.join().expect("a client"));
        }
        *let_go = time_until_idle(daemon.address(), daemon.pid());
        felt
    })
}

/// Time until the daemon uses next to no processor any more.
fn time_until_idle(address: SocketAddr, pid: u32) -> Duration {
    const LOOK: Duration = Duration::from_millis(10);
    let start = Instant::now();
    let mut before = process::cpu_seconds(pid);
    loop {
        thread::sleep(LOOK);
        let now = process::cpu_seconds(pid);
        if now - before < LOOK.as_secs_f64() / 5.0 {
            break;
        }
        before = now;
        assert!(start.elapsed() < Duration::from_mins(1), "{address} never lets go");
    }
    start.elapsed().saturating_sub(LOOK)
}

fn print_row(heavy: &Heavy, outcomes: &Outcomes, alone: &Felt, beside: &Felt, let_go: Duration) {
    println!(
        "| {} | {} | {:.1}, {:.1} | {:.1}, {:.1} | {:.0}, {:.0} | {:.1}, {:.1} | {} | {} |",
        heavy.name,
        outcomes,
        alone.small.at(0.5),
        beside.small.at(0.5),
        alone.small.at(0.99),
        beside.small.at(0.99),
        alone.ingest.points_a_second,
        beside.ingest.points_a_second,
        alone.ingest.latencies.at(0.99),
        beside.ingest.latencies.at(0.99),
        beside.peak_bytes >> 20,
        let_go.as_millis(),
    );
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            day: Day { series: 1_000, steps: 8_640 },
            time: Duration::from_secs(5),
            clients: 4,
            data: None,
            only: None,
        };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || -> usize {
                let value = words.next().unwrap_or_default();
                value.replace('_', "").parse().unwrap_or_else(|_| panic!("{word} needs a number"))
            };
            match word.as_str() {
                "--quick" => {
                    options.day = Day { series: 50, steps: 720 };
                    options.time = Duration::from_millis(300);
                }
                "--seconds" => options.time = Duration::from_secs(number() as u64),
                "--clients" => options.clients = number(),
                "--data" => options.data = words.next().map(PathBuf::from),
                "--only" => options.only = words.next(),
                // What cargo says to every bench.
                "--bench" => {}
                _ => panic!("unknown option {word}"),
            }
        }
        options
    }
}
