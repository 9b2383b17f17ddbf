//! Tests the HTTP API over a real socket: the first requests of the README, pipelining, `/metrics`.

use std::io::{Read, Write};

use tsd_testkit::{connect, http};

use crate::tsdb;

#[test]
fn put_of_the_readme_is_found_by_its_query() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let body = r#"{"metric":"sys.load","timestamp":1600000000,"value":0.5,"tags":{"host":"a"}}"#;
    let response = http(daemon.address(), "POST", "/api/put", Some(body));
    assert_eq!((response.status, response.body.as_str()), (204, ""));
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:sys.load%7Bhost=*%7D";
    let expected = r#"[{"metric":"sys.load","tags":{"host":"a"},"aggregateTags":[],"dps":{"1600000000":0.5}}]"#;
    assert_eq!(http(daemon.address(), "GET", uri, None).body, expected);
    let query = r#"{"start":1599999990,"end":1600000010,"queries":[{"aggregator":"sum","metric":"sys.load"}]}"#;
    assert_eq!(http(daemon.address(), "POST", "/api/query", Some(query)).body, expected);
    assert!(daemon.terminate().success());
}

#[test]
fn requests_of_one_connection_are_answered_in_order() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let mut stream = connect(daemon.address());
    let version = "GET /api/version HTTP/1.1\r\nHost: tsd\r\n\r\n";
    let unknown = "GET /api/nothing HTTP/1.1\r\nHost: tsd\r\n\r\n";
    let last = "GET /api/aggregators HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("{version}{unknown}{last}").as_bytes()).expect("send");
    let mut responses = String::new();
    stream.read_to_string(&mut responses).expect("responses");
    let statuses: Vec<_> = responses
        .match_indices("HTTP/1.1 ")
        .filter_map(|(at, found)| responses.get(at + found.len()..at + found.len() + 3))
        .collect();
    assert_eq!(statuses, ["200", "404", "200"], "{responses}");
    assert!(daemon.terminate().success());
}

#[test]
fn metrics_are_served_on_the_same_port() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let response = http(daemon.address(), "GET", "/metrics", None);
    assert_eq!(response.status, 200);
    assert!(response.body.contains("# TYPE tsd_"), "{}", response.body);
    assert!(daemon.terminate().success());
}
