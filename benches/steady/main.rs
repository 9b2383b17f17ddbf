//! Runs hours of steady puts with queries, merges and retention, to find anything that grows without bound.
//!
//! ```text
//! cargo bench --bench steady -- [--minutes N] [--rate POINTS_PER_SECOND] [--series N] [--memtable BYTES]
//!                               [--tsdb PATH]
//! cargo bench --bench steady -- --heavy [--quick] [--seconds N] [--clients N] [--data DIR] [--only TEXT]
//! ```
//!
//! With `--heavy` as the first option, it measures small queries and puts during heavy queries instead: see
//! `heavy.rs`.
//!
//! Each series has a point every 10 s of its own time, which passes faster than the clock so that the rate is
//! reached, and arrives at the present when the run ends: two hours are eight days. A quarter of the series
//! comes over HTTP, the others over telnet; one point in a hundred is an hour late. Two readers query other
//! shapes all the time and compare every answer. Retention keeps the last quarter of the time, and half of
//! that for one metric. Older points are dropped, or removed by merges, during the load.
//!
//! A row of figures is printed every twelfth of the run. The run fails if a query fails or is wrong, if points
//! are missing or expired points remain at the end, or if the daemon logs a warning other than about slow
//! syncs. Left out: faults (`tests/soak.sh`).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

mod heavy;
mod load;
mod queries;

use parking_lot::Mutex;
use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use load::{DAY, HOUR, Load, METRICS, Sent, Transport, metric};
use queries::{Found, Readers};
use serde_json::Value;
use tsd_testkit::{
    Arguments, Daemon, DaemonBuilder,
    process::{
        count_files, cpu_seconds, directory_bytes, peak_resident_bytes, reset_peak, resident_bytes,
        wait_until_idle, written_bytes,
    },
    wait_for,
};

const READERS: u64 = 2;
/// Rows of figures.
const ROWS: u32 = 12;
/// Time between two changes of the retention, in seconds of points.
const RETENTION_STEP: u64 = 6 * HOUR;

struct Options {
    minutes: f64,
    rate: f64,
    series: u64,
    memtable_bytes: Option<u64>,
    tsdb: String,
}

impl Options {
    /// Parses the options; `None` after `--heavy`, whose options follow.
    fn parse(arguments: &mut Arguments) -> Option<Self> {
        let mut options = Self {
            minutes: 6.0,
            rate: 200_000.0,
            series: 20_000,
            memtable_bytes: None,
            tsdb: tsd_testkit::bench_binary(env!("CARGO_BIN_EXE_tsdb")),
        };
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--bench" => {}
                "--heavy" => return None,
                "--minutes" => options.minutes = arguments.number(),
                "--rate" => options.rate = arguments.number(),
                "--series" => options.series = arguments.number::<u64>().next_multiple_of(METRICS),
                "--memtable" => options.memtable_bytes = Some(arguments.number()),
                "--tsdb" => options.tsdb = arguments.text(),
                _ => arguments.unknown(),
            }
        }
        Some(options)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs()
}

/// The retention, and its file of rules.
struct Retention {
    load: Load,
    /// Seconds of points that all metrics keep, except for the last metric, which keeps half.
    kept_secs: u64,
    file: std::path::PathBuf,
}

impl Retention {
    /// Keeps this much before a time of the points, which is not the clock's.
    fn write(&self, time: u64) {
        let rule = |name: &str, kept: u64| {
            let hours = (now().saturating_sub(time) + kept).div_ceil(HOUR);
            format!("{name} {hours}h\n")
        };
        let short = rule(&metric(METRICS - 1), self.kept_secs / 2);
        let rules = short + &rule("steady.*", self.kept_secs);
        // Written to a new file, so that the daemon never reads half of it.
        let new = self.file.with_extension("new");
        fs::write(&new, rules).expect("a file");
        fs::rename(&new, &self.file).expect("a file");
    }

    /// Follows the time of the points until the run stops.
    fn follow(&self, complete: &(dyn Fn() -> u64 + Sync), stop: &AtomicBool) {
        let mut last = self.load.first;
        while !stop.load(SeqCst) {
            thread::sleep(Duration::from_millis(200));
            let time = complete();
            if time >= last + RETENTION_STEP {
                self.write(time);
                last = time;
            }
        }
    }
}

/// Counters at a row.
#[derive(Clone, Copy)]
struct Snapshot {
    at: Instant,
    points: u64,
    cpu_secs: f64,
    written: u64,
}

struct Report<'a> {
    daemon: &'a Daemon,
    data: &'a Path,
    started: Instant,
    last: Snapshot,
}

impl<'a> Report<'a> {
    fn start(daemon: &'a Daemon, data: &'a Path) -> Self {
        println!(
            "| minute | points/s | cpu-s per M points | RSS, its peak since the last row, MiB | files | on disk, log, MB \
             | written bytes a point | sections | days dropped | queries: number, median and slowest, ms | wrong | puts refused so far |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|"
        );
        let pid = daemon.pid();
        let at = Instant::now();
        let (cpu_secs, written) = (cpu_seconds(pid), written_bytes(pid));
        Self { daemon, data, started: at, last: Snapshot { at, points: 0, cpu_secs, written } }
    }

    fn row(&mut self, sent: &Sent, found: &Found) {
        let points = sent.points.load(SeqCst);
        let pid = self.daemon.pid();
        let metric = |name| tsd_testkit::metric(self.daemon.address(), name).unwrap_or_default();
        let at = Instant::now();
        let now = Snapshot { at, points, cpu_secs: cpu_seconds(pid), written: written_bytes(pid) };
        let of_row = (now.points - self.last.points).max(1) as f64;
        let mut times: Vec<Duration> = found.times.values().flatten().copied().collect();
        times.sort_unstable();
        let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        println!(
            "| {:.0} | {:.0} | {:.2} | {}, {} | {} | {:.0}, {:.0} | {:.1} | {} | {} | {}, {:.1}, {:.0} | {} | {} |",
            self.started.elapsed().as_secs_f64() / 60.0,
            of_row / (now.at - self.last.at).as_secs_f64(),
            (now.cpu_secs - self.last.cpu_secs) * 1e6 / of_row,
            resident_bytes(pid) >> 20,
            peak_resident_bytes(pid) >> 20,
            count_files(self.data),
            directory_bytes(self.data) as f64 / 1e6,
            metric("tsd_wal_log_bytes") / 1e6,
            (now.written - self.last.written) as f64 / of_row,
            metric("tsd_parts_sections"),
            metric("tsd_parts_retention_dropped_spans_total"),
            times.len(),
            ms(times.get(times.len() / 2)),
            ms(times.last()),
            found.errors.len(),
            sent.refused.load(SeqCst),
        );
        reset_peak(pid);
        self.last = now;
    }
}

/// The slowest and the median of each shape.
fn print_shapes(times: &std::collections::BTreeMap<&'static str, Vec<Duration>>) {
    println!(
        "\n| query | number | median, ms | 99th percentile | slowest |\n|---|---|---|---|---|"
    );
    for (shape, times) in times {
        let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let (median, late) = (ms[ms.len() / 2], ms[ms.len() * 99 / 100]);
        println!("| {shape} | {} | {median:.1} | {late:.1} | {:.1} |", ms.len(), ms[ms.len() - 1]);
    }
}

fn main() {
    let mut arguments = Arguments::of_process();
    let Some(options) = Options::parse(&mut arguments) else { return heavy::run(arguments) };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run_secs = options.minutes * 60.0;
    let speed = options.rate * load::STEP as f64 / options.series as f64;
    let length = ((run_secs * speed) as u64 / HOUR).max(3) * HOUR;
    // The last late points come an hour after the end.
    let end = (now() + run_secs as u64) / HOUR * HOUR - HOUR;
    let load = Load { series: options.series, rate: options.rate, first: end - length, end };
    let kept_secs = (length / 4).next_multiple_of(DAY);
    let retention = Retention { load, kept_secs, file: directory.path().join("retention") };
    retention.write(load.first);
    let data = directory.path().join("data");
    println!(
        "{:.0} points/s of {} series, {:.1} days of points, of which {} are kept",
        load.rate,
        load.series,
        length as f64 / DAY as f64,
        kept_secs / DAY
    );
    let mut daemon = DaemonBuilder::new(&options.tsdb, &data)
        .args(&["--log-level", "warn,tsd_cli=info"])
        .env("TSD_STORAGE_RETENTION", &format!("{}h", kept_secs / HOUR))
        .env("TSD_STORAGE_RETENTION_FILE", &retention.file.to_string_lossy());
    if let Some(bytes) = options.memtable_bytes {
        daemon = daemon.env("TSD_STORAGE_MEMTABLE_SIZE", &bytes.to_string());
    }
    let daemon = daemon.start();
    run(&options, &daemon, &data, &retention);
    assert!(daemon.terminate().success(), "a clean shutdown");
}

fn run(options: &Options, daemon: &Daemon, data: &Path, retention: &Retention) {
    let load = retention.load;
    let address = daemon.address();
    let (telnet, http) = (AtomicU64::new(load.first), AtomicU64::new(load.first));
    let complete = || telnet.load(SeqCst).min(http.load(SeqCst));
    let (sent, queries) = (Sent::default(), AtomicU64::new(0));
    let (stop, found) = (AtomicBool::new(false), Mutex::new(Found::default()));
    let readers = Readers {
        load,
        address,
        complete: &complete,
        kept_secs: retention.kept_secs / 2,
        found: &found,
        queries: &queries,
        stop: &stop,
    };
    let mut all = Found::default();
    let mut report = Report::start(daemon, data);
    // Takes the results of the readers since the last call.
    let mut take = || {
        let taken = std::mem::take(&mut *found.lock());
        for error in taken.errors.iter().take(5) {
            println!("{error}");
        }
        for (shape, times) in &taken.times {
            all.times.entry(shape).or_default().extend(times);
        }
        all.errors.extend_from_slice(&taken.errors);
        taken
    };
    thread::scope(|scope| {
        let senders = [
            scope.spawn(|| load.send(address, Transport::Telnet, &telnet, &sent)),
            scope.spawn(|| load.send(address, Transport::Http, &http, &sent)),
        ];
        for seed in 0..READERS {
            let readers = &readers;
            scope.spawn(move || readers.run(seed));
        }
        scope.spawn(|| retention.follow(&complete, &stop));
        let every = Duration::from_secs_f64(options.minutes * 60.0 / f64::from(ROWS));
        let mut next = Instant::now() + every;
        while !senders.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(100));
            if Instant::now() >= next {
                report.row(&sent, &take());
                next += every;
            }
        }
        stop.store(true, SeqCst);
    });
    // Only late points came since the last row.
    take();
    retention.write(load.end);
    wait_until_idle(daemon.pid());
    print_shapes(&all.times);
    assert!(all.errors.is_empty(), "{} answers failed or were wrong", all.errors.len());
    let kept = readers.check_all().expect("the points that are kept");
    println!(
        "{kept} points that all metrics keep are there; {} were written",
        sent.points.load(SeqCst)
    );
    for (number, kept) in [(0, retention.kept_secs), (METRICS - 1, retention.kept_secs / 2)] {
        // Whole days end before the cut-off; the rules are in hours.
        let before = load.end - kept - HOUR;
        let expired = wait_for(|| readers.is_expired(number, before).ok()?.then_some(()));
        assert!(expired.is_some(), "{} still has points before {before}", metric(number));
    }
    // The duration of a sync depends on the machine.
    let mut warnings = daemon.events_at_level("WARN");
    let all = warnings.len();
    let is_slow = |warning: &Value| {
        warning["message"].as_str().is_some_and(|text| text.starts_with("slow commit"))
    };
    warnings.retain(|warning| !is_slow(warning));
    println!("{} warnings that a commit was slow", all - warnings.len());
    assert!(warnings.is_empty(), "{} warnings, the first: {}", warnings.len(), warnings[0]);
}
