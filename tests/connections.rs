//! Many more connections than threads.

use std::io::{Read, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tsd_testkit::{connect, http};

use crate::{report, tsdb};

/// File descriptors that the test needs besides its connections.
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
    // A telnet point is durable some time after its line was read; the daemon stores what it has
    // read before it exits.
    assert!(daemon.terminate().success());
    let daemon = tsdb(dir.path()).start();
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:crowd";
    let response = http(daemon.address(), "GET", uri, None);
    let sum = format!(r#""dps":{{"1600000000":{clients}}}"#);
    assert!(response.body.contains(&sum), "{}", response.body);
    assert!(daemon.terminate().success());
}
