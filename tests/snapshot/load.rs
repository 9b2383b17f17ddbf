//! Tests snapshots of a daemon under load.

use std::{
    io::Write,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use tsd_testkit::{close_and_drain, connect, metric, wait_for};

use super::*;
use crate::report;

const HTTP_SENDERS: u64 = 3;
const TELNET_SENDERS: u64 = 2;
const SENDERS: u64 = HTTP_SENDERS + TELNET_SENDERS;
const SNAPSHOTS: usize = 5;

/// Sends batches until it is stopped; counts the acknowledged batches.
fn send(address: SocketAddr, sender: u64, acknowledged: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(SeqCst) {
        let number = acknowledged.load(SeqCst);
        if sender < HTTP_SENDERS {
            put(address, sender, number..number + 1);
        } else {
            let lines = (number * BATCH..(number + 1) * BATCH).map(|number| {
                let (metric, second, value, [(host, h), (job, j)]) = point(sender, number);
                format!("put {metric} {second} {value} {host}={h} {job}={j}\n")
            });
            let mut stream = connect(address);
            stream.write_all(lines.collect::<String>().as_bytes()).expect("send");
            close_and_drain(stream);
        }
        acknowledged.fetch_add(1, SeqCst);
    }
}

#[test]
fn snapshots_under_load_have_what_was_acknowledged_and_a_prefix_of_each_sender() {
    let (dir, elsewhere) = (directory(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")));
    let elsewhere = elsewhere.expect("a directory");
    let data = dir.path().join("data");
    let original = daemon(&data).start();
    let address = original.address();
    let acknowledged: Vec<AtomicU64> = (0..SENDERS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let now = || acknowledged.iter().map(|count| count.load(SeqCst)).collect::<Vec<_>>();
    let mut taken = Vec::new();
    thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .zip(&acknowledged)
            .map(|(sender, count)| {
                let stop = &stop;
                scope.spawn(move || send(address, sender, count, stop))
            })
            .collect();
        let mut former: Option<PathBuf> = None;
        for number in 0..SNAPSHOTS {
            thread::sleep(Duration::from_millis(600));
            // Snapshots alternate between the disk of the data directory and another disk, where all but the first
            // have a base.
            let is_elsewhere = number % 2 == 1;
            let place = if is_elsewhere { elsewhere.path() } else { dir.path() };
            let target = place.join(format!("snapshot-{number}"));
            let base = former.clone().filter(|_| is_elsewhere);
            let base = base.as_ref().map(|base| base.to_str().expect("a path"));
            let mut arguments = vec!["snapshot"];
            arguments.extend(base.iter().flat_map(|base| ["--base", base]));
            let before = now();
            let report = json(&arguments, &data, &target);
            assert_eq!(report["damaged"], serde_json::json!([]));
            if is_elsewhere {
                former = Some(target.clone());
            } else {
                assert!(report["linkedBytes"].as_u64() > Some(0), "{report}");
            }
            taken.push((target, before, report));
        }
        stop.store(true, SeqCst);
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
    let all = now();
    report(&format!("snapshot: {all:?} batches acknowledged; {:?}", taken.last()));

    for (number, (target, before, _)) in taken.iter().enumerate() {
        let restored = dir.path().join(format!("restored-{number}"));
        let arguments: &[&str] = if number == 0 { &["restore", "--link"] } else { &["restore"] };
        json(arguments, &restored, target);
        assert!(!restored.join("restoring").exists());
        let daemon = daemon(&restored).start();
        let mut whole = Vec::new();
        for (sender, before) in (0..SENDERS).zip(before) {
            whole.push(check_prefix(daemon.address(), sender, *before));
        }
        // It accepts writes, also over existing points, and keeps them over a restart, a kill and a replay.
        let (old, new) = (whole[0], whole[0] + 30);
        put(daemon.address(), 0, old..old + 10);
        assert!(daemon.terminate().success());
        let daemon = super::daemon(&restored).start();
        put(daemon.address(), 0, old + 10..new);
        daemon.kill();
        let daemon = super::daemon(&restored).start();
        assert_eq!(check_prefix(daemon.address(), 0, new), new);
        for (sender, whole) in (1..SENDERS).zip(&whole[1..]) {
            assert_eq!(check_prefix(daemon.address(), sender, *whole), *whole);
        }
        assert!(daemon.terminate().success());
    }
    // The original has continued and starts again; its damage does not affect the snapshots.
    original.kill();
    let original = daemon(&data).start();
    for (sender, acknowledged) in (0..SENDERS).zip(&all) {
        assert_eq!(check_prefix(original.address(), sender, *acknowledged), *acknowledged);
    }
    assert!(original.terminate().success());
}

#[test]
fn a_second_snapshot_elsewhere_links_what_the_first_has() {
    let (dir, elsewhere) = (directory(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")));
    let elsewhere = elsewhere.expect("a directory");
    let data = dir.path().join("data");
    let running = daemon(&data).start();
    put(running.address(), 0, 0..40);
    let path = |number: u64| elsewhere.path().join(number.to_string());
    let report = json(&["snapshot", "--copy"], &data, &path(0));
    assert_eq!((&report["linkedBytes"], &report["baseBytes"]), (&0.into(), &0.into()), "{report}");
    let parts = |snapshot: &Path| -> Vec<u64> {
        let parts = files_below(snapshot);
        let parts = parts.iter().filter(|path| path.extension().is_some_and(|e| e == "part"));
        parts.map(|path| fs::metadata(path).expect("a part").ino()).collect()
    };
    // Until no merge replaces all parts in between.
    let mut number = 0;
    let linked = wait_for(|| {
        number += 1;
        let base = path(number - 1);
        let arguments = ["snapshot", "--copy", "--base", base.to_str().expect("a path")];
        json(&arguments, &data, &path(number));
        let former = parts(&base);
        parts(&path(number)).iter().any(|inode| former.contains(inode)).then_some(())
    });
    assert!(linked.is_some(), "no part is linked to that of the base");
    assert!(running.terminate().success());
    // Without a daemon, on the directory itself.
    let (base, last) = (path(number), elsewhere.path().join("last"));
    let base = base.to_str().expect("a path");
    let report = json(&["snapshot", "--copy", "--base", base], &data, &last);
    assert!(report["baseBytes"].as_u64() > Some(0), "{report}");
    // Former snapshots may be removed.
    for number in 0..=number {
        fs::remove_dir_all(path(number)).expect("remove");
    }
    let restored = dir.path().join("restored");
    json(&["restore"], &restored, &last);
    let running = daemon(&restored).start();
    assert_eq!(check_prefix(running.address(), 0, 40), 40);
    assert!(running.terminate().success());
}

#[test]
fn a_closed_connection_ends_the_snapshot_and_two_are_not_taken_at_once() {
    let dir = directory();
    let data = dir.path().join("data");
    let running = daemon(&data).start();
    let address = running.address();
    put(address, 0, 0..40);
    let body = |number: u64| {
        let target = dir.path().join(format!("target-{number}"));
        format!(r#"{{"target":{target:?},"copy":true}}"#)
    };
    let is_idle = || http(address, "GET", "/api/snapshot", None).body == r#"{"running":null}"#;
    for number in 0..20 {
        let body = body(number);
        let mut stream = connect(address);
        let request = format!(
            "POST /api/snapshot HTTP/1.1\r\nHost: tsd\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("send");
        thread::sleep(Duration::from_millis(number));
        drop(stream);
    }
    // The daemon may read one of these requests late, and then starts a snapshot; its connection is open until the
    // snapshot ends.
    let is_alone = || metric(address, "tsd_server_connections_open") == Some(1.0);
    wait_for(|| (is_alone() && is_idle()).then_some(())).expect("no snapshot");
    let (mut complete, mut refused) = (0, 0);
    thread::scope(|scope| {
        let requests: Vec<_> = (20..32)
            .map(|number| {
                let body = body(number);
                scope.spawn(move || http(address, "POST", "/api/snapshot", Some(&body)))
            })
            .collect();
        for request in requests {
            let response = request.join().expect("a response");
            match response.status {
                200 => complete += 1,
                409 => refused += 1,
                _ => panic!("{response:?}"),
            }
        }
    });
    assert_eq!(complete + refused, 12);
    assert!(complete > 0);
    let names = fs::read_dir(dir.path()).expect("a directory");
    for name in names.map(|entry| entry.expect("an entry").path()) {
        let is_target = name.file_name().is_some_and(|n| n.to_string_lossy().starts_with("target"));
        if is_target {
            let restored = dir.path().join("restored");
            json(&["restore"], &restored, &name);
            fs::remove_dir_all(&restored).expect("remove");
        }
    }
    assert!(running.terminate().success());
}
