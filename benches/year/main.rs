//! Measures a store that grows for a year, in minutes: write amplification with age, start-up, and
//! the removal of old data.
//!
//! ```text
//! cargo bench --bench year -- [--days N] [--series N] [--step SECONDS] [--memtable BYTES]
//! ```
//!
//! The daemon's clock advances a day with each day of points, so that days end, merge and age as in
//! reality. The memtable is small, so that a day has some dozens of flushes, like a day of a real
//! load. Points come in time order; one in thirty is a day late. Afterwards the count and the sum
//! of all points are compared with the written points. Then the daemon is killed, started, and
//! started again with a retention that expires a month.
//!
//! Left out: a load that keeps the machine busy (`ingest`), and queries meanwhile.

#![expect(clippy::expect_used, reason = "a bench may panic")]

mod load;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use load::{YearLoad, day_start};
use serde_json::Value;
use tsd_testkit::{
    Arguments, Daemon, DaemonBuilder, ProcessClock,
    process::{
        count_files, cpu_seconds, directory_bytes, resident_bytes, wait_until_idle, written_bytes,
    },
    timed_http::{self, BodyUse},
    wait_for,
};

const DAY: u64 = 86_400;
/// Days between two lines.
const REPORT_DAYS: u64 = 30;
/// Days that the retention expires at the end.
const EXPIRED_DAYS: u64 = 30;

struct Options {
    load: YearLoad,
    memtable_bytes: u64,
}

impl Options {
    fn parse() -> Self {
        let load = YearLoad { days: 365, series: 200, step_secs: 60 };
        let mut options = Self { load, memtable_bytes: 1 << 20 };
        let mut arguments = Arguments::of_process();
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--bench" => {}
                "--days" => options.load.days = arguments.number(),
                "--series" => options.load.series = arguments.number(),
                "--step" => options.load.step_secs = arguments.number(),
                "--memtable" => options.memtable_bytes = arguments.number(),
                _ => arguments.unknown(),
            }
        }
        options
    }
}

/// A store with its clock and the settings of its daemon.
struct Year {
    options: Options,
    directory: tempfile::TempDir,
    clock: ProcessClock,
}

impl Year {
    fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    fn start(&self, retention: Option<&str>) -> Daemon {
        let mut daemon = DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), &self.data())
            .args(&["--log-level", "warn,tsd_cli=info"])
            .env("TSD_STORAGE_MEMTABLE_SIZE", &self.options.memtable_bytes.to_string());
        if let Some(retention) = retention {
            daemon = daemon
                .env("TSD_STORAGE_RETENTION", retention)
                // The clock is correct after a pause without points.
                .env("TSD_STORAGE_ACCEPT_CLOCK", "true");
        }
        self.clock.apply(daemon).start()
    }

    /// Sets the clock to a time, epoch seconds.
    fn set_time(&self, secs: u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
        self.clock.set_offset(secs.cast_signed() - now.cast_signed());
    }
}

/// Metrics of the bytes that the store has written, by writer.
const WRITTEN: [&str; 3] = [
    "tsd_wal_written_bytes_total",
    "tsd_parts_flushed_bytes_total",
    "tsd_parts_merged_bytes_total",
];

/// The sum of all metrics with this name.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    tsd_testkit::metric(daemon.address(), name).unwrap_or_default()
}

/// The single value of a query over all series and a range.
fn total(daemon: &Daemon, function: &str, from: u64, to: u64) -> f64 {
    let uri = format!("/api/query?start={from}&end={to}&m=sum:0all-{function}:{}", load::METRIC);
    let response = timed_http::get(daemon.address(), &uri, BodyUse::Keep);
    let body: Value = serde_json::from_slice(&response.body).expect("JSON");
    let Some(series) = body.as_array().unwrap_or_else(|| panic!("{body}")).first() else {
        return 0.0;
    };
    series["dps"].as_object().expect("points").values().filter_map(Value::as_f64).sum()
}

fn check(daemon: &Daemon, load: &YearLoad, from_day: u64) {
    // `0all` leaves out the end.
    let (from, to) = (day_start(from_day), day_start(load.days) + 1);
    let (count, sum) = load.totals(from_day);
    assert!((total(daemon, "count", from, to) - count).abs() < 0.5, "the count of all points");
    assert!((total(daemon, "sum", from, to) - sum).abs() < 0.5, "the sum of all points");
}

fn main() {
    let options = Options::parse();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = match ProcessClock::prepare(directory.path()) {
        Ok(clock) => clock,
        Err(error) => {
            println!("skipped: the clock of the daemon cannot be set: {error}");
            return;
        }
    };
    let year = Year { options, directory, clock };
    let load = &year.options.load;
    println!(
        "{} series, a point every {} s, {} days: {} million points",
        load.series,
        load.step_secs,
        load.days,
        load.totals(0).0 / 1e6
    );
    year.set_time(day_start(0));
    let daemon = year.start(None);
    grow(&year, &daemon);
    check(&daemon, load, 0);
    daemon.kill();
    restart(&year);
    expire(&year);
}

/// Writes day after day.
fn grow(year: &Year, daemon: &Daemon) {
    let load = &year.options.load;
    println!(
        "| days | written bytes a point | of the last {REPORT_DAYS} days | to the log, by flushes, by merges \
         | on disk, bytes a point | files | cpu-s per M points, of these days | RSS, MiB |\n|---|---|---|---|---|---|---|---|"
    );
    let (mut points, mut last) = (0_u64, (0_u64, 0_u64, 0.0_f64));
    for day in 0..load.days {
        points += load.write_day(day, daemon.address(), &mut |secs| year.set_time(secs));
        if (day + 1) % REPORT_DAYS != 0 && day + 1 != load.days {
            continue;
        }
        wait_until_idle(daemon.pid());
        let now = (points, written_bytes(daemon.pid()), cpu_seconds(daemon.pid()));
        let of_days = (now.0 - last.0).max(1) as f64;
        println!(
            "| {} | {:.1} | {:.1} | {} | {:.2} | {} | {:.2} | {} |",
            day + 1,
            now.1 as f64 / points as f64,
            (now.1 - last.1) as f64 / of_days,
            WRITTEN.map(|name| format!("{:.1}", metric(daemon, name) / points as f64)).join(", "),
            directory_bytes(&year.data()) as f64 / points as f64,
            count_files(&year.data()),
            (now.2 - last.2) * 1e6 / of_days,
            resident_bytes(daemon.pid()) >> 20
        );
        last = now;
    }
}

/// Measures the start after a kill.
fn restart(year: &Year) {
    let load = &year.options.load;
    let began = Instant::now();
    let daemon = year.start(None);
    let serving = began.elapsed();
    let first = Instant::now();
    let from = day_start(load.days.saturating_sub(1));
    let _ = total(&daemon, "count", from, from + DAY);
    println!(
        "start after SIGKILL: serving after {:.2} s, {:.2} cpu-s; first query of a day {:.0} ms; RSS {} MiB",
        serving.as_secs_f64(),
        cpu_seconds(daemon.pid()),
        first.elapsed().as_secs_f64() * 1e3,
        resident_bytes(daemon.pid()) >> 20
    );
    check(&daemon, load, 0);
    assert!(daemon.terminate().success(), "a clean shutdown");
}

/// Measures a retention that expires the first days.
fn expire(year: &Year) {
    let load = &year.options.load;
    if load.days <= EXPIRED_DAYS {
        return;
    }
    let before = directory_bytes(&year.data());
    year.set_time(day_start(load.days));
    let keep = format!("{}d", load.days - EXPIRED_DAYS);
    let began = Instant::now();
    let daemon = year.start(Some(&keep));
    let serving = began.elapsed();
    let dropping = Instant::now();
    let dropped = wait_for(|| {
        let spans = metric(&daemon, "tsd_parts_retention_dropped_spans_total");
        (spans >= EXPIRED_DAYS as f64).then_some(spans)
    });
    let dropped = dropped.expect("expired days are dropped");
    println!(
        "retention of {keep}: serving after {:.2} s, {dropped} days dropped {:.2} s later, {:.3} cpu-s in all; \
         {:.0} of {:.0} MB freed",
        serving.as_secs_f64(),
        dropping.elapsed().as_secs_f64(),
        cpu_seconds(daemon.pid()),
        before.saturating_sub(directory_bytes(&year.data())) as f64 / 1e6,
        before as f64 / 1e6
    );
    check(&daemon, load, EXPIRED_DAYS);
    assert!(total(&daemon, "count", day_start(0), day_start(EXPIRED_DAYS)) < 0.5);
    assert!(daemon.terminate().success(), "a clean shutdown");
}
