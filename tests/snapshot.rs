//! Tests `tsdb snapshot` and `tsdb restore` as processes: under load, killed, damaged, on a full
//! disk.

mod faults;
mod load;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tsd_testkit::{DaemonBuilder, http};

use crate::{TSDB, tsdb};

const FIRST_SECOND: u64 = 1_600_000_000;
/// Points of one request or connection; each has its own tag value.
const BATCH: u64 = 50;

/// On a memory file system if there is one: many small files are synced.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// Small memtables: many files, flushed soon.
fn daemon(data: &Path) -> DaemonBuilder {
    tsdb(data)
        .env("TSD_STORAGE_MEMTABLE_SIZE", "1048576")
        .env("TSD_STORAGE_LOG_SEGMENT_SIZE", "262144")
        .env("TSD_STORAGE_MEMTABLE_MAX_AGE", "1")
}

fn command(arguments: &[&str], data: &Path, path: &Path) -> Command {
    let mut command = Command::new(TSDB);
    command.args(arguments).arg("--data").args([data, path]).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str], data: &Path, path: &Path) -> Output {
    command(arguments, data, path).output().expect("run tsdb")
}

/// Runs a command that must succeed; returns its JSON.
#[track_caller]
fn json(arguments: &[&str], data: &Path, path: &Path) -> Value {
    let output = run(&[arguments, &["--json"]].concat(), data, path);
    assert!(output.status.success(), "{arguments:?} {}: {output:?}", path.display());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs a command that must be refused with exit status 1; returns its message.
#[track_caller]
fn refused(arguments: &[&str], data: &Path, path: &Path) -> String {
    let output = run(arguments, data, path);
    assert_eq!(output.status.code(), Some(1), "{arguments:?} {}: {output:?}", path.display());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn value(sender: u64, number: u64) -> u64 {
    let mixed = (sender * 1_000_003 + number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 34
}

/// Metric, second, value, and tags of a point. Each batch has a new tag value, so a new UID.
fn point(sender: u64, number: u64) -> (String, u64, u64, [(&'static str, String); 2]) {
    let tags = [("host", format!("h{}", number % 3)), ("job", format!("j{}", number / BATCH))];
    (format!("m{sender}"), FIRST_SECOND + number * 7, value(sender, number), tags)
}

/// The body of a put of one batch.
fn batch(sender: u64, batch: u64) -> String {
    let points = (batch * BATCH..(batch + 1) * BATCH).map(|number| {
        let (metric, second, value, [(host, h), (job, j)]) = point(sender, number);
        format!(
            r#"{{"metric":"{metric}","timestamp":{second},"value":{value},"tags":{{"{host}":"{h}","{job}":"{j}"}}}}"#
        )
    });
    format!("[{}]", points.collect::<Vec<_>>().join(","))
}

/// Puts batches of a sender; each must be acknowledged.
#[track_caller]
fn put(address: SocketAddr, sender: u64, batches: std::ops::Range<u64>) {
    for number in batches {
        let response = http(address, "POST", "/api/put", Some(&batch(sender, number)));
        assert_eq!(response.status, 204, "{}", response.body);
    }
}

/// The points of a sender that a query returns, by number, or its error. Every name must resolve.
fn query(address: SocketAddr, sender: u64) -> Result<BTreeMap<u64, u64>, String> {
    let (start, end) = (FIRST_SECOND - 1, FIRST_SECOND + 100_000_000);
    let uri = format!("/api/query?start={start}&end={end}&m=zimsum:m{sender}%7Bhost=*,job=*%7D");
    let response = http(address, "GET", &uri, None);
    if response.status != 200 {
        // Before the first batch of the sender, its metric has no UID.
        let is_new = response.body.contains("No such name for 'metrics'");
        return if is_new { Ok(BTreeMap::new()) } else { Err(response.body) };
    }
    let groups: Value = serde_json::from_str(&response.body).expect("JSON");
    let mut points = BTreeMap::new();
    for group in groups.as_array().expect("groups") {
        for (second, value) in group["dps"].as_object().expect("points") {
            let second: u64 = second.parse().expect("a second");
            let number = (second - FIRST_SECOND) / 7;
            let (_, _, _, [(_, host), (_, job)]) = point(sender, number);
            assert_eq!(
                (&group["tags"]["host"], &group["tags"]["job"]),
                (&host.into(), &job.into())
            );
            points.insert(number, value.as_f64().expect("a number") as u64);
        }
    }
    Ok(points)
}

/// Checks that a store has all acknowledged batches, a prefix of later batches, and at most a
/// fraction of the batch in flight. Returns the number of complete batches.
#[track_caller]
fn check_prefix(address: SocketAddr, sender: u64, acknowledged: u64) -> u64 {
    let points = query(address, sender).expect("points");
    for (number, found) in &points {
        assert_eq!(*found, value(sender, *number), "sender {sender}, point {number}");
    }
    let of_batch = |batch: u64| points.range(batch * BATCH..(batch + 1) * BATCH).count() as u64;
    let whole =
        (0..=points.len() as u64).take_while(|batch| of_batch(*batch) == BATCH).count() as u64;
    assert!(whole >= acknowledged, "sender {sender}: {whole} batches, {acknowledged} acknowledged");
    let beyond: BTreeSet<u64> =
        points.range(whole * BATCH..).map(|(number, _)| number / BATCH).collect();
    assert!(
        beyond.is_empty() || beyond == BTreeSet::from([whole]),
        "sender {sender}: {whole} whole batches, then points of {beyond:?}"
    );
    whole
}

/// All files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
