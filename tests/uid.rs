//! Tests `tsdb uid` and `tsdb mkmetric` as processes.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, StorageExt, Table};

use crate::{TSDB, in_process, tsdb};

fn directory() -> TempDir {
    tempfile::tempdir().expect("temporary directory")
}

/// Runs a command on a data directory.
fn on(data: &Path, arguments: &[&str]) -> Output {
    let (command, words) = arguments.split_first().expect("a command");
    Command::new(TSDB)
        .args([*command, "--data", data.to_str().expect("a path")])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("run tsdb")
}

/// Creates a data directory without points.
fn create(data: &Path) {
    let file = data.with_extension("points");
    std::fs::write(&file, "").expect("write");
    let import = on(data, &["import", "--create", file.to_str().expect("a path")]);
    assert!(import.status.success(), "{import:?}");
}

/// Runs `tsdb uid`: exit status, standard output, standard error.
fn uid(data: &Path, words: &[&str]) -> (i32, String, String) {
    let output = on(data, &[&["uid"], words].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("a status"), text(&output.stdout), text(&output.stderr))
}

/// Runs `tsdb uid`, which prints `expected` and exits with `status`.
fn check(data: &Path, words: &[&str], status: i32, expected: &str) {
    let (exit, stdout, stderr) = uid(data, words);
    assert_eq!((exit, stdout.as_str()), (status, expected), "{words:?}: {stderr}");
}

#[test]
fn names_are_assigned_found_renamed_and_deleted() {
    let dir = directory();
    let data = dir.path().join("data");
    create(&data);
    let made = on(&data, &["mkmetric", "sys.cpu", "sys.mem"]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(
        String::from_utf8_lossy(&made.stdout),
        "metrics sys.cpu: [0, 0, 1]\nmetrics sys.mem: [0, 0, 2]\n"
    );
    // An existing name is printed.
    check(&data, &["assign", "metrics", "sys.mem"], 0, "metrics sys.mem: [0, 0, 2]\n");
    check(&data, &["assign", "tagk", "Sys"], 0, "tagk Sys: [0, 0, 1]\n");
    check(&data, &["grep", "metrics", "cpu$"], 0, "metrics sys.cpu: [0, 0, 1]\n");
    check(&data, &["grep", "-i", "^sys$"], 0, "tagk Sys: [0, 0, 1]\n");
    check(&data, &["grep", "^sys$"], 1, "");
    check(&data, &["1"], 0, "metrics sys.cpu: [0, 0, 1]\ntagk Sys: [0, 0, 1]\n");
    check(&data, &["metrics", "2"], 0, "metrics sys.mem: [0, 0, 2]\n");
    check(&data, &["Sys"], 0, "tagk Sys: [0, 0, 1]\n");
    check(
        &data,
        &["rename", "metrics", "sys.mem", "sys.memory"],
        0,
        "metrics sys.mem -> sys.memory\n",
    );
    check(&data, &["metrics", "2"], 0, "metrics sys.memory: [0, 0, 2]\n");
    check(&data, &["delete", "metrics", "sys.cpu"], 0, "");
    check(&data, &["metrics", "1"], 1, "");
    let json = "[{\"kind\":\"metrics\",\"name\":\"sys.memory\",\"uid\":\"000002\"}]\n";
    check(&data, &["--json", "grep", "metrics", "."], 0, json);
    // UIDs of a deleted name are not reused.
    check(&data, &["assign", "metrics", "sys.cpu"], 0, "metrics sys.cpu: [0, 0, 3]\n");
}

#[test]
fn bad_input_has_opentsdbs_status_and_names_the_cause() {
    let dir = directory();
    let data = dir.path().join("data");
    let (status, _, stderr) = uid(&data, &["grep", "."]);
    assert_eq!(status, 3, "{stderr}");
    assert!(stderr.contains("there is no data here"), "{stderr}");
    create(&data);
    for (words, status, cause) in [
        (&["rename", "metrics", "a"][..], 2, "Wrong number of arguments"),
        (&["assign", "hosts", "a"], 2, "unknown kind 'hosts'"),
        (&["grep", "("], 2, "Invalid pattern \"(\""),
        (&["--idwidth", "9", "1"], 2, "--idwidth"),
        (&["--idwidth", "4", "assign", "metrics", "a"], 2, "--idwidth 4 contradicts the store"),
        (&["16777216"], 1, "16777216 is too large to fit on 3 bytes.  Maybe you forgot to adjust"),
        (&["metrics", "7"], 1, "No such unique ID for 'metrics': '7'"),
        (&["nothing"], 1, "No such name: 'nothing'"),
        (&["delete", "tagk", "nothing"], 1, "No such name for 'tagk': 'nothing'"),
        (&["rename", "tagk", "nothing", "b"], 1, "No such name for 'tagk': 'nothing'"),
        (&["assign", "tagk", ""], 3, "illegal name"),
        (&["assign", "tagk", "中"], 3, "illegal name"),
    ] {
        let (exit, stdout, stderr) = uid(&data, words);
        assert_eq!((exit, stdout.as_str()), (status, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(cause), "{words:?}: {stderr}");
    }
    check(&data, &["assign", "tagk", "a", "b"], 0, "tagk a: [0, 0, 1]\ntagk b: [0, 0, 2]\n");
    let (status, _, stderr) = uid(&data, &["rename", "tagk", "a", "b"]);
    assert_eq!(status, 3);
    assert!(stderr.contains("'b' already has UID"), "{stderr}");
}

#[test]
fn meta_objects_are_synchronized_and_purged() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = dir.path().join("points");
    std::fs::write(&file, "m 1356998400 1 host=a\nm 1357002000 2 host=a\nm 1356998400 1 host=b\n")
        .expect("write");
    let import = on(&data, &["import", "--create", file.to_str().expect("a path")]);
    assert!(import.status.success(), "{import:?}");
    // OpenTSDB prints nothing: its numbers are in the log.
    let (status, stdout, stderr) = uid(&data, &["metasync"]);
    assert_eq!((status, stdout.as_str()), (0, ""), "{stderr}");
    let numbers = "2 series, 2 counters created, 0 TSMeta created, 4 UIDMeta created";
    assert!(stderr.contains(numbers), "{stderr}");
    let (status, stdout, stderr) = uid(&data, &["--json", "metasync"]);
    assert_eq!(status, 0, "{stderr}");
    let numbers: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(numbers["TSMeta created"], 2, "{stdout}");
    assert_eq!(numbers["UIDMeta created"], 0, "{stdout}");
    let (status, stdout, stderr) = uid(&data, &["--json", "metapurge"]);
    assert_eq!(status, 0, "{stderr}");
    let numbers: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(numbers["UIDMeta deleted"], 4, "{stdout}");
    assert_eq!(numbers["TSMeta and counters deleted"], 4, "{stdout}");
    check(&data, &["metrics", "1"], 0, "metrics m: [0, 0, 1]\n");
    assert_eq!(uid(&data, &["metapurge", "now"]).0, 2);
}

#[test]
fn names_are_found_and_changed_through_the_daemon_of_the_directory() {
    let dir = directory();
    let data = dir.path().join("data");
    let daemon = tsdb(&data).start();
    let url = format!("http://{}", daemon.address());
    let made = on(&data, &["mkmetric", "sys.cpu", "sys.mem"]);
    assert!(made.status.success(), "{made:?}");
    assert!(made.stderr.is_empty(), "{made:?}");
    check(&data, &["assign", "metrics", "sys.mem"], 0, "metrics sys.mem: [0, 0, 2]\n");
    check(&data, &["assign", "tagk", "h o"], 3, "");
    check(&data, &["assign", "tagk", "Sys"], 0, "tagk Sys: [0, 0, 1]\n");
    check(&data, &["grep", "metrics", "cpu$"], 0, "metrics sys.cpu: [0, 0, 1]\n");
    check(&data, &["grep", "-i", "^sys$"], 0, "tagk Sys: [0, 0, 1]\n");
    check(&data, &["grep", "^sys$"], 1, "");
    check(&data, &["grep", "("], 2, "");
    check(&data, &["1"], 0, "metrics sys.cpu: [0, 0, 1]\ntagk Sys: [0, 0, 1]\n");
    check(&data, &["Sys"], 0, "tagk Sys: [0, 0, 1]\n");
    check(&data, &["metrics", "9"], 1, "");
    check(&data, &["rename", "tagk", "Sys", "host"], 0, "tagk Sys -> host\n");
    check(&data, &["rename", "tagk", "Sys", "dc"], 1, "");
    check(&data, &["rename", "metrics", "sys.cpu", "sys.mem"], 3, "");
    let json = "[{\"kind\":\"metrics\",\"name\":\"sys.mem\",\"uid\":\"000002\"}]\n";
    check(&data, &["--json", "--url", &url, "grep", "metrics", "mem"], 0, json);
    // Commands that the daemon's API lacks.
    for words in [&["delete", "tagk", "host"][..], &["fsck"], &["fsck", "fix"]] {
        let (status, stdout, stderr) = uid(&data, words);
        assert_eq!((status, stdout.as_str()), (3, ""), "{words:?}: {stderr}");
        assert!(stderr.contains("in use by process") && stderr.contains(&url), "{stderr}");
    }
    assert!(daemon.terminate().success());
    check(
        &data,
        &["grep", "tagk", "."],
        0,
        "tagk \0: [0, 0, 0, 0, 0, 0, 0, 1]\ntagk host: [0, 0, 1]\n",
    );
}

#[test]
fn damaged_mappings_are_found_and_repaired() {
    let dir = directory();
    let data = dir.path().join("data");
    create(&data);
    assert!(on(&data, &["mkmetric", "m", "n"]).status.success());
    let clean = ["INFO Maximum ID for metrics: 2", "INFO No errors found."];
    check(&data, &["fsck"], 0, "");
    check(&data, &["-v", "fsck"], 0, &(clean.join("\n") + "\n"));
    let runtime = Runtime::new().expect("runtime");
    let node = in_process::start(&runtime, &data, &[]).expect("a daemon");
    for (row, family, qualifier, value) in [
        (&b"o"[..], Family::Id, &b"metrics"[..], &[0, 0, 1][..]),
        (b"p", Family::Id, b"metrics", &[0, 0, 9]),
        (&[0, 0, 7], Family::Name, b"metrics", b"q"),
    ] {
        let cell = CellRef { family, qualifier, value, timestamp_ms: None };
        let batch = CellBatch::single(row, cell).expect("a cell");
        runtime.block_on(node.storage().put(&Table::new("tsdb-uid"), batch)).expect("planted");
    }
    in_process::stop(&runtime, node);
    let (status, stdout, stderr) = uid(&data, &["fsck"]);
    assert!(stderr.contains(" cells checked: "), "{stderr}");
    assert_eq!(status, 4, "{stdout}");
    for line in [
        "ERROR Forward metrics mapping is missing reverse mapping: p -> 000009",
        "ERROR Forward metrics mapping o -> 000001 is different than reverse mapping: 000001 -> m",
        "WARN Reverse metrics mapping is missing forward mapping: q -> 000007",
        "ERROR We found an ID of 9 for metrics but the max ID is only 2!  Future IDs may be \
         double-assigned!",
        "ERROR metrics: Found 4 errors.",
        "WARN 4 errors found.",
    ] {
        assert!(stdout.lines().any(|found| found == line), "{line}\n{stdout}");
    }
    let (status, stdout, stderr) = uid(&data, &["--json", "fsck", "fix"]);
    assert_eq!(status, 4, "{stdout}");
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&json["errors"], &json["failedRepair"]), (&4.into(), &false.into()), "{json}");
    assert!(stderr.contains("keeps the name [m]"), "{stderr}");
    check(&data, &["1"], 0, "metrics m: [0, 0, 1]\n");
    check(&data, &["o"], 1, "");
    let (status, stdout, _) = uid(&data, &["fsck"]);
    assert_eq!(status, 0, "{stdout}");
    check(&data, &["fsck", "fxi"], 2, "");
    check(&data, &["fsck", "delete_unknown"], 2, "");
}
