//! The set `states`: averages of a day in each state of its files, and millions of raw points.
//!
//! Points of both kinds are written through the daemon, and each result is compared with a computed
//! one. A day is queried in three states: just written (partly in the memtable, nothing compacted),
//! after a restart (all flushed, rows not compacted), and after row compaction and another restart.
//! The first query of each state has a cold cache. `--data` keeps the directory, or uses a kept one.

mod raw;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tsd_testkit::{
    Daemon, DaemonBuilder,
    day_load::{BUCKET_SECS, DayLoad, FIRST_SECOND, ValueKind},
    process,
    timed_http::{self, BodyUse, TimedResponse},
};

/// Options of the set.
pub(crate) struct StatesOptions {
    pub(crate) day: DayLoad,
    pub(crate) runs: usize,
    pub(crate) raw_points: usize,
    pub(crate) data: Option<PathBuf>,
}

/// Measures the averages in each state, then the raw points.
pub(crate) fn run(options: &StatesOptions) {
    let day = options.day;
    let temporary = tempfile::tempdir().expect("temporary directory");
    let directory = options.data.clone().unwrap_or_else(|| temporary.path().join("data"));
    println!("{} series, {} points of each kind", day.series, day.points());
    println!(
        "{:<10} {:<15} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9}",
        "state",
        "metric",
        "first ms",
        "best ms",
        "median",
        "worst",
        "cpu-s/M",
        "M points/s",
        "bytes"
    );
    if !directory.join("WRITTEN").exists() {
        let daemon = start(&directory, false);
        day.write(daemon.address());
        averages(&daemon, options, "written");
        assert!(daemon.terminate().success(), "a clean shutdown");
        let daemon = start(&directory, false);
        process::wait_until_idle(daemon.pid());
        averages(&daemon, options, "in pieces");
        assert!(daemon.terminate().success(), "a clean shutdown");
        let daemon = start(&directory, true);
        for kind in ValueKind::ALL {
            let _ = timed_http::get(daemon.address(), &averages_uri(day, kind), BodyUse::Discard);
            process::wait_until_idle(daemon.pid());
        }
        assert!(daemon.terminate().success(), "a clean shutdown");
        fs::write(directory.join("WRITTEN"), "").expect("mark");
    }
    let daemon = start(&directory, true);
    process::wait_until_idle(daemon.pid());
    averages(&daemon, options, "compacted");
    assert!(daemon.terminate().success(), "a clean shutdown");
    raw::run(|| start(&directory, true), day, options.raw_points);
}

fn start(directory: &Path, compacts: bool) -> Daemon {
    let on_read = if compacts { "true" } else { "false" };
    DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), directory)
        .args(&["--log-level", "warn,tsd_cli=info"])
        .env("TSD_QUERY_CACHE_SIZE", "0")
        .env("TSD_STORAGE_COMPACTION_ON_READ", on_read)
        .env("TSD_STORAGE_ENABLE_COMPACTION", on_read)
        .start()
}

fn averages_uri(day: DayLoad, kind: ValueKind) -> String {
    let (metric, end) = (kind.metric(), day.last_second());
    let minutes = BUCKET_SECS / 60;
    format!("/api/query?start={FIRST_SECOND}&end={end}&m=avg:{minutes}m-avg:{metric}{{host=*}}")
}

/// Queries the averages of the day by host, several times.
fn averages(daemon: &Daemon, options: &StatesOptions, state: &str) {
    let day = options.day;
    for kind in ValueKind::ALL {
        let uri = averages_uri(day, kind);
        let response = timed_http::get(daemon.address(), &uri, BodyUse::Keep);
        verify(day, kind, &response);
        let before = process::thread_cpu_seconds(daemon.pid());
        let mut walls: Vec<Duration> = (0..options.runs)
            .map(|_| {
                let timed = timed_http::get(daemon.address(), &uri, BodyUse::Discard);
                assert_eq!(timed.bytes, response.bytes, "the same response each time");
                timed.total
            })
            .collect();
        let cpu = (process::thread_cpu_seconds(daemon.pid()) - before) / options.runs as f64;
        walls.sort_unstable();
        let millis = |at: usize| walls[at].as_secs_f64() * 1e3;
        let millions = day.points() as f64 / 1e6;
        println!(
            "{state:<10} {:<15} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.4} {:>10.1} {:>9}   all right",
            kind.metric(),
            response.total.as_secs_f64() * 1e3,
            millis(0),
            millis(walls.len() / 2),
            millis(walls.len() - 1),
            cpu / millions,
            millions / walls[0].as_secs_f64(),
            response.bytes,
        );
    }
}

/// Compares every average with a computed one.
fn verify(day: DayLoad, kind: ValueKind, response: &TimedResponse) {
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
    let all: Value = serde_json::from_slice(&response.body).expect("JSON");
    let all = all.as_array().expect("an array");
    assert_eq!(all.len(), day.series);
    for series in all {
        let host = series["tags"]["host"].as_str().expect("a host");
        let number = host.trim_start_matches("host").parse().expect("its number");
        let points = series["dps"].as_object().expect("points");
        let expected = day.averages(kind, number);
        assert_eq!(points.len(), expected.len(), "{host}");
        for ((time, value), (second, average)) in points.iter().zip(&expected) {
            assert_eq!(*time, second.to_string(), "{host}");
            let value = value.as_f64().expect("a number");
            assert_eq!(value.to_bits(), average.to_bits(), "{host} at {time}: {value}");
        }
    }
}
