//! Tests damaged store files under a daemon: rejected requests, continued service, and the repair.

mod left;

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tsd_testkit::{
    Daemon, DaemonBuilder, ProcessDisk, Xorshift64, http, http_binary, metric, wait_for,
};

use crate::{TSDB, report, tsdb};

const FIRST_SECOND: u64 = 1_600_000_000;
pub(crate) const METRICS: u64 = 12;
/// Points of a metric per round: hours of several rows.
pub(crate) const POINTS: u64 = 600;

pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// Small memtables: many files, flushed soon.
pub(crate) fn daemon(data: &Path) -> DaemonBuilder {
    tsdb(data)
        .env("TSD_STORAGE_MEMTABLE_SIZE", "1048576")
        .env("TSD_STORAGE_LOG_SEGMENT_SIZE", "262144")
        .env("TSD_STORAGE_MEMTABLE_MAX_AGE", "1")
}

fn value(metric: u64, at: u64) -> u64 {
    // Not compressible, so that a part has several blocks.
    let mixed = (metric * 1_000_003 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 34
}

/// Puts the points `from..to` of a metric, one a minute; returns the status.
pub(crate) fn put(address: SocketAddr, metric: u64, from: u64, to: u64) -> u16 {
    let points: Vec<_> = (from..to)
        .map(|at| {
            let (second, value) = (FIRST_SECOND + at * 60, value(metric, at));
            format!(
                r#"{{"metric":"m{metric}","timestamp":{second},"value":{value},"tags":{{"host":"h{}"}}}}"#,
                at % 3
            )
        })
        .collect();
    http(address, "POST", "/api/put", Some(&format!("[{}]", points.join(",")))).status
}

/// The points of a metric that a query returns, or its error.
pub(crate) fn query(address: SocketAddr, metric: u64) -> Result<BTreeMap<u64, u64>, String> {
    let end = FIRST_SECOND + 100_000_000;
    let uri = format!("/api/query?start={}&end={end}&m=zimsum:m{metric}", FIRST_SECOND - 1);
    let response = http(address, "GET", &uri, None);
    if response.status != 200 {
        return Err(response.body);
    }
    let json: Value = serde_json::from_str(&response.body).expect("JSON");
    let Some(dps) = json[0]["dps"].as_object() else { return Ok(BTreeMap::new()) };
    let point = |(second, value): (&String, &Value)| {
        let second: u64 = second.parse().expect("a second");
        ((second - FIRST_SECOND) / 60, value.as_f64().expect("a number") as u64)
    };
    Ok(dps.iter().map(point).collect())
}

pub(crate) fn expected(metric: u64, count: u64) -> BTreeMap<u64, u64> {
    (0..count).map(|at| (at, value(metric, at))).collect()
}

/// Queries every metric: each answer is exact, or an error that `names` accepts. Returns the number
/// of errors.
#[track_caller]
fn check_answers(
    address: SocketAddr,
    count: u64,
    names: impl Fn(&str) -> bool,
    context: &str,
) -> u64 {
    let mut errors = 0;
    for metric in 0..METRICS {
        match query(address, metric) {
            Ok(points) => assert_eq!(points, expected(metric, count), "{context}: m{metric}"),
            Err(error) => {
                assert!(names(&error), "{context}: m{metric}: {error}");
                errors += 1;
            }
        }
    }
    errors
}

pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// A gauge as an integer; 0 if the daemon does not report it.
pub(crate) fn metric_value(address: SocketAddr, name: &str) -> u64 {
    metric(address, name).unwrap_or_default() as u64
}

fn quarantine(data: &Path, arguments: &[&str]) -> Output {
    let data = data.to_str().expect("a path");
    Command::new(TSDB)
        .args(["quarantine"])
        .args(arguments)
        .args(["--data", data])
        .stdin(Stdio::null())
        .output()
        .expect("run tsdb")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Flip,
    Truncate,
    Remove,
}

impl Fault {
    fn apply(self, path: &Path) {
        let mut bytes = fs::read(path).expect("a file");
        match self {
            Self::Flip => {
                let at = bytes.len() / 3;
                bytes[at] ^= 0x20;
                fs::write(path, bytes).expect("write");
            }
            Self::Truncate => {
                bytes.truncate(bytes.len() / 2);
                fs::write(path, bytes).expect("write");
            }
            Self::Remove => fs::remove_file(path).expect("remove"),
        }
    }
}

/// Part files of the data table.
pub(crate) fn part_files(data: &Path) -> Vec<PathBuf> {
    let mut parts = files(&data.join("store/points/t.tsdb"));
    parts.retain(|path| path.extension().is_some_and(|extension| extension == "part"));
    parts
}

/// A daemon whose metrics have `POINTS` points each, in a part; returns that file.
pub(crate) fn populated(data: &Path) -> (Daemon, PathBuf) {
    let running = daemon(data).start();
    for metric in 0..METRICS {
        assert_eq!(put(running.address(), metric, 0, POINTS), 204);
    }
    let mut before = Vec::new();
    let merged = || {
        let idle = metric_value(running.address(), "tsd_wal_memtable_rows") == 0;
        let files = part_files(data);
        let is_settled = idle && !files.is_empty() && before == files;
        before.clone_from(&files);
        std::thread::sleep(Duration::from_millis(700));
        is_settled.then_some(files)
    };
    let files = wait_for(merged).expect("a flush");
    let largest = files.into_iter().max_by_key(|path| fs::metadata(path).map_or(0, |m| m.len()));
    (running, largest.expect("a file"))
}

/// Damages a store file while the daemon runs, or after SIGKILL, and checks everything.
fn check_fault(fault: Fault, while_running: bool) {
    let context = format!("{fault:?}, running: {while_running}");
    let dir = directory();
    let data = dir.path().join("data");
    let (mut running, file) = populated(&data);
    let name = format!("t.tsdb/{}", file.file_name().expect("a name").to_string_lossy());
    if while_running {
        fault.apply(&file);
    } else {
        running.kill();
        fault.apply(&file);
        running = daemon(&data).start();
    }
    let names = |error: &str| error.contains(&name);
    let mut count = POINTS;
    let errors = check_answers(running.address(), count, names, &context);
    // A removed file is read through its open descriptor until it is compacted or the next start.
    let is_open = while_running && matches!(fault, Fault::Remove);
    assert!(errors > 0 || is_open, "{context}: the damage was not noticed");
    // Writes, flushes and compactions go on.
    for _ in 0..10 {
        for metric in 0..METRICS {
            assert_eq!(put(running.address(), metric, count, count + 50), 204, "{context}");
        }
        count += 50;
        std::thread::sleep(Duration::from_millis(300));
    }
    let address = running.address();
    wait_for(|| {
        (metric_value(address, "tsd_wal_memtable_rows") == 0
            && (is_open || metric_value(address, "tsd_parts_quarantined_files") == 1)
            && metric_value(address, "tsd_parts_span_sections") < 9)
            .then_some(())
    })
    .unwrap_or_else(|| panic!("{context}: flush, merge or quarantine is stuck"));
    check_answers(address, count, |error| names(error) && error.contains("quarantine"), &context);
    if is_open {
        running.kill();
        running = daemon(&data).start();
    }
    let address = running.address();
    // Named by status, readiness, metrics and log.
    let status = http(address, "GET", "/api/status", None).body;
    assert!(status.contains(&name) && status.contains("partial"), "{context}: {status}");
    let ready = http(address, "GET", "/api/health/ready", None);
    assert!(ready.status == 200 && ready.body.contains(&name), "{context}: {ready:?}");
    assert!(metric_value(address, r#"tsd_health_problem{part="data"}"#) >= 2, "{context}");
    let log = running.events_at_level("ERROR");
    assert!(log.iter().any(|event| event.to_string().contains(&name)), "{context}: {log:?}");

    running.kill();
    let part = DamagedPart { name: &name, is_flip: matches!(fault, Fault::Flip) };
    check_acceptance(&data, &part, count, while_running, &context);
}

struct DamagedPart<'a> {
    name: &'a str,
    is_flip: bool,
}

/// Checks that a restart succeeds, and that the operator sees and accepts the loss, through the daemon or on
/// the directory.
fn check_acceptance(
    data: &Path,
    part: &DamagedPart<'_>,
    count: u64,
    by_daemon: bool,
    context: &str,
) {
    let DamagedPart { name, is_flip } = *part;
    let running = daemon(data).start();
    let address = running.address();
    check_answers(address, count, |error| error.contains(name), context);
    // Every remaining part is in the manifest.
    let live = || {
        (part_files(data).len() as u64 == metric_value(address, "tsd_parts_files")).then_some(())
    };
    wait_for(live).unwrap_or_else(|| panic!("{context}: {:?}", part_files(data)));

    // The operator sees and accepts the loss, through the daemon.
    let list = quarantine(data, &["list"]);
    let listed = text(&list.stdout);
    assert!(list.status.success(), "{list:?}");
    let number = name.strip_prefix("t.tsdb/").and_then(|name| name.strip_suffix(".part"));
    let number: u64 = number.and_then(|number| number.parse().ok()).expect("a number");
    let part = format!("t.tsdb-{number}");
    assert!(listed.contains(&part) && listed.contains("  lost   "), "{listed}");
    assert!(listed.contains(&format!("tsdb quarantine accept {part}")), "{listed}");
    let json: Value =
        serde_json::from_slice(&quarantine(data, &["list", "--json"]).stdout).expect("JSON");
    assert_eq!((&json[0]["name"], &json[0]["loss"]), (&part.as_str().into(), &true.into()));
    // The extent of the loss: a flipped byte loses some points; for other damage it is unknown.
    let extent = &json[0]["extent"];
    assert_eq!(extent.is_object(), is_flip, "{context}: {extent}");
    let lost = extent["points"].as_u64();
    if let Some(lost) = lost {
        assert!(lost > 0 && lost < extent["allPoints"].as_u64().expect("a number"), "{extent}");
        assert!(listed.contains("the rest stays"), "{listed}");
    }
    let unknown = quarantine(data, &["accept", "t.tsdb-x", "--yes"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    let unasked = quarantine(data, &["accept", &part]);
    assert_eq!(unasked.status.code(), Some(1), "{unasked:?}");
    assert!(text(&unasked.stderr).contains("--yes"), "{unasked:?}");
    let accepted = if by_daemon {
        quarantine(data, &["accept", &part, "--yes"])
    } else {
        // The same on the directory, without a daemon.
        assert!(running.terminate().success());
        let accepted = quarantine(data, &["accept", "--all", "--yes"]);
        let left = quarantine(data, &["list", "--json"]);
        assert_eq!(text(&left.stdout).trim(), "[]", "{left:?}");
        check_accepted(&daemon(data).start(), count, lost, context);
        return assert!(accepted.status.success(), "{accepted:?}");
    };
    assert!(accepted.status.success(), "{accepted:?}");
    check_accepted(&running, count, lost, context);
    assert!(running.terminate().success());
}

/// Checks that every query succeeds. Points are missing, in the listed number if one was listed; no point is
/// wrong, and new points are present.
fn check_accepted(running: &Daemon, count: u64, lost: Option<u64>, context: &str) {
    let address = running.address();
    let mut missing = 0;
    for metric in 0..METRICS {
        let points = query(address, metric).unwrap_or_else(|error| panic!("{context}: {error}"));
        let expected = expected(metric, count);
        missing += expected.len() - points.len();
        for (at, value) in points {
            assert_eq!(expected.get(&at), Some(&value), "{context}: m{metric} at {at}");
        }
    }
    assert!(missing > 0, "{context}");
    assert_eq!(missing as u64, lost.unwrap_or(missing as u64), "{context}");
    let status = http(address, "GET", "/api/status", None).body;
    assert!(status.contains(r#""status":"ok""#), "{context}: {status}");
    assert_eq!(metric_value(address, "tsd_parts_quarantined_files"), 0, "{context}");
}

#[test]
fn a_flipped_byte_in_a_store_file_stops_only_the_queries_that_need_it() {
    check_fault(Fault::Flip, true);
    check_fault(Fault::Flip, false);
}

/// Issue 37: the error names the unreadable rows, other metrics answer, and `allow_damaged` returns the
/// intact points.
#[test]
fn a_damaged_block_fails_its_series_alone_and_what_is_left_can_be_asked_for() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, file) = populated(&data);
    running.kill();
    Fault::Flip.apply(&file);
    let running = daemon(&data).env("TSD_HTTP_QUERY_ALLOW_DELETE", "true").start();
    let address = running.address();
    let name = format!("t.tsdb-{}", part_number(&file));
    let uri = |metric: u64, start: u64| {
        let end = FIRST_SECOND + 100_000_000;
        format!("/api/query?start={start}&end={end}&m=zimsum:m{metric}")
    };
    let mut failing = Vec::new();
    for metric in 0..METRICS {
        // Both errors are equal.
        for _ in 0..2 {
            match query(address, metric) {
                Ok(points) => assert_eq!(points, expected(metric, POINTS), "m{metric}"),
                Err(error) => {
                    assert!(error.contains(&format!("m{metric}{{host=h")), "{error}");
                    assert!(error.contains("2020-09-13T"), "{error}");
                    assert!(error.contains(&format!("accept {name}")), "{error}");
                    failing.push(metric);
                }
            }
        }
    }
    failing.dedup();
    assert!(!failing.is_empty() && failing.len() < METRICS as usize, "{failing:?}");
    assert_eq!(metric_value(address, "tsd_parts_quarantined_files"), 1);
    let listed = text(&quarantine(&data, &["list"]).stdout);
    assert!(listed.contains(&format!("m{}", failing[0])), "{listed}");
    // The intact points, by the URI or in the body.
    let mut missing = 0;
    for metric in 0..METRICS {
        let asked = format!("{}&allow_damaged", uri(metric, FIRST_SECOND - 1));
        let response = http_binary(address, "GET", &asked, "");
        assert_eq!(response.status, 200, "{response:?}");
        let is_partial = response.header("x-partial-result") == Some(&*name);
        assert!(is_partial || !failing.contains(&metric), "m{metric}: {response:?}");
        let json: Value = serde_json::from_slice(&response.body).expect("JSON");
        let left = json[0]["dps"].as_object().map_or(0, serde_json::Map::len);
        missing += POINTS as usize - left;
        assert!(left == POINTS as usize || failing.contains(&metric), "m{metric}: {left}");
    }
    assert!(missing > 0);
    let body = format!(
        r#"{{"start":{},"end":{},"allow_damaged":true,"queries":[{{"aggregator":"zimsum","metric":"m{}"}}]}}"#,
        FIRST_SECOND - 1,
        FIRST_SECOND + 100_000_000,
        failing[0]
    );
    // The body stands behind the last header.
    let with_body = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let response = http_binary(address, "POST", "/api/query", &with_body);
    assert_eq!((response.status, response.header("x-partial-result")), (200, Some(&*name)));
    assert!(metric_value(address, "tsd_query_partial_total") >= 2);
    // A range outside of the file's days is complete.
    let later = format!("{}&allow_damaged", uri(failing[0], FIRST_SECOND + 50_000_000));
    let later = http_binary(address, "GET", &later, "");
    assert_eq!((later.status, later.header("x-partial-result")), (200, None), "{later:?}");
    // Rows that cannot be read cannot be deleted.
    let delete = format!("{}&allow_damaged", uri(failing[0], FIRST_SECOND - 1));
    let delete = http(address, "DELETE", &delete, None);
    assert!(delete.status != 200 && delete.body.contains("quarantine"), "{delete:?}");
    // After the loss is accepted, no damage is hidden.
    assert!(quarantine(&data, &["accept", &name, "--yes"]).status.success());
    let whole = http_binary(address, "GET", &uri(failing[0], FIRST_SECOND - 1), "");
    assert_eq!((whole.status, whole.header("x-partial-result")), (200, None), "{whole:?}");
    running.kill();
}

/// Issue 37: an error of the disk that does not repeat closes nothing, in any file, also at the start.
#[test]
fn a_read_error_that_does_not_repeat_closes_nothing() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, _) = populated(&data);
    running.kill();
    let disk = ProcessDisk::prepare(dir.path()).expect("a C compiler");
    for files in ["t.tsdb/", "t.tsdb-uid/", "/log/", "/manifest"] {
        disk.fail_reads(files, 2);
        let running = disk.apply(daemon(&data)).start();
        let address = running.address();
        for metric in 0..METRICS {
            assert_eq!(query(address, metric), Ok(expected(metric, POINTS)), "{files}");
        }
        assert_eq!(disk.failing_reads().max(0), 0, "{files}: nothing was read");
        assert!(metric_value(address, "tsd_storage_recovered_reads_total") > 0, "{files}");
        let status = http(address, "GET", "/api/status", None).body;
        assert!(status.contains(r#""status":"ok""#), "{files}: {status}");
        assert_eq!(text(&quarantine(&data, &["list", "--json"]).stdout).trim(), "[]", "{files}");
        running.kill();
    }
}

/// The number of a part file.
fn part_number(file: &Path) -> u64 {
    let stem = file.file_stem().expect("a name").to_string_lossy();
    stem.parse().expect("a number")
}

#[test]
fn a_truncated_store_file_stops_only_the_queries_that_need_it() {
    check_fault(Fault::Truncate, true);
    check_fault(Fault::Truncate, false);
}

#[test]
fn a_missing_store_file_stops_only_the_queries_that_need_it() {
    check_fault(Fault::Remove, true);
    check_fault(Fault::Remove, false);
}

/// Files of a data directory, by their path below it.
pub(crate) fn all_files(data: &Path, below: &str, found: &mut Vec<String>) {
    for path in files(&data.join(below)) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        if path.is_dir() {
            all_files(data, &name, found);
        } else if !name.ends_with("LOCK") && !name.ends_with("lock") {
            found.push(name);
        }
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for path in files(from) {
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(path, target).expect("copy");
        }
    }
}

/// Flips any one byte of any file, truncates or removes the file. Then either the start is refused, with a
/// message that names the file or the loss and the remedy, or every query is exact or fails with a name.
/// `DAMAGE_SEEDS` sets the number of cases, `DAMAGE_SEED` the first.
#[test]
fn any_flipped_byte_is_refused_named_or_harmless() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let (seeds, first) = (number("DAMAGE_SEEDS", 12), number("DAMAGE_SEED", 1));
    let dir = directory();
    let original = dir.path().join("original");
    // Rows in several parts, and more in the log.
    let (running, _) = populated(&original);
    let count = POINTS + 40;
    for metric in 0..METRICS {
        assert_eq!(put(running.address(), metric, POINTS, count - 20), 204);
    }
    wait_for(|| (metric_value(running.address(), "tsd_wal_memtable_rows") == 0).then_some(()))
        .expect("a flush");
    assert!(running.terminate().success());
    let running = tsdb(&original).start();
    for metric in 0..METRICS {
        assert_eq!(put(running.address(), metric, count - 20, count), 204);
    }
    running.kill();
    let mut names = Vec::new();
    all_files(&original, "", &mut names);
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..first + seeds {
        let mut random = Xorshift64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let name = &names[random.below(names.len() as u64) as usize];
        let data = dir.path().join("copy");
        let _ = fs::remove_dir_all(&data);
        copy(&original, &data);
        let path = data.join(name);
        let mut bytes = fs::read(&path).expect("a file");
        let kind = random.below(10);
        let what = if kind == 0 {
            fs::remove_file(&path).expect("remove");
            "removed".to_owned()
        } else if bytes.is_empty() {
            continue;
        } else {
            let at = random.below(bytes.len() as u64) as usize;
            let mask = 1 << random.below(8);
            if kind == 1 {
                bytes.truncate(at);
            } else {
                bytes[at] ^= mask;
            }
            fs::write(&path, &bytes).expect("write");
            format!(
                "byte {at}, {}",
                if kind == 1 { "cut off".into() } else { format!("^ {mask:#x}") }
            )
        };
        let context = format!("DAMAGE_SEED={seed}: {name}, {what}");
        let outcome = check_damage(&data, count, &context);
        *outcomes.entry(outcome).or_default() += 1;
    }
    report(&format!("damage: {seeds} cases from seed {first}: {outcomes:?}"));
}

fn check_damage(data: &Path, count: u64, context: &str) -> &'static str {
    let (log, started) = tsdb(data).try_start();
    let running = match started {
        Ok(running) => running,
        Err(status) => {
            assert_eq!(status.code(), Some(1), "{context}: {log}");
            let line = log.lines().last().unwrap_or_default();
            assert!(!log.contains("panicked"), "{context}: {log}");
            let says_what_to_do = ["--accept-damage", "restore", "remove", "put back"]
                .iter()
                .any(|word| line.contains(word));
            let names_it = context.split(&[' ', ','][..]).any(|word| {
                word.rsplit('/').next().is_some_and(|file| {
                    file.len() > 2 && line.to_lowercase().contains(&file.to_lowercase())
                })
            });
            assert!(says_what_to_do && names_it, "{context}: {line}");
            return "refused";
        }
    };
    let address = running.address();
    let mut named = false;
    for _ in 0..2 {
        let names = |error: &str| error.contains("store file") || error.contains("t.tsdb");
        named |= check_answers(address, count, names, context) > 0;
    }
    // New points of known and of new series are stored and read.
    for metric in 0..METRICS {
        let status = put(address, metric, count, count + 1);
        let known = http(address, "GET", "/api/status", None).body;
        assert!(status == 204 || known.contains("t.tsdb-uid"), "{context}: {status} {known}");
    }
    for kind in ["lsm", "parts"] {
        named |= metric_value(address, &format!("tsd_{kind}_quarantined_files")) > 0;
    }
    assert!(running.terminate().success(), "{context}");
    if named { "named" } else { "harmless" }
}

#[test]
fn a_removed_uid_table_is_named_and_no_uid_is_assigned_twice() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, _) = populated(&data);
    assert!(running.terminate().success());
    fs::remove_dir_all(data.join("store/cells/t.tsdb-uid")).expect("remove");
    let running = daemon(&data).start();
    let address = running.address();
    let ready = http(address, "GET", "/api/health/ready", None);
    assert!(ready.body.contains("t.tsdb-uid"), "{ready:?}");
    // No name gets a UID, and no name is resolved.
    assert_ne!(put(address, METRICS, 0, 1), 204);
    let error = query(address, 0).expect_err("the names are lost");
    assert!(error.contains("t.tsdb-uid"), "{error}");
    let accepted = quarantine(&data, &["accept", "--all", "--yes"]);
    assert!(accepted.status.success(), "{accepted:?}");
    // No other metric gets the points that are stored under the lost UIDs.
    assert_eq!(put(address, METRICS, 0, 1), 204);
    assert_eq!(query(address, METRICS), Ok(expected(METRICS, 1)));
    assert!(running.terminate().success());
}
