//! The set `heavy`: heavy queries, and the latency of small queries and of ingest meanwhile.
//!
//! Several clients repeat the same heavy query. Meanwhile one client sends small queries, and another
//! puts points at a constant rate and waits for each acknowledgement. Both are first measured without
//! heavy queries. At the end the heavy clients close their connections during their queries, and the
//! time until the daemon is idle is measured.
//!
//! Prints the table of docs/measurements/hostile.md. `--data` is a directory that this set, or the set
//! `states` of `--bench shapes`, has kept.

mod heavy_query;
mod light_load;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use heavy_query::{HeavyQuery, StatusCounts};
use light_load::{IngestResult, Latencies};
use tsd_testkit::{Arguments, Daemon, DaemonBuilder, day_load::DayLoad, process};

/// Options of the command line.
struct Options {
    day: DayLoad,
    time: Duration,
    clients: usize,
    data: Option<PathBuf>,
    only: Option<String>,
}

/// Measurements of one interval.
struct LightLoadResult {
    small: Latencies,
    ingest: IngestResult,
    peak_bytes: u64,
}

/// Measures each heavy query. `arguments` are those after the name of the set.
pub(crate) fn run(arguments: Arguments) {
    let options = Options::parse(arguments);
    let temporary = tempfile::tempdir().expect("temporary directory");
    let directory = options.data.clone().unwrap_or_else(|| temporary.path().join("data"));
    if !directory.join("WRITTEN").exists() {
        let daemon = start(&directory);
        options.day.write(daemon.address());
        assert!(daemon.terminate().success(), "a clean shutdown");
        fs::write(directory.join("WRITTEN"), "").expect("mark");
    }
    let daemon = start(&directory);
    process::wait_until_idle(daemon.pid());
    println!(
        "{} clients a heavy query, {} s each; {} series of a day, points put at {} a second",
        options.clients,
        options.time.as_secs(),
        options.day.series,
        light_load::POINTS_PER_SECOND,
    );
    println!(
        "| heavy query | answers | small p50, ms: alone, beside | p99: alone, beside | \
         points/s: alone, beside | put p99, ms: alone, beside | peak MiB | let go, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for heavy in heavy_query::all(options.day) {
        if options.only.as_ref().is_some_and(|only| !heavy.name.contains(only.as_str())) {
            continue;
        }
        let alone = measure(&daemon, &options, || {});
        let mut statuses = StatusCounts::default();
        let mut time_to_idle = Duration::ZERO;
        let beside = measure_beside(&daemon, &options, &heavy, &mut statuses, &mut time_to_idle);
        print_row(&heavy, &statuses, &alone, &beside, time_to_idle);
    }
    assert!(daemon.terminate().success(), "a clean shutdown");
}

fn start(directory: &Path) -> Daemon {
    DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), directory)
        .args(&["--log-level", "warn,tsd_cli=info"])
        .env("TSD_QUERY_CACHE_SIZE", "0")
        .start()
}

/// Measures small queries and ingest for the time of the options, then calls `at_end`.
fn measure(daemon: &Daemon, options: &Options, at_end: impl FnOnce()) -> LightLoadResult {
    process::reset_peak(daemon.pid());
    let stop = AtomicBool::new(false);
    let end = Instant::now() + options.time;
    let small_uri = options.day.small_uri();
    thread::scope(|scope| {
        let ingest = scope.spawn(|| light_load::put(daemon.address(), end, &stop));
        let small = Latencies::measure(daemon.address(), &small_uri, end);
        let ingest = {
            stop.store(true, Ordering::Relaxed);
            ingest.join().expect("ingest")
        };
        at_end();
        LightLoadResult { small, ingest, peak_bytes: process::peak_resident_bytes(daemon.pid()) }
    })
}

/// As [`measure`], with concurrent heavy queries; also measures the time until the daemon is idle
/// after them.
fn measure_beside(
    daemon: &Daemon,
    options: &Options,
    heavy: &HeavyQuery,
    statuses: &mut StatusCounts,
    time_to_idle: &mut Duration,
) -> LightLoadResult {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|_| scope.spawn(|| heavy.repeat_until(daemon.address(), &stop)))
            .collect();
        thread::sleep(Duration::from_millis(50));
        let result = measure(daemon, options, || stop.store(true, Ordering::Relaxed));
        for client in clients {
            statuses.add(client.join().expect("a client"));
        }
        *time_to_idle = time_until_idle(daemon.address(), daemon.pid());
        result
    })
}

/// Time until the daemon uses almost no CPU.
fn time_until_idle(address: SocketAddr, pid: u32) -> Duration {
    const INTERVAL: Duration = Duration::from_millis(10);
    let start = Instant::now();
    let mut before = process::thread_cpu_seconds(pid);
    loop {
        thread::sleep(INTERVAL);
        let now = process::thread_cpu_seconds(pid);
        if now - before < INTERVAL.as_secs_f64() / 5.0 {
            break;
        }
        before = now;
        assert!(start.elapsed() < Duration::from_mins(1), "{address} is not idle after a minute");
    }
    start.elapsed().saturating_sub(INTERVAL)
}

fn print_row(
    heavy: &HeavyQuery,
    statuses: &StatusCounts,
    alone: &LightLoadResult,
    beside: &LightLoadResult,
    time_to_idle: Duration,
) {
    println!(
        "| {} | {} | {:.1}, {:.1} | {:.1}, {:.1} | {:.0}, {:.0} | {:.1}, {:.1} | {} | {} |",
        heavy.name,
        statuses,
        alone.small.at(0.5),
        beside.small.at(0.5),
        alone.small.at(0.99),
        beside.small.at(0.99),
        alone.ingest.points_per_second,
        beside.ingest.points_per_second,
        alone.ingest.latencies.at(0.99),
        beside.ingest.latencies.at(0.99),
        beside.peak_bytes >> 20,
        time_to_idle.as_millis(),
    );
}

impl Options {
    fn parse(mut arguments: Arguments) -> Self {
        let mut options = Self {
            day: DayLoad { series: 1_000, steps: 8_640 },
            time: Duration::from_secs(5),
            clients: 4,
            data: None,
            only: None,
        };
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--quick" => {
                    options.day = DayLoad { series: 50, steps: 720 };
                    options.time = Duration::from_millis(300);
                }
                "--seconds" => options.time = Duration::from_secs(arguments.number()),
                "--clients" => options.clients = arguments.number(),
                "--data" => options.data = Some(arguments.text().into()),
                "--only" => options.only = Some(arguments.text()),
                _ => arguments.unknown(),
            }
        }
        options
    }
}
