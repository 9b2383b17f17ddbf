//! Tests a daemon on a small disk: filled, freed, killed and started again, over telnet and HTTP.
//!
//! Needs root to mount a tmpfs; without root the test reports this and passes.

#![expect(clippy::format_push_string, reason = "tests")]

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use serde_json::Value;
use tsd_testkit::{DaemonBuilder, Xorshift64, http, metric, try_http, wait_for};

use crate::{report, tsdb};

const DISK_BYTES: u64 = 64 << 20;
const FILLER_BYTES: u64 = 46 << 20;
const RESERVE_BYTES: u64 = 8 << 20;
const FIRST_SECOND: u64 = 1_600_000_000;
const HTTP_POINTS: u64 = 50;

/// A small file system, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` without the right to mount.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("temporary directory");
        let size = format!("size={DISK_BYTES}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path())
            .output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.path()).expect("a file system");
        stat.f_bavail * stat.f_frsize
    }

    fn fill(&self, bytes: u64) {
        fs::write(self.path().join("filler"), vec![0; bytes as usize]).expect("a filler");
    }

    fn unfill(&self) {
        fs::remove_file(self.path().join("filler")).expect("a filler");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn daemon(disk: &SmallDisk) -> DaemonBuilder {
    tsdb(&disk.path().join("data"))
        .env("TSD_STORAGE_RESERVE", &RESERVE_BYTES.to_string())
        .env("TSD_STORAGE_MEMTABLE_SIZE", &(4 << 20).to_string())
        .env("TSD_STORAGE_LOG_SEGMENT_SIZE", &(1 << 20).to_string())
        .env("TSD_HTTP_QUERY_ALLOW_DELETE", "true")
}

/// Sends points by telnet until `stop` is set, each with its own second. Returns their number and
/// the daemon's reply.
fn send_telnet(address: SocketAddr, stop: &AtomicBool) -> (u64, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut random = Xorshift64::new(7);
    let mut sent = 0;
    while !stop.load(Relaxed) {
        let mut lines = String::new();
        for _ in 0..500 {
            sent += 1;
            let value = random.below(u64::MAX) as f64 / 1e6;
            lines += &format!("put t {} {value} host=a\n", FIRST_SECOND + sent);
        }
        // Blocks while the daemon holds the connection.
        stream.write_all(lines.as_bytes()).expect("a write");
    }
    stream.shutdown(Shutdown::Write).expect("a connection");
    let mut replies = String::new();
    stream.read_to_string(&mut replies).expect("the replies");
    (sent, replies)
}

/// Puts points over HTTP until `stop` is set. Adds stored points to `stored`, and rejected requests
/// to `rejected`.
fn send_http(address: SocketAddr, stop: &AtomicBool, stored: &AtomicU64, rejected: &AtomicU64) {
    let mut random = Xorshift64::new(9);
    while !stop.load(Relaxed) {
        let first = stored.load(Relaxed);
        let points: Vec<String> = (0..HTTP_POINTS)
            .map(|n| {
                let value = random.below(u64::MAX) as f64 / 1e6;
                let second = FIRST_SECOND + first + n;
                format!(
                    r#"{{"metric":"h","timestamp":{second},"value":{value},"tags":{{"host":"a"}}}}"#
                )
            })
            .collect();
        let body = format!("[{}]", points.join(","));
        let Ok(response) = try_http(address, "POST", "/api/put?details", Some(&body)) else {
            return;
        };
        if response.status == 204 || response.status == 200 {
            stored.fetch_add(HTTP_POINTS, Relaxed);
        } else {
            assert!(response.body.contains("no space left"), "{}", response.body);
            rejected.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Number of stored points of a metric.
fn count(address: SocketAddr, metric: &str) -> u64 {
    let end = FIRST_SECOND + 100_000_000;
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=sum:0all-count:{metric}");
    let response = http(address, "GET", &uri, None);
    assert_eq!(response.status, 200, "{}", response.body);
    let json: Value = serde_json::from_str(&response.body).expect("JSON");
    let Some(points) = json[0]["dps"].as_object() else { return 0 };
    points.values().map(|count| count.as_f64().expect("a number") as u64).sum()
}

fn held_points(address: SocketAddr) -> f64 {
    metric(address, "tsd_write_held_points").unwrap_or_default()
}

#[test]
fn no_point_is_lost_on_a_full_disk_and_the_reserve_is_kept() {
    let Some(disk) = SmallDisk::mount() else {
        return report("disk_full: skipped, no right to mount a tmpfs");
    };
    disk.fill(FILLER_BYTES);
    let running = daemon(&disk).start();
    let address = running.address();
    let gone = r#"[{"metric":"gone","timestamp":1600000000,"value":1,"tags":{"host":"a"}}]"#;
    assert_eq!(http(address, "POST", "/api/put", Some(gone)).status, 204);
    let [stop, filled] = [const { AtomicBool::new(false) }; 2];
    let (stored, rejected, least_free) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let (sent, replies) = thread::scope(|scope| {
        let telnet = scope.spawn(|| send_telnet(address, &stop));
        scope.spawn(|| send_http(address, &stop, &stored, &rejected));
        scope.spawn(|| {
            while !filled.load(Relaxed) {
                least_free.fetch_min(disk.free_bytes(), Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        wait_for(|| (held_points(address) > 0.0 && rejected.load(Relaxed) > 2).then_some(()))
            .expect("held telnet points and rejected requests");
        // Commands, reads and deletes work on the full disk.
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(b"version\nexit\n").expect("a write");
        let mut version = String::new();
        stream.read_to_string(&mut version).expect("a reply");
        assert!(version.contains("built"), "{version}");
        assert_eq!(count(address, "gone"), 1);
        let uri = "/api/query?start=1599999999&end=1600000001&m=sum:gone";
        assert_eq!(http(address, "DELETE", uri, None).status, 200);
        assert_eq!(count(address, "gone"), 0);
        filled.store(true, Relaxed);
        // Space is freed: both senders continue without a restart.
        disk.unfill();
        let before = stored.load(Relaxed);
        wait_for(|| (stored.load(Relaxed) > before).then_some(())).expect("puts succeed");
        stop.store(true, Relaxed);
        telnet.join().expect("no panic")
    });
    assert_eq!(replies, "", "nothing was refused");
    wait_for(|| (held_points(address) <= 0.0).then_some(())).expect("no held points");
    assert_eq!(count(address, "t"), sent);
    assert_eq!(count(address, "h"), stored.load(Relaxed));
    let least_free = least_free.load(Relaxed);
    assert!(least_free >= RESERVE_BYTES, "{least_free} bytes were free");

    // Filled by another program, and killed on the full disk.
    let free = disk.free_bytes();
    disk.fill(free - (RESERVE_BYTES / 2));
    let refused = http(address, "POST", "/api/put?details", Some(gone));
    assert!(refused.body.contains("no space left"), "{}", refused.body);
    running.kill();
    let running = daemon(&disk).start();
    let address = running.address();
    assert_eq!(count(address, "t"), sent);
    assert_eq!(count(address, "h"), stored.load(Relaxed));
    assert_eq!(count(address, "gone"), 0);
    disk.unfill();
    wait_for(|| (http(address, "POST", "/api/put", Some(gone)).status == 204).then_some(()))
        .expect("puts succeed after space was freed");
    assert!(running.terminate().success());
    report(&format!(
        "disk_full: {sent} points by telnet, {stored:?} by HTTP, {rejected:?} requests rejected; at \
         least {least_free} bytes were free"
    ));
}

#[test]
fn sigterm_on_a_full_disk_succeeds_and_tells_the_rows_that_stay_in_the_log() {
    let Some(disk) = SmallDisk::mount() else {
        return report("disk_full: skipped, no right to mount a tmpfs");
    };
    let running = daemon(&disk).start();
    let address = running.address();
    let stored = 5 * DELETE_TEST_POINTS;
    for first in (0..stored).step_by(DELETE_TEST_POINTS as usize) {
        let body = points_body("kept", first);
        assert_eq!(http(address, "POST", "/api/put", Some(&body)).status, 204);
    }
    // No flush fits into the remaining space.
    disk.fill(disk.free_bytes() - (64 << 10));
    running.signal("TERM");
    let text = "rows stay in the log; the next start replays them";
    let warning = running.wait_for_event(text, |event| event["rows"].as_u64() > Some(0));
    assert!(running.wait().success(), "{warning}");

    let running = daemon(&disk).start();
    assert_eq!(count(running.address(), "kept"), stored);
    disk.unfill();
    assert!(running.terminate().success());
}

const DELETE_TEST_METRICS: u64 = 10;
const DELETE_TEST_POINTS: u64 = 2_000;

/// A request that puts [`DELETE_TEST_POINTS`] points, one a second; `stored` are stored already. Their
/// values do not compress.
fn points_body(metric: &str, stored: u64) -> String {
    let seed: u64 = metric.bytes().map(u64::from).sum();
    let mut random = Xorshift64::new((seed << 32) + stored + 11);
    let points: Vec<String> = (0..DELETE_TEST_POINTS)
        .map(|n| {
            let (second, value) = (FIRST_SECOND + stored + n, random.below(u64::MAX) as f64 / 1e6);
            format!(
                r#"{{"metric":"{metric}","timestamp":{second},"value":{value},"tags":{{"host":"a"}}}}"#
            )
        })
        .collect();
    format!("[{}]", points.join(","))
}

/// Puts points of several metrics until the disk is full; returns the number of stored points of
/// each.
fn fill_by_http(address: SocketAddr) -> Vec<u64> {
    let mut stored = vec![0; DELETE_TEST_METRICS as usize];
    for round in 0.. {
        let metric = round % DELETE_TEST_METRICS;
        let count = &mut stored[metric as usize];
        let body = points_body(&format!("d{metric}"), *count);
        let response = http(address, "POST", "/api/put", Some(&body));
        if response.status != 204 {
            assert!(response.body.contains("no space left"), "{}", response.body);
            break;
        }
        *count += DELETE_TEST_POINTS;
    }
    stored
}

/// Fills the disk by the daemon alone, or also by another program, and then deletes most points.
fn check_deletes(filled_by_others: bool) {
    let Some(disk) = SmallDisk::mount() else {
        return report("disk_full: skipped, no right to mount a tmpfs");
    };
    disk.fill(DISK_BYTES / 2);
    let reserve = RESERVE_BYTES / 2;
    let running = daemon(&disk).env("TSD_STORAGE_RESERVE", &reserve.to_string()).start();
    let address = running.address();
    let stored = fill_by_http(address);
    if filled_by_others {
        let free = disk.free_bytes();
        fs::write(disk.path().join("other"), vec![0; (free - reserve * 3 / 4) as usize])
            .expect("another file");
    }
    let full = disk.free_bytes();
    let one = r#"[{"metric":"d0","timestamp":1500000000,"value":1,"tags":{"host":"a"}}]"#;
    for metric in 1..DELETE_TEST_METRICS {
        let end = FIRST_SECOND + 100_000_000;
        let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=sum:0all-count:d{metric}");
        let response = http(address, "DELETE", &uri, None);
        assert_eq!(response.status, 200, "{}", response.body);
    }
    wait_for(|| (http(address, "POST", "/api/put", Some(one)).status == 204).then_some(()))
        .unwrap_or_else(|| {
            let status = http(address, "GET", "/api/status", None).body;
            panic!(
                "puts succeed after the deletes: {full} and {} bytes free, {status}",
                disk.free_bytes()
            )
        });
    for (metric, stored) in stored.iter().enumerate() {
        let expected = if metric == 0 { *stored } else { 0 };
        assert_eq!(count(address, &format!("d{metric}")), expected, "d{metric}");
    }
    // Deleted space is freed at the latest when it is needed.
    let deleted: u64 = stored.iter().skip(1).sum();
    let mut again = 0;
    while again < deleted / 2 {
        let body = points_body("again", again);
        let response = wait_for(|| {
            let response = http(address, "POST", "/api/put", Some(&body));
            (response.status == 204).then_some(())
        });
        assert!(
            response.is_some(),
            "{again} points stored after {deleted} were deleted: {full} and {} bytes free, {}",
            disk.free_bytes(),
            http(address, "GET", "/api/status", None).body
        );
        again += DELETE_TEST_POINTS;
    }
    assert_eq!(count(address, "again"), again);
    assert!(running.terminate().success());
    report(&format!(
        "disk_full: {} points, {deleted} deleted, {again} stored in their space, filled by others: \
         {filled_by_others}",
        stored.iter().sum::<u64>()
    ));
}

#[test]
fn deletes_free_a_full_disk_without_a_restart() {
    check_deletes(false);
    check_deletes(true);
}
