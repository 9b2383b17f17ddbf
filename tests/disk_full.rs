//! A daemon on a small disk: filled, freed, killed and started again, over telnet and HTTP.
//!
//! Needs root, to mount a tmpfs; without it the test says so and passes.

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
use tsd_testkit::{DaemonBuilder, Xorshift64, http, try_http, wait_for};

use crate::{report, tsdb};

const DISK_BYTES: u64 = 64 << 20;
const FILLER_BYTES: u64 = 46 << 20;
const RESERVE_BYTES: u64 = 8 << 20;
const FIRST_SECOND: u64 = 1_600_000_000;
const HTTP_POINTS: u64 = 50;
const PATIENCE: Duration = Duration::from_mins(2);

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

/// Sends points by telnet until `stop` is set, each with a second of its own. Returns their number
/// and what the daemon replied.
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

/// Puts points over HTTP until `stop` is set; adds the stored ones to `stored`, rejected requests to
/// `rejected`.
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
    let metrics = http(address, "GET", "/metrics", None).body;
    let line = metrics.lines().find(|line| line.starts_with("tsd_write_held_points "));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_default()
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
        wait_for(PATIENCE, || {
            (held_points(address) > 0.0 && rejected.load(Relaxed) > 2).then_some(())
        })
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
        // Space is freed: both senders go on without a restart.
        disk.unfill();
        let before = stored.load(Relaxed);
        wait_for(PATIENCE, || (stored.load(Relaxed) > before).then_some(())).expect("puts succeed");
        stop.store(true, Relaxed);
        telnet.join().expect("no panic")
    });
    assert_eq!(replies, "", "nothing was refused");
    wait_for(PATIENCE, || (held_points(address) <= 0.0).then_some(())).expect("no held points");
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
    wait_for(PATIENCE, || {
        (http(address, "POST", "/api/put", Some(gone)).status == 204).then_some(())
    })
    .expect("puts succeed after space was freed");
    assert!(running.terminate().success());
    report(&format!(
        "disk_full: {sent} points by telnet, {stored:?} by HTTP, {rejected:?} requests rejected; at \
         least {least_free} bytes were free"
    ));
}
