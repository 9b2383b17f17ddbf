//! More clients than threads by far.

use std::io::{Read, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    daemon::Start,
    report,
    socket::{connect, http},
};

/// Descriptors the test keeps for other things.
const SPARE: u64 = 256;

#[test]
fn ten_thousand_connections_are_served_at_once() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("more open files");
    let room = limit.maximum.map_or(u64::MAX, |files| files.saturating_sub(SPARE));
    let clients = room.min(10_000) as usize;
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = Start::on(dir.path()).serve();
    let mut open: Vec<_> = (0..clients).map(|_| connect(daemon.address())).collect();
    for (i, client) in open.iter_mut().enumerate() {
        writeln!(client, "put crowd 1600000000 1 client=c{i:05}\nhello{i}").expect("send");
    }
    for (i, client) in open.iter_mut().enumerate() {
        let expected = format!("unknown command: hello{i}.  Try `help'.\n");
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).expect("an answer on every connection");
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }
    report(&format!("crowd: {clients} connections open, each answered"));
    drop(open);
    // A point is durable some time after its line was read; the daemon stores what it read before it ends.
    assert!(daemon.terminate().success());
    let daemon = Start::on(dir.path()).serve();
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:crowd";
    let answer = http(daemon.address(), "GET", uri, None);
    let sum = format!(r#""dps":{{"1600000000":{clients}}}"#);
    assert!(answer.body.contains(&sum), "{}", answer.body);
    assert!(daemon.terminate().success());
}
