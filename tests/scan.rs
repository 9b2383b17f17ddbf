//! Tests `tsdb scan` as a process: its lines, their import by `tsdb import`, deletes, and a running daemon.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use tokio::runtime::Runtime;
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, StorageExt, Table};
use tsd_testkit::http;

use crate::{TSDB, in_process, tsdb};

/// 2013-01-01, the start of an hour.
const HOUR: u32 = 1_356_998_400;

const POINTS: &str = r#"[
    {"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}},
    {"metric":"m","timestamp":1356998401,"value":-300,"tags":{"host":"a"}},
    {"metric":"m","timestamp":1356998402500,"value":-2.5,"tags":{"host":"a"}},
    {"metric":"m","timestamp":1357002000,"value":9223372036854775807,"tags":{"host":"a"}},
    {"metric":"m","timestamp":1356998400,"value":1500000000.0,"tags":{"host":"b","dc":"x"}}]"#;

/// Makes a store without salt that has [`POINTS`], an annotation and a histogram in the first row, and columns
/// of several points.
fn store(data: &Path) {
    let runtime = Runtime::new().expect("runtime");
    let settings = [("tsd.storage.salt.width", "0")];
    let node = in_process::start(&runtime, data, &settings).expect("a daemon");
    let response = http(node.address(), "POST", "/api/put", Some(POINTS));
    assert_eq!(response.status, 204, "{}", response.body);
    let mut batch = CellBatch::new();
    batch.begin_row(&key(HOUR)).expect("a key");
    for (qualifier, value) in [
        (&[1, 0, 32][..], &b"{}"[..]),
        (&[6, 0, 0], &[7, 8]),
        (&[0x03, 0x20, 0x03, 0x10], &[4, 5, 0]),
    ] {
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        batch.push(cell).expect("a cell");
    }
    runtime.block_on(node.storage().put(&Table::new("tsdb"), batch)).expect("planted");
    in_process::stop(&runtime, node);
}

/// The key of an hour of `m host=a`.
fn key(hour: u32) -> Vec<u8> {
    [&[0, 0, 1][..], &hour.to_be_bytes(), &[0, 0, 1, 0, 0, 1]].concat()
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    let (command, words) = arguments.split_first().expect("a command");
    Command::new(TSDB)
        .args([*command, "--data", data.to_str().expect("a path")])
        .args(words)
        .env("TSD_STORAGE_SALT_WIDTH", "0")
        .stdin(Stdio::null())
        .output()
        .expect("run tsdb")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a scan that succeeds.
fn scan(data: &Path, arguments: &[&str]) -> String {
    let output = run(data, &[&["scan"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

#[test]
fn rows_are_printed_as_they_are_stored() {
    let directory = in_process::directory();
    let data = directory.path();
    store(data);
    let lines = scan(data, &["1356998400", "1356998410", "sum", "m", "host=a"]);
    let lines: Vec<&str> = lines.lines().collect();
    let date = "(Tue Jan 01 00:00:0";
    assert_eq!(
        lines[0],
        format!(
            "[0, 0, 1, 80, -30, 39, 0, 0, 0, 1, 0, 0, 1] m 1356998400 {date}0 UTC 2013) {{host=a}}"
        )
    );
    for expected in [
        "  [1, 0, 32]\t[123, 125]\t2\t{}\t1356998416000\t(Tue Jan 01 00:00:16 UTC 2013)",
        "  [7, 8]\t[Not a data point]",
        "  [3, 32, 3, 16]\t[4, 5, 0] = 2 values:",
        "    [3, 16]\t[5]\t49\tl\t1356998449\t(Tue Jan 01 00:00:49 UTC 2013)",
    ] {
        assert!(lines.contains(&expected), "{expected}\n{lines:#?}");
    }
    // The store may have compacted its rows, so that the points are in a compacted column.
    for point in [
        format!("[0, 0]\t[1]\t0\tl\t1356998400\t{date}0 UTC 2013)"),
        format!("[0, 17]\t[-2, -44]\t1\tl\t1356998401\t{date}1 UTC 2013)"),
        format!(
            "[-16, 2, 113, 15]\t[-64, 4, 0, 0, 0, 0, 0, 0]\t2500\tf\t1356998402500\t{date}2 UTC 2013)"
        ),
    ] {
        assert!(lines.iter().any(|line| line.trim_start() == point), "{point}\n{lines:#?}");
    }
    // Whole hours, and without an end all later ones.
    let rows = |arguments: &[&str]| {
        scan(data, arguments).lines().filter(|line| line.starts_with('[')).count()
    };
    assert_eq!(rows(&["1357000000", "1357000010", "sum", "m", "host=a"]), 1);
    assert_eq!(rows(&["1357000000", "sum", "m", "host=a"]), 2);
    assert_eq!(rows(&["1357000000", "sum", "m"]), 3);
    assert_eq!(rows(&["1357000000", "sum", "m", "host=a", "sum", "m", "host=b"]), 3);
    let missing = run(data, &["scan", "1357000000", "sum", "nothing"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert_eq!(run(data, &["scan", "1357000000", "sum"]).status.code(), Some(2));
}

#[test]
fn lines_for_the_importer_make_the_same_points() {
    let directory = in_process::directory();
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    store(&data);
    let lines = scan(&data, &["--import", "1356998400", "sum", "m"]);
    let mut sorted: Vec<&str> = lines.lines().collect();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "m 1356998400 1 host=a",
            "m 1356998400 1.5E9 host=b dc=x",
            "m 1356998401 -300 host=a",
            "m 1356998402500 -2.5 host=a",
            "m 1356998449 5 host=a",
            "m 1356998450 4 host=a",
            "m 1357002000 9223372036854775807 host=a",
        ]
    );
    let file = directory.path().join("lines");
    fs::write(&file, &lines).expect("write");
    let file = file.to_str().expect("a path");
    // Columns of a row are in the order of their bytes, not of their times.
    let allow = ("TSD_CORE_BULK_ALLOW_OUT_OF_ORDER_TIMESTAMPS", "true");
    let import = Command::new(TSDB)
        .args(["import", "--create", "--data", copy.to_str().expect("a path"), file])
        .env("TSD_STORAGE_SALT_WIDTH", "0")
        .env(allow.0, allow.1)
        .output()
        .expect("run tsdb");
    assert!(import.status.success(), "{import:?}");
    assert!(text(&import.stdout).contains("Total: imported 7 data points"), "{import:?}");
    let again = scan(&copy, &["--import", "1356998400", "sum", "m"]);
    let mut again: Vec<&str> = again.lines().collect();
    again.sort_unstable();
    assert_eq!(again, sorted);
    let query = |data: &Path| {
        let output = run(data, &["query", "1356998400", "1357010000", "none", "m"]);
        assert!(output.status.success(), "{output:?}");
        let text = text(&output.stdout);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(query(&copy), query(&data));
}

#[test]
fn deleted_rows_are_printed_and_counted() {
    let directory = in_process::directory();
    let data = directory.path();
    store(data);
    let words = ["1356998400", "1356998410", "sum", "m", "host=a"];
    // Nothing is deleted without the option.
    scan(data, &words);
    let before = scan(data, &["--import", "1356998400", "sum", "m"]);
    let deleted = run(data, &[&["scan", "--delete"], &words[..]].concat());
    assert!(deleted.status.success(), "{deleted:?}");
    assert!(text(&deleted.stderr).contains("tsdb: 1 rows deleted"), "{deleted:?}");
    let printed = text(&deleted.stdout);
    assert_eq!(printed.lines().count(), 5, "{printed}");
    let after = scan(data, &["--import", "1356998400", "sum", "m"]);
    let mut all: Vec<&str> = after.lines().chain(printed.lines()).collect();
    let mut expected: Vec<&str> = before.lines().collect();
    all.sort_unstable();
    expected.sort_unstable();
    assert_eq!(all, expected);
    // Its annotation and its histogram are gone, too.
    assert!(!scan(data, &["1356998400", "sum", "m"]).contains("[Not a data point]"));
}

#[test]
fn rows_are_not_deleted_if_their_lines_have_no_place() {
    let directory = in_process::directory();
    let data = directory.path();
    store(data);
    let before = scan(data, &["1356998400", "sum", "m"]);
    let redirected = |redirection: &str| {
        let command =
            format!("exec {TSDB} scan --delete --data \"$1\" 1356998400 sum m {redirection}");
        Command::new("sh")
            .args(["-c", &command, "sh", data.to_str().expect("a path")])
            .env("TSD_STORAGE_SALT_WIDTH", "0")
            .stdin(Stdio::null())
            .output()
            .expect("run sh")
    };
    for (redirection, message) in [
        (">&-", "standard output is closed"),
        ("1</dev/null", "Bad file descriptor"),
        (">/dev/full", "No space left on device"),
    ] {
        let refused = redirected(redirection);
        assert_eq!(refused.status.code(), Some(1), "{redirection} {refused:?}");
        assert!(text(&refused.stderr).contains(message), "{redirection} {refused:?}");
        assert_eq!(scan(data, &["1356998400", "sum", "m"]), before, "{redirection}");
    }
    let deleted = redirected(">/dev/null");
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!(scan(data, &["1356998400", "sum", "m"]), "");
}

#[test]
fn beside_a_daemon_it_says_what_to_do() {
    let directory = in_process::directory();
    let daemon = tsdb(directory.path()).start();
    for (arguments, advice) in [
        (&["scan", "1h-ago", "sum", "m"][..], "tsdb snapshot"),
        (&["scan", "--delete", "1h-ago", "sum", "m"], "tsd.http.query.allow_delete"),
    ] {
        let refused = run(directory.path(), arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let stderr = text(&refused.stderr);
        assert!(stderr.contains("in use by process") && stderr.contains(advice), "{stderr}");
        assert!(stderr.contains(&daemon.address().to_string()), "{stderr}");
    }
    assert!(daemon.terminate().success());
}
