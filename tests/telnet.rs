//! Tests the telnet protocol over a real socket: the first put of the README, and responses to bad
//! lines.

use tsd_testkit::{exchange, http};

use crate::tsdb;

#[test]
fn put_of_the_readme_is_found_by_a_query() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let received = exchange(daemon.address(), b"put sys.load 1600000000 0.5 host=a\n");
    assert_eq!(String::from_utf8_lossy(&received), "");
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:sys.load";
    let response = http(daemon.address(), "GET", uri, None);
    assert_eq!(
        response.body,
        r#"[{"metric":"sys.load","tags":{"host":"a"},"aggregateTags":[],"dps":{"1600000000":0.5}}]"#
    );
    assert!(daemon.terminate().success());
}

#[test]
fn each_bad_line_is_answered_and_good_lines_are_stored() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    let lines = "put m 1600000000 1 host=a\n\
                 put m 1600000001 x host=a\n\
                 nonsense\n\
                 put m 1600000002 3 host=a\n\
                 put m 1600000003 4\n";
    let received = exchange(daemon.address(), lines.as_bytes());
    let received = String::from_utf8_lossy(&received);
    let responses: Vec<_> = received.lines().collect();
    assert_eq!(
        responses,
        [
            "put: invalid value: Invalid character 'x' in x",
            "unknown command: nonsense.  Try `help'.",
            "put: illegal argument: not enough arguments (need least 4, got 3)",
        ]
    );
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:m";
    let response = http(daemon.address(), "GET", uri, None);
    assert!(
        response.body.contains(r#""dps":{"1600000000":1,"1600000002":3}"#),
        "{}",
        response.body
    );
    assert!(daemon.terminate().success());
}
