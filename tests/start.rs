//! Starting and stopping: configuration, the data directory, signals.

use std::{fs, io::Write, net::TcpStream};

use crate::{
    daemon::{Start, TSDB},
    socket::{connect, converse, http},
};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

#[test]
fn a_bad_value_stops_with_its_key() {
    let dir = directory();
    let file = dir.path().join("opentsdb.conf");
    fs::write(&file, "tsd.network.port = 4242\ntsd.storage.salt.width = many\n").expect("write");
    let file = file.to_str().expect("a path");
    let (status, said) = Start::on(dir.path()).args(&["--config", file]).fail();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("tsd.storage.salt.width = \"many\""), "{said}");
    assert!(said.contains("line 2"), "{said}");
}

#[test]
fn a_missing_file_stops() {
    let dir = directory();
    let (status, said) = Start::on(dir.path()).args(&["--config", "/nowhere/tsd.conf"]).fail();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("/nowhere/tsd.conf"), "{said}");
}

#[test]
fn unknown_keys_warn_once_each() {
    let dir = directory();
    let file = dir.path().join("opentsdb.conf");
    fs::write(&file, "tsd.storage.salt.bucket = 20\ntsd.core.authentication.enable = true\n")
        .expect("write");
    let daemon =
        Start::on(&dir.path().join("data")).args(&["--config", file.to_str().expect("a path")]);
    let daemon = daemon.serve();
    let warnings: Vec<_> =
        daemon.at_level("WARN").iter().map(|e| e["message"].to_string()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().any(|w| w.contains("unknown key tsd.storage.salt.bucket")));
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("tsd.core.authentication.enable") && w.contains("no effect"))
    );
    assert!(daemon.terminate().success());
}

#[test]
fn the_environment_sets_keys_and_api_config_shows_them() {
    let dir = directory();
    let daemon = Start::on(dir.path()).env("TSD_STORAGE_MAX_TAGS", "11").serve();
    let shown = http(daemon.address(), "GET", "/api/config", None);
    assert!(shown.body.contains(r#""tsd.storage.max_tags":"11""#), "{}", shown.body);
    assert!(daemon.terminate().success());
}

#[test]
fn one_process_a_data_directory() {
    let dir = directory();
    let daemon = Start::on(dir.path()).serve();
    let (status, said) = Start::on(dir.path()).fail();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("in use"), "{said}");
    let query = std::process::Command::new(TSDB)
        .args(["query", "--data", dir.path().to_str().expect("a path"), "1h-ago", "sum", "m"])
        .output()
        .expect("run tsdb");
    let said = String::from_utf8_lossy(&query.stderr);
    assert_eq!(query.status.code(), Some(1), "{said}");
    assert!(said.contains("HTTP"), "{said}");
    assert!(daemon.terminate().success());
}

#[test]
fn a_directory_refuses_another_shape_of_keys() {
    let dir = directory();
    assert!(Start::on(dir.path()).serve().terminate().success());
    let (status, said) = Start::on(dir.path()).env("TSD_STORAGE_SALT_BUCKETS", "7").fail();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("tsd.storage.salt.buckets = 7 contradicts"), "{said}");
}

#[test]
fn the_first_line_says_where_and_what_was_replayed() {
    let dir = directory();
    let daemon = Start::on(dir.path()).serve();
    let put = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 204);
    daemon.kill();
    let daemon = Start::on(dir.path()).serve();
    let ready = daemon.events("ready to serve").pop().expect("a line");
    assert_eq!(ready["data"].as_str(), dir.path().to_str());
    assert!(ready["replayed_cells"].as_u64().expect("a number") >= 1, "{ready}");
    assert!(daemon.terminate().success());
}

#[test]
fn sigterm_finishes_what_is_under_way_and_exits_0() {
    let dir = directory();
    let daemon = Start::on(dir.path()).serve();
    let address = daemon.address();
    // A telnet point carries no acknowledgement; it must still be there after an orderly end.
    let mut telnet = connect(address);
    telnet.write_all(b"put m 1600000000 1 host=a\nversion\n").expect("send");
    let mut first = [0];
    std::io::Read::read_exact(&mut telnet, &mut first).expect("the answer to `version`");
    assert!(daemon.terminate().success());
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    let daemon = Start::on(dir.path()).serve();
    let answer = http(
        daemon.address(),
        "GET",
        "/api/query?start=1599999999&end=1600000001&m=sum:m%7Bhost=a%7D",
        None,
    );
    assert!(answer.body.contains(r#""1600000000":1"#), "{}", answer.body);
    assert!(daemon.terminate().success());
}

#[test]
fn an_idle_connection_does_not_hold_up_the_end() {
    let dir = directory();
    let daemon = Start::on(dir.path()).env("TSD_SHUTDOWN_TIMEOUT", "2").serve();
    let _telnet = connect(daemon.address());
    let mut half = connect(daemon.address());
    half.write_all(b"POST /api/put HTTP/1.1\r\nHost: tsd\r\nContent-Length: 100\r\n\r\n[")
        .expect("send");
    daemon.signal("INT");
    assert!(daemon.wait().success());
}

#[test]
fn memory_engine_keeps_nothing() {
    let dir = directory();
    let data = dir.path().join("never");
    let daemon = Start::on(&data).env("TSD_STORAGE_ENGINE", "memory").serve();
    assert!(converse(daemon.address(), b"put m 1600000000 1 host=a\n").is_empty());
    assert!(daemon.terminate().success());
    assert!(!data.exists());
}

#[test]
fn a_damaged_log_is_opened_only_with_consent() {
    let dir = directory();
    let daemon = Start::on(dir.path()).serve();
    for second in 0..20 {
        let point = format!(
            r#"{{"metric":"m","timestamp":{},"value":1,"tags":{{"host":"a"}}}}"#,
            1_600_000_000 + second
        );
        assert_eq!(http(daemon.address(), "POST", "/api/put", Some(&point)).status, 204);
    }
    daemon.kill();
    let segment = fs::read_dir(dir.path().join("log"))
        .expect("the log")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name != "lock"))
        .max_by_key(|path| fs::metadata(path).map_or(0, |m| m.len()))
        .expect("a segment");
    let mut bytes = fs::read(&segment).expect("read");
    let written = bytes.iter().rposition(|b| *b != 0).expect("records");
    bytes[written / 2] ^= 0x10;
    fs::write(&segment, bytes).expect("write");

    let (status, said) = Start::on(dir.path()).fail();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("--accept-damage"), "{said}");
    let name = segment.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(said.contains(name), "{said}");

    let daemon = Start::on(dir.path()).args(&["--accept-damage"]).serve();
    assert!(!daemon.at_level("ERROR").is_empty(), "what is lost is said");
    assert!(daemon.terminate().success());
}
