//! Puts points of every valid time at once, from 1970 to 2106: the daemon stores and reads them
//! with few files and bounded memory.

use std::{fmt::Write as _, path::Path};

use tsd_testkit::{Daemon, exchange, http, process::peak_resident_bytes};

use crate::damage::{all_files, daemon, directory, metric_value};

/// Days from 1970 to the last whole one of 32-bit seconds.
const DAYS: u64 = 49_710;
const STEP: usize = 5;
const SERIES: u64 = 2;
const ROUNDS: u64 = 3;
/// All bytes of a daemon built for tests.
const MOST_BYTES: u64 = 512 << 20;
const MOST_FILES: usize = 64;

/// Sends a point of each series on each day, and expects no complaint.
fn put_all(running: &Daemon, round: u64) {
    let mut lines = String::new();
    for day in (0..DAYS).step_by(STEP) {
        let time = day * 86_400 + 1 + (day * 7_919 + round * 1_009) % 86_000;
        for series in 0..SERIES {
            writeln!(lines, "put all.times {time} {round} host=h{series}").expect("a string");
        }
    }
    lines.push_str("exit\n");
    let answer = exchange(running.address(), lines.as_bytes());
    assert_eq!(String::from_utf8_lossy(&answer), "");
}

/// The number of points of a series, by a query over all times.
fn count(running: &Daemon, filter: &str) -> f64 {
    let uri = format!("/api/query?start=1&end=4294967295&m=sum:0all-count:all.times{filter}");
    let response = http(running.address(), "GET", &uri, None);
    assert_eq!(response.status, 200, "{}", response.body);
    let json: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    let values = json[0]["dps"].as_object().expect("points").values();
    values.map(|value| value.as_f64().expect("a number")).sum()
}

fn check(running: &Daemon, data: &Path, what: &str) {
    let points = (DAYS.div_ceil(STEP as u64) * ROUNDS) as f64;
    assert!((count(running, "") - points * SERIES as f64).abs() < 0.5, "{what}");
    assert!((count(running, "%7Bhost=h1%7D") - points).abs() < 0.5, "{what}");
    let mut files = Vec::new();
    all_files(data, "", &mut files);
    assert!(files.len() < MOST_FILES, "{what}: {files:?}");
    let peak = peak_resident_bytes(running.pid());
    println!("all times: {what}: peak {} MiB, {} files", peak >> 20, files.len());
    assert!(peak < MOST_BYTES, "{what}: {peak} bytes");
}

#[test]
fn points_from_1970_to_2106_are_accepted_and_read() {
    let directory = directory();
    let data = directory.path();
    let start = || daemon(data).env("TSD_STORAGE_MEMTABLE_SIZE", "2097152").start();
    let running = start();
    for round in 0..ROUNDS {
        put_all(&running, round);
    }
    check(&running, data, "written");
    running.kill();
    let running = start();
    check(&running, data, "after a kill");
    assert!(running.terminate().success());
    let running = start();
    check(&running, data, "flushed");
    assert!(running.terminate().success());
}

/// The last milliseconds that a row key can have.
const LAST_MS: [u64; 2] = [4_294_967_295_000, 4_294_967_295_999];
/// Milliseconds beyond 32-bit seconds.
const BEYOND_MS: [u64; 4] =
    [4_294_967_296_000, 4_294_969_199_999, 4_294_969_200_000, 9_999_999_999_999];

#[test]
fn the_last_milliseconds_survive_flushes_and_merges_and_later_ones_are_refused() {
    let directory = directory();
    let data = directory.path();
    let check = |running: &Daemon, what: &str| {
        let quarantined = metric_value(running.address(), "tsd_parts_quarantined_files");
        assert_eq!(quarantined, 0, "{what}");
        for (i, at) in LAST_MS.iter().enumerate() {
            let uri =
                format!("/api/query?start={at}&end={}&m=sum:beyond%7Bhost=h{i}%7D&ms", at + 1);
            let response = http(running.address(), "GET", &uri, None);
            assert!(
                response.body.contains(&format!("\"{at}\":{i}")),
                "{what}: {uri}: {}",
                response.body
            );
        }
    };
    for round in 0..3 {
        let running = daemon(data).start();
        for at in BEYOND_MS {
            let reply =
                exchange(running.address(), format!("put beyond {at} 1 host=h\nexit\n").as_bytes());
            assert!(String::from_utf8_lossy(&reply).contains("2106-02-07"), "{at}: {reply:?}");
        }
        for (i, at) in LAST_MS.iter().enumerate() {
            let line = format!(
                "put beyond {at} {i} host=h{i}\nput beyond {} 5 host=h{i}\nexit\n",
                1_000 + round
            );
            assert_eq!(String::from_utf8_lossy(&exchange(running.address(), line.as_bytes())), "");
        }
        check(&running, "written");
        assert!(running.terminate().success());
        let running = daemon(data).start();
        check(&running, "flushed");
        assert!(running.terminate().success());
    }
}
