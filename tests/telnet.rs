//! The line protocol, as `nc` sees it.

use crate::{
    daemon::Start,
    socket::{converse, http},
};

#[test]
fn first_put_of_the_readme() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = Start::on(dir.path()).serve();
    let answer = converse(daemon.address(), b"put sys.load 1600000000 0.5 host=a\n");
    assert_eq!(String::from_utf8_lossy(&answer), "");
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:sys.load";
    let answer = http(daemon.address(), "GET", uri, None);
    assert_eq!(
        answer.body,
        r#"[{"metric":"sys.load","tags":{"host":"a"},"aggregateTags":[],"dps":{"1600000000":0.5}}]"#
    );
    assert!(daemon.terminate().success());
}

#[test]
fn each_bad_line_is_answered_and_the_good_ones_are_kept() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = Start::on(dir.path()).serve();
    let lines = "put m 1600000000 1 host=a\n\
                 put m 1600000001 x host=a\n\
                 nonsense\n\
                 put m 1600000002 3 host=a\n\
                 put m 1600000003 4\n";
    let answer = converse(daemon.address(), lines.as_bytes());
    let answer = String::from_utf8_lossy(&answer);
    let answers: Vec<_> = answer.lines().collect();
    assert_eq!(
        answers,
        [
            "put: invalid value: Invalid character 'x' in x",
            "unknown command: nonsense.  Try `help'.",
            "put: illegal argument: not enough arguments (need least 4, got 3)",
        ]
    );
    let uri = "/api/query?start=1599999990&end=1600000010&m=sum:m";
    let answer = http(daemon.address(), "GET", uri, None);
    assert!(answer.body.contains(r#""dps":{"1600000000":1,"1600000002":3}"#), "{}", answer.body);
    assert!(daemon.terminate().success());
}
