//! `tsdb copy` as a process, between data directories and a fake HBase: interrupted, with a catch-up, and with a
//! daemon on the directory.

mod damaged;

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tokio::runtime::Runtime;
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, StorageExt, Table};
use tsd_testkit::{http, wait_for};

use crate::{TSDB, hbase_fake::HBase, in_process, invariants::ROLLUPS, tsdb};

/// 2020-09-13T12:00:00Z, the start of an hour.
const HOUR: u64 = 1_599_998_400;
/// Hours, and points of a series in each.
const HOURS: u64 = 40;
const POINTS: u64 = 30;
const METRICS: [&str; 3] = ["sys.cpu", "sys.mem", "web"];
const HOSTS: [&str; 2] = ["a", "b"];

/// The body of a put.
fn body() -> String {
    let mut points = Vec::new();
    for (m, metric) in METRICS.iter().enumerate() {
        for host in HOSTS {
            for hour in 0..HOURS {
                for n in 0..POINTS {
                    let (at, value) = (HOUR + hour * 3_600 + n * 100, m as u64 * 1_000 + n);
                    points.push(format!(
                        r#"{{"metric":"{metric}","timestamp":{at},"value":{value},"tags":{{"host":"{host}"}}}}"#
                    ));
                }
            }
        }
    }
    format!("[{}]", points.join(","))
}

const ANNOTATION: &str = r#"{"startTime":1599998405,"description":"released"}"#;

/// Makes a data directory with the points, a global annotation, and some damaged cells.
fn store(data: &Path, settings: &[(&str, &str)]) {
    let runtime = Runtime::new().expect("runtime");
    let settings = [&[("tsd.core.auto_create_metrics", "true")], settings].concat();
    let node = in_process::start(&runtime, data, &settings).expect("a daemon");
    for (path, body) in [("/api/put", body().as_str()), ("/api/annotation", ANNOTATION)] {
        let response = http(node.address(), "POST", path, Some(body));
        assert!(response.status < 300, "{}", response.body);
    }
    let mut batch = CellBatch::new();
    let salt: &[u8] = if settings.contains(&("tsd.storage.salt.width", "0")) { &[] } else { &[0] };
    batch.begin_row(&[salt, &[0, 0, 1], &[9; 4], &[0, 0, 1, 0, 0, 1]].concat()).expect("a key");
    for (qualifier, value) in [(&[7][..], &[1][..]), (&[0, 0x1B], &[1, 2, 3]), (&[0, 0], &[])] {
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: Some(17) };
        batch.push(cell).expect("a cell");
    }
    runtime.block_on(node.storage().put(&Table::new("tsdb"), batch)).expect("planted");
    in_process::stop(&runtime, node);
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn command(from: &str, to: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(TSDB);
    command.args(["copy", "--from", from, "--to", to, "--json"]).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn copy(from: &str, to: &str, arguments: &[&str]) -> Output {
    command(from, to, arguments).output().expect("run tsdb")
}

/// The report of a copy with this exit status.
#[track_caller]
fn report(output: &Output, status: i32) -> Value {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn refused(output: &Output, text: &str) {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(text), "{stderr}");
}

/// The points of a store, sorted.
#[track_caller]
fn points(place: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for metric in METRICS {
        let output = Command::new(TSDB)
            .arg("query")
            .args(place)
            .args([HOUR.to_string(), (HOUR + HOURS * 3_600).to_string()])
            .args(["none", metric])
            .output()
            .expect("run tsdb");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort_unstable();
    lines
}

#[test]
fn stores_are_copied_to_hbase_and_back_with_other_keys() {
    let directory = in_process::directory();
    let (data, wide) = (directory.path().join("data"), directory.path().join("wide"));
    store(&data, &[]);
    let expected = points(&["--data", path(&data)]);
    assert_eq!(expected.len() as u64, 6 * HOURS * POINTS);
    let hbase = HBase::with_tables();
    let state = directory.path().join("to-hbase.json");
    let to_hbase = ["--verify", "--state", path(&state)];
    // The directory is salted, the tables are not.
    let copied = report(&copy(path(&data), hbase.quorum(), &to_hbase), 0);
    assert_eq!((&copied["keys"], &copied["clean"]), (&"rebuilt".into(), &true.into()));
    let cells = copied["compared"].as_array().expect("tables").iter().find(|t| t["from"] == "tsdb");
    let cells = cells.expect("the data table");
    assert_eq!(cells["source"], cells["target"]);
    assert_eq!(cells["source"]["cells"], 6 * HOURS * POINTS + 1 + 3);
    let file: Value = serde_json::from_slice(&fs::read(&state).expect("the state")).expect("JSON");
    assert_eq!(file["complete"], true);
    assert_eq!(points(&["--zkquorum", hbase.quorum(), "--data", path(directory.path())]), expected);

    let widths = "tsd.storage.uid.width.metric=4";
    let to_wide = ["--to-set", widths, "--to-set", "tsd.storage.salt.width=2", "--verify"];
    let copied = report(&copy(hbase.quorum(), path(&wide), &to_wide), 0);
    assert_eq!(copied["keys"], "rebuilt");
    assert_eq!(points(&["--data", path(&wide)]), expected);
    let schema = fs::read_to_string(wide.join("schema.conf")).expect("the key layout");
    assert!(schema.contains("tsd.storage.salt.width = 2"), "{schema}");

    // Without other settings a new directory has the keys of the source.
    let same = directory.path().join("same");
    let copied = report(&copy(hbase.quorum(), path(&same), &["--verify"]), 0);
    assert_eq!(copied["keys"], "same");
    assert_eq!(points(&["--data", path(&same)]), expected);
    assert_eq!(report(&copy(path(&wide), path(&same), &["--compare"]), 0)["clean"], true);
}

#[test]
fn rollups_are_copied_with_rebuilt_keys() {
    let directory = in_process::directory();
    let (data, wide) = (directory.path().join("data"), directory.path().join("wide"));
    let settings = [("tsd.rollups.enable", "true"), ("tsd.rollups.config", ROLLUPS)];
    let runtime = Runtime::new().expect("runtime");
    let node = in_process::start(&runtime, &data, &settings).expect("a daemon");
    let (mut values, last) = (Vec::new(), HOUR + 30 * 3_600);
    for hour in 0..=30 {
        for group in ["", r#","groupByAggregator":"sum""#] {
            let at = HOUR + hour * 3_600;
            values.push(format!(
                r#"{{"metric":"sys.cpu","timestamp":{at},"value":{hour},"interval":"1h","aggregator":"sum","tags":{{"host":"a"}}{group}}}"#
            ));
        }
    }
    let body = format!("[{}]", values.join(","));
    let response = http(node.address(), "POST", "/api/rollup", Some(&body));
    assert_eq!(response.status, 204, "{}", response.body);
    let uri = format!("/api/query?start={HOUR}&end={last}&m=sum:1h-sum:rollup_nofallback:sys.cpu");
    let expected = http(node.address(), "GET", &uri, None).body;
    assert!(expected.contains(&format!("\"{last}\":30")), "{expected}");
    in_process::stop(&runtime, node);

    let rollups = format!("tsd.rollups.config={ROLLUPS}");
    let from = ["--from-set", "tsd.rollups.enable=true", "--from-set", rollups.as_str()];
    let to = ["--to-set", "tsd.storage.uid.width.metric=4", "--verify"];
    let copied = copy(path(&data), path(&wide), &[&from[..], &to].concat());
    let copied = report(&copied, 0);
    assert_eq!(copied["keys"], "rebuilt");
    let compared = copied["compared"].as_array().expect("tables");
    for table in ["tsdb-1h", "tsdb-preagg-1h"] {
        let cells = compared.iter().find(|one| one["from"] == table).expect("a table of rollups");
        assert_eq!((&cells["source"]["cells"], &cells["target"]), (&31.into(), &cells["source"]));
    }
    let node = in_process::start(&runtime, &wide, &settings).expect("a daemon");
    let read = http(node.address(), "GET", &uri, None).body;
    in_process::stop(&runtime, node);
    assert_eq!(read, expected);
}

#[test]
fn what_came_later_is_caught_up_with() {
    let directory = in_process::directory();
    let (hbase, other) = (HBase::with_tables(), HBase::with_tables());
    let state = directory.path().join("state.json");
    let daemon = hbase.daemon(&directory.path().join("daemon")).start();
    let put = |body: &str| {
        let response = http(daemon.address(), "POST", "/api/put", Some(body));
        assert_eq!(response.status, 204, "{}", response.body);
    };
    put(&body());
    let run = |arguments: &[&str]| {
        let arguments = [&["--state", path(&state), "--margin", "0"], arguments].concat();
        copy(hbase.quorum(), other.quorum(), &arguments)
    };
    refused(&run(&["--since", "last"]), "no state of an earlier copy");
    let first = report(&run(&["--verify"]), 0);
    assert_eq!(first["keys"], "same");
    let all = first["tables"]["tsdb"]["cells"].as_u64().expect("a number");
    assert_eq!(all, 6 * HOURS * POINTS);
    // Corrections, points of an old hour, and a name that is new.
    let later = HOUR + 3_600;
    put(&format!(
        r#"[{{"metric":"web","timestamp":{HOUR},"value":-1000,"tags":{{"host":"a"}}}},
            {{"metric":"web","timestamp":{later},"value":-1001,"tags":{{"host":"a"}}}},
            {{"metric":"web","timestamp":{},"value":-3,"tags":{{"host":"new"}}}}]"#,
        later + 7
    ));
    assert_eq!(report(&run(&["--compare"]), 1)["clean"], false);
    let next = report(&run(&["--since", "last", "--verify"]), 0);
    assert_eq!(next["tables"]["tsdb"]["cells"], 3, "{next}");
    let rest = report(&run(&["--since", "last", "--verify"]), 0);
    assert_eq!(rest["tables"]["tsdb"]["cells"].as_u64().unwrap_or_default(), 0, "{rest}");
    let data = directory.path().join("query");
    let read = |quorum: &str| points(&["--zkquorum", quorum, "--data", path(&data)]);
    let lines = read(other.quorum());
    assert_eq!(lines, read(hbase.quorum()));
    assert!(
        lines.iter().any(|line| line.starts_with(&format!("web {HOUR}000 -1000"))),
        "{lines:?}"
    );

    assert!(daemon.terminate().success());

    // A deleted row is named, and stays until it is deleted there too.
    let arguments = ["scan", "--delete", &HOUR.to_string(), &HOUR.to_string(), "sum", "sys.mem"];
    let scanned = hbase.tool(&arguments, &[]);
    assert!(scanned.status.success(), "{scanned:?}");
    let compared = run(&["--compare"]);
    let table = &report(&compared, 1)["compared"];
    let data = table.as_array().expect("tables").iter().find(|table| table["from"] == "tsdb");
    let data = data.expect("the data table");
    assert_eq!((&data["onlyInTarget"], &data["different"]), (&2.into(), &0.into()), "{data}");
    let stderr = String::from_utf8_lossy(&compared.stderr);
    assert!(stderr.contains("(sys.mem host=a at 1599998400): only in the target"), "{stderr}");
}

#[test]
fn interrupted_copies_go_on() {
    let directory = in_process::directory();
    let (data, target) = (directory.path().join("data"), directory.path().join("target"));
    store(&data, &[("tsd.storage.salt.width", "0")]);
    let state = directory.path().join("target.copy-state.json");
    for signal in ["-TERM", "-KILL", "-INT"] {
        let mut slow = command(path(&data), path(&target), &["--rate", "3000", "--threads", "1"]);
        let child = slow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run tsdb");
        let log = target.join("log");
        let has_begun = || (state.exists() && log.exists()).then_some(());
        wait_for(has_begun).expect("the state");
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.expect("run kill").success());
        let stopped = child.wait_with_output().expect("an exit status");
        let status = stopped.status.code();
        assert!([Some(143), Some(130), None, Some(0)].contains(&status), "{stopped:?}");
        if status.is_some_and(|status| status > 0) {
            let stderr = String::from_utf8_lossy(&stopped.stderr);
            assert!(stderr.contains("run the same command again"), "{stderr}");
        }
    }
    let other = ["--metric", "web"];
    refused(&copy(path(&data), path(&target), &other), "belongs to another copy");
    // The same directory, whichever way it is written.
    let target_with_separator = format!("{}/", path(&target));
    let rest = report(&copy(path(&data), &target_with_separator, &["--verify"]), 0);
    assert_eq!(rest["tables"]["tsdb"]["rows"], 6 * HOURS + 2, "{rest}");
    assert_eq!(points(&["--data", path(&target)]), points(&["--data", path(&data)]));
    assert!(!target.join(".copy-state.json").exists(), "the state is beside the directory");
    // The state of a target that is gone says nothing about a new one.
    fs::remove_dir_all(&target).expect("the target");
    let text = fs::read_to_string(&state).expect("the state");
    let is_complete = "\"complete\": true,\n  \"tables\"";
    assert!(text.contains(is_complete), "{text}");
    fs::write(&state, text.replace(is_complete, &is_complete.replace("true", "false")))
        .expect("write");
    let anew = report(&copy(path(&data), path(&target), &["--verify"]), 0);
    assert_eq!(anew["tables"]["tsdb"]["rows"], 6 * HOURS + 2, "{anew}");
    // A selection of the same stores has a separate state.
    let part = directory.path().join("part");
    let selected =
        ["--metric", "sys.*", "--start", &HOUR.to_string(), "--end", &(HOUR + 1).to_string()];
    let selected = [&selected[..], &["--verify", "--dry-run"]].concat();
    assert_eq!(
        copy(path(&data), path(&part), &selected).status.code(),
        Some(2),
        "contradicting options"
    );
    let dry =
        report(&copy(path(&data), path(&part), &[&selected[..6], &["--dry-run"]].concat()), 0);
    assert_eq!(dry["tables"]["tsdb"]["rows"], 4);
    assert!(!part.exists(), "nothing was written");
    let copied =
        report(&copy(path(&data), path(&part), &[&selected[..6], &["--verify"]].concat()), 0);
    assert_eq!(copied["tables"]["tsdb"]["rows"], 4);
}

#[test]
fn places_are_named_in_three_ways_and_mistakes_in_words() {
    let directory = in_process::directory();
    let data = directory.path().join("data");
    store(&data, &[]);
    let conf = directory.path().join("opentsdb.conf");
    fs::write(&conf, format!("tsd.storage.data_directory = {}\n", data.display())).expect("write");
    let target = directory.path().join("target");
    let copied = report(&copy(path(&conf), path(&target), &["--tables", "uid,data"]), 0);
    assert_eq!(copied["keys"], "same");
    assert_eq!(report(&copy(path(&data), path(&target), &["--compare"]), 0)["clean"], true);

    refused(&copy(path(&conf), path(&data), &[]), "the same store");
    let missing = directory.path().join("missing");
    refused(&copy(path(&missing), path(&target), &[]), "there is no data here");
    refused(
        &copy(path(&data), path(&target), &["--to-set", "no.such=1"]),
        "there is no key no.such",
    );
    refused(
        &copy(path(&data), path(&missing), &["--metric", "nothing"]),
        "no metric of the source matches",
    );
    refused(
        &copy(path(&data), path(&missing), &["--start", "2", "--end", "1"]),
        "later than --end",
    );
    // Issue 37. A store within a store, and a success that copied nothing.
    refused(&copy(path(&data), path(&data.join("sub")), &[]), "one inside the other");
    let other = ["--from-set", "tsd.storage.hbase.data_table=other"];
    let unwritten = directory.path().join("unwritten");
    refused(&copy(path(&data), path(&unwritten), &other), "has no table other, only tsdb;");
    assert!(!unwritten.exists() && !data.join("sub").exists());
    let daemon = tsdb(&data).start();
    refused(&copy(path(&data), path(&target), &[]), "take a snapshot (`tsdb snapshot TARGET`");
    assert!(daemon.terminate().success());
}
