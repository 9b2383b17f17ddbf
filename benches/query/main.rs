//! Queries over HTTP against a daemon of its own process: averages of a day, raw points by the
//! million, and what small queries feel meanwhile.
//!
//! ```text
//! cargo bench --bench query -- [--quick] [--series N] [--hours N] [--runs N] [--data DIR]
//! ```
//!
//! Points of both kinds are written through the daemon, and each answer is compared with one that
//! is computed here. A day is asked for in three states: as it was just written (part of it in the
//! memtable, nothing compacted), after a restart (all in the tree, rows still in pieces), and after
//! row compaction and another restart; the first time of each state is with nothing in the cache. `--data` keeps the directory, or uses one that was kept; `--quick` is a small
//! run that shows nothing but that it works.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may stop")]

mod client;
#[path = "../../tests/daemon.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod daemon;
mod day;
mod process;
mod raw;

use std::{env, fs, path::PathBuf, time::Duration};

use client::Body;
use daemon::{Daemon, Start};
use day::{BUCKET_SECS, Day, FIRST_SECOND, Kind};
use serde_json::Value;

/// What is asked for on the command line.
struct Options {
    day: Day,
    runs: usize,
    raw_points: usize,
    data: Option<PathBuf>,
}

fn main() {
    let options = Options::parse();
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
        averages(&daemon, &options, "written");
        assert!(daemon.terminate().success(), "a clean end");
        let daemon = start(&directory, false);
        process::wait_until_idle(daemon.pid());
        averages(&daemon, &options, "in pieces");
        assert!(daemon.terminate().success(), "a clean end");
        let daemon = start(&directory, true);
        for kind in Kind::ALL {
            client::get(daemon.address(), &averages_uri(day, kind), Body::Drop);
            process::wait_until_idle(daemon.pid());
        }
        assert!(daemon.terminate().success(), "a clean end");
        fs::write(directory.join("WRITTEN"), "").expect("mark");
    }
    let daemon = start(&directory, true);
    process::wait_until_idle(daemon.pid());
    averages(&daemon, &options, "compacted");
    assert!(daemon.terminate().success(), "a clean end");
    raw::run(|| start(&directory, true), day, options.raw_points);
}

fn start(directory: &std::path::Path, compacts: bool) -> Daemon {
    let on_read = if compacts { "true" } else { "false" };
    Start::on(directory)
        .args(&["--log-level", "warn,tsd_cli=info"])
        .env("TSD_STORAGE_COMPACTION_ON_READ", on_read)
        .env("TSD_STORAGE_ENABLE_COMPACTION", on_read)
        .serve()
}

fn averages_uri(day: Day, kind: Kind) -> String {
    let (metric, end) = (kind.metric(), day.last_second());
    let minutes = BUCKET_SECS / 60;
    format!("/api/query?start={FIRST_SECOND}&end={end}&m=avg:{minutes}m-avg:{metric}{{host=*}}")
}

/// Asks for the averages of the day by host, several times.
fn averages(daemon: &Daemon, options: &Options, state: &str) {
    let day = options.day;
    for kind in Kind::ALL {
        let uri = averages_uri(day, kind);
        let answer = client::get(daemon.address(), &uri, Body::Keep);
        verify(day, kind, &answer);
        let before = process::cpu_seconds(daemon.pid());
        let mut walls: Vec<Duration> = (0..options.runs)
            .map(|_| {
                let timed = client::get(daemon.address(), &uri, Body::Drop);
                assert_eq!(timed.bytes, answer.bytes, "the same answer each time");
                timed.whole
            })
            .collect();
        let cpu = (process::cpu_seconds(daemon.pid()) - before) / options.runs as f64;
        walls.sort_unstable();
        let millis = |at: usize| walls[at].as_secs_f64() * 1e3;
        let millions = day.points() as f64 / 1e6;
        println!(
            "{state:<10} {:<15} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.4} {:>10.1} {:>9}   all right",
            kind.metric(),
            answer.whole.as_secs_f64() * 1e3,
            millis(0),
            millis(walls.len() / 2),
            millis(walls.len() - 1),
            cpu / millions,
            millions / walls[0].as_secs_f64(),
            answer.bytes,
        );
    }
}

/// Compares every average with one that was computed here.
fn verify(day: Day, kind: Kind, answer: &client::Timed) {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let all: Value = serde_json::from_slice(&answer.body).expect("JSON");
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

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            day: Day { series: 1_000, steps: 8_640 },
            runs: 11,
            raw_points: 5_000_000,
            data: None,
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
                    options.runs = 2;
                    options.raw_points = 20_000;
                }
                "--series" => options.day.series = number(),
                "--hours" => options.day.steps = number() * 360,
                "--runs" => options.runs = number(),
                "--data" => options.data = words.next().map(PathBuf::from),
                // What cargo says to every bench.
                "--bench" => {}
                _ => panic!("unknown option {word}"),
            }
        }
        options
    }
}
