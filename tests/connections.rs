//! Tests many more connections than threads.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::Barrier,
    thread,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tsd_testkit::{DaemonBuilder, connect, http, try_http, wait_for};

use crate::{TSDB, report, tsdb};

/// File descriptors of the test in addition to its connections.
const OTHER_FILES: u64 = 256;

#[test]
fn ten_thousand_connections_are_served_at_once() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("more open files");
    let available = limit.maximum.map_or(u64::MAX, |files| files.saturating_sub(OTHER_FILES));
    let clients = available.min(10_000) as usize;
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let mut connections: Vec<_> = (0..clients).map(|_| connect(daemon.address())).collect();
    for (i, connection) in connections.iter_mut().enumerate() {
        writeln!(connection, "put crowd 1600000000 1 client=c{i:05}\nhello{i}").expect("send");
    }
    for (i, connection) in connections.iter_mut().enumerate() {
        let expected = format!("unknown command: hello{i}.  Try `help'.\n");
        let mut response = vec![0; expected.len()];
        connection.read_exact(&mut response).expect("a response on every connection");
        assert_eq!(String::from_utf8_lossy(&response), expected);
    }
    report(&format!("connections: {clients} open at once, each answered"));
    drop(connections);
    // A telnet point is durable some time after its line was read; the daemon stores all read
    // points before it exits.
    assert!(daemon.terminate().success());
    let daemon = tsdb(dir.path()).start();
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:crowd";
    let response = http(daemon.address(), "GET", uri, None);
    let sum = format!(r#""dps":{{"1600000000":{clients}}}"#);
    assert!(response.body.contains(&sum), "{}", response.body);
    assert!(daemon.terminate().success());
}

/// Sends points of a separate series in several writes, then waits for the end of the connection.
/// Returns the replies, or `None` if the connection was closed or reset early.
fn send_points(
    address: SocketAddr,
    client: usize,
    points: u64,
    all_open: &Barrier,
) -> Option<String> {
    let stream = TcpStream::connect(address);
    all_open.wait();
    let mut stream = stream.ok()?;
    stream.set_read_timeout(Some(Duration::from_mins(2))).ok()?;
    for first in (0..points).step_by(50) {
        let lines: Vec<String> = (first..first + 50)
            .map(|n| format!("put scarce {} {n} client=c{client}\n", 1_600_000_000 + n))
            .collect();
        stream.write_all(lines.concat().as_bytes()).ok()?;
        thread::sleep(Duration::from_millis(20));
    }
    stream.shutdown(Shutdown::Write).ok()?;
    let mut replies = String::new();
    stream.read_to_string(&mut replies).ok()?;
    Some(replies)
}

#[test]
fn four_hundred_senders_with_two_hundred_descriptors_lose_no_point_silently() {
    const SENDERS: usize = 400;
    const POINTS: u64 = 500;
    let dir = tempfile::tempdir().expect("temporary directory");
    let limited = dir.path().join("limited-tsdb");
    fs::write(&limited, format!("#!/bin/sh\nulimit -n 200\nexec '{TSDB}' \"$@\"\n"))
        .expect("write");
    fs::set_permissions(&limited, fs::Permissions::from_mode(0o755)).expect("permissions");
    let daemon = DaemonBuilder::new(limited.to_str().expect("a path"), &dir.path().join("data"))
        .env("TSD_STORAGE_MEMTABLE_SIZE", "1048576")
        .env("TSD_STORAGE_LOG_SEGMENT_SIZE", "262144")
        .start();
    let address = daemon.address();
    let all_open = Barrier::new(SENDERS);
    let replies: Vec<Option<String>> = thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|client| {
                scope.spawn({
                    let all_open = &all_open;
                    move || send_points(address, client, POINTS, all_open)
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().expect("no panic")).collect()
    });
    // The daemon continues.
    let put = r#"{"metric":"scarce","timestamp":1600009000,"value":1,"tags":{"client":"later"}}"#;
    wait_for(|| {
        let stored = try_http(address, "POST", "/api/put", Some(put)).ok()?;
        (stored.status == 204).then_some(())
    })
    .expect("puts succeed when the senders are gone");
    let uri = "/api/query?start=1599999999&end=1600010000&m=zimsum:0all-count:scarce{client=*}";
    let response = http(address, "GET", uri, None);
    let json: Value = serde_json::from_str(&response.body).expect("JSON");
    let counts: BTreeMap<&str, u64> = json
        .as_array()
        .expect("a list")
        .iter()
        .map(|series| {
            let counts = series["dps"].as_object().expect("points").values();
            let count = counts.map(|count| count.as_f64().expect("a number") as u64).sum();
            (series["tags"]["client"].as_str().expect("a client"), count)
        })
        .collect();
    let (mut served, mut refused) = (0, 0);
    for (client, replies) in replies.iter().enumerate() {
        let stored = counts.get(format!("c{client}").as_str()).copied().unwrap_or(0);
        match replies.as_deref() {
            Some("") => {
                assert_eq!(stored, POINTS, "client {client} was told nothing");
                served += 1;
            }
            // An error line, or the end of the connection before all was sent.
            Some(_) | None => refused += 1,
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    let errors = daemon.events_at_level("ERROR");
    assert!(errors.is_empty(), "{errors:?}");
    report(&format!("connections: 200 descriptors, {served} senders served, {refused} refused"));
    assert!(daemon.terminate().success());
}
