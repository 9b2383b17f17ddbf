//! Tests `tsdb fsck` as a process: its output and exit status, stopped and continued.

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

use crate::{TSDB, in_process, tsdb};

/// Start of the first hour of the damaged rows.
const HOUR: u32 = 0x50E2_2700;
/// Rows of the store without salt: damaged rows, and an intact row.
const DAMAGED_ROWS: u32 = 3_000;

/// Makes a store without salt: series `m host=a`, a row with a duplicate, rows with unknown columns.
fn damaged_store(data: &Path) {
    let runtime = Runtime::new().expect("runtime");
    let settings = [("tsd.storage.salt.width", "0"), ("tsd.core.auto_create_metrics", "true")];
    let node = in_process::start(&runtime, data, &settings).expect("a daemon");
    let body = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"}}"#;
    let response = http(node.address(), "POST", "/api/put", Some(body));
    assert_eq!(response.status, 204, "{}", response.body);
    let mut batch = CellBatch::new();
    let mut put = |hour: u32, cells: &[(&[u8], &[u8])]| {
        let key = [&[0, 0, 1][..], &hour.to_be_bytes(), &[0, 0, 1, 0, 0, 1]].concat();
        batch.begin_row(&key).expect("a key");
        for &(qualifier, value) in cells {
            let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
            batch.push(cell).expect("a cell");
        }
    };
    put(HOUR, &[(&[0, 0], &[4]), (&[0, 1], &[1, 5])]);
    for row in 1..=DAMAGED_ROWS {
        put(HOUR + row * 3_600, &[(&[7], &[1]), (&[0, 0], &[4])]);
    }
    runtime.block_on(node.storage().put(&Table::new("tsdb"), batch)).expect("planted");
    in_process::stop(&runtime, node);
}

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(TSDB);
    command.args(["fsck", "--data", data.to_str().expect("a path")]).args(arguments);
    command.env("TSD_STORAGE_SALT_WIDTH", "0").stdin(Stdio::null());
    command
}

fn fsck(data: &Path, arguments: &[&str]) -> Output {
    command(data, arguments).output().expect("run tsdb")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The exit status and a counter of standard output.
fn counted(output: &Output, label: &str) -> (Option<i32>, u64) {
    let stdout = text(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix(&format!("INFO {label}: ")));
    let count = line.unwrap_or_else(|| panic!("no {label}: {output:?}")).parse().expect("a number");
    (output.status.code(), count)
}

#[test]
fn damage_is_found_repaired_and_gone() {
    let directory = in_process::directory();
    let data = directory.path();
    damaged_store(data);
    let errors = u64::from(DAMAGED_ROWS) + 1;
    for _ in 0..2 {
        let dry = fsck(data, &["--full-scan"]);
        assert_eq!(counted(&dry, "Total Errors"), (Some(1), errors));
        assert_eq!(counted(&dry, "Total Errors Fixed"), (Some(1), 0));
        let lines = text(&dry.stdout);
        assert!(
            lines.contains("ERROR Invalid qualifier, must be on 2 bytes or more.\n\tKeyValue(")
        );
        assert!(
            lines.contains(
                "More than one column had a value for the same timestamp: (1356998400000"
            )
        );
        assert!(lines.contains("INFO Completed fsck in ["));
    }
    let hour = HOUR.to_string();
    let one_row = ["--fix-all", &hour, &hour, "sum", "m", "host=a"];
    let fixed = fsck(data, &one_row);
    // Newest wins, by the default of our tables.
    assert!(text(&fixed.stdout).contains("<--- keep latest"), "{fixed:?}");
    assert_eq!(counted(&fixed, "Duplicate Datapoints Resolved"), (Some(1), 1));
    assert_eq!(fsck(data, &one_row).status.code(), Some(0));
    let json = fsck(data, &["--full-scan", "--fix-all", "--json"]);
    assert_eq!(json.status.code(), Some(1), "{json:?}");
    let value: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(value["completed"], true);
    assert_eq!(value["counters"]["Unknown Objects Deleted"], DAMAGED_ROWS);
    assert!(text(&json.stderr).contains("ERROR Invalid qualifier"), "findings");
    let clean = fsck(data, &["--full-scan", "--threads=1"]);
    assert_eq!(counted(&clean, "Valid Datapoints"), (Some(0), u64::from(DAMAGED_ROWS) + 2));
}

#[test]
fn stopped_check_goes_on_where_it_stopped() {
    let directory = in_process::directory();
    let data = directory.path().join("data");
    damaged_store(&data);
    let checkpoint = directory.path().join("checkpoint.json");
    let file = checkpoint.to_str().expect("a path");
    let arguments = ["--full-scan", "--fix", "--delete-unknown-columns", "--checkpoint", file];
    let mut slow = command(&data, &arguments);
    slow.args(["--rate", "500"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = directory.path().join("out");
    slow.stdout(fs::File::create(&out).expect("a file"));
    let child = slow.spawn().expect("run tsdb");
    // The row before the rows with unknown columns also has a finding, but nothing to delete.
    let has_begun =
        || fs::read_to_string(&out).is_ok_and(|t| t.contains("Invalid qualifier")).then_some(());
    wait_for(has_begun).expect("the first unknown column");
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.expect("run kill").success());
    let stopped = child.wait_with_output().expect("an exit status");
    assert_eq!(stopped.status.code(), Some(143), "{stopped:?}");
    assert!(text(&stopped.stderr).contains("run the same command again"), "{stopped:?}");
    let printed = fs::read_to_string(&out).expect("the output");
    assert!(printed.contains("WARN Stopped fsck after ["), "{printed}");
    let deleted = |text: &str| -> u64 {
        let line = text.lines().find_map(|l| l.strip_prefix("INFO Unknown Objects Deleted: "));
        line.expect("a counter").parse().expect("a number")
    };
    let first = deleted(&printed);
    assert!((1..u64::from(DAMAGED_ROWS)).contains(&first), "{first}");

    // Of other rows, with other repairs, of another store.
    let saved = fs::read_to_string(&checkpoint).expect("the checkpoint");
    for (data, arguments) in [
        (&data, &["0", "sum", "m", "--checkpoint", file][..]),
        (&data, &["--full-scan", "--checkpoint", file]),
        (&data, &["--full-scan", "--fix-all", "--checkpoint", file]),
        (&directory.path().join("other"), &arguments),
    ] {
        let other = fsck(data, arguments);
        assert_eq!(other.status.code(), Some(2), "{other:?}");
        assert!(text(&other.stderr).contains("of another check"), "{other:?}");
        assert_eq!(fs::read_to_string(&checkpoint).expect("the checkpoint"), saved);
    }
    // The counters cover the whole check.
    let rest = fsck(&data, &arguments);
    assert_eq!(deleted(&text(&rest.stdout)), u64::from(DAMAGED_ROWS));
    assert_eq!(counted(&rest, "Total Errors"), (Some(1), u64::from(DAMAGED_ROWS) + 1));
    assert!(!checkpoint.exists(), "the check is complete");
    assert_eq!(fsck(&data, &["--full-scan"]).status.code(), Some(1), "the duplicate");
}

#[test]
fn check_without_rows_or_effect_is_refused() {
    let directory = in_process::directory();
    let data = directory.path();
    let refused = |arguments: &[&str], status, message: &str| {
        let output = fsck(data, arguments);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(text(&output.stderr).contains(message), "{output:?}");
    };
    refused(&[], 1, "--full-scan");
    refused(&["--full-scan", "0", "sum", "m"], 1, "--full-scan");
    refused(&["--full-scan", "--compact"], 2, "only with --fix");
    refused(&["--full-scan", "--rate", "0"], 2, "above 0");
    refused(&["0", "sum", "m", "host=wildcard(a*)"], 2, "expected a value");
    // Issue 37. It was found when the file was to be written, after hours.
    let nowhere = data.join("none/checkpoint");
    let nowhere = nowhere.to_str().expect("a path");
    refused(&["--full-scan", "--checkpoint", nowhere], 2, nowhere);
    let daemon = tsdb(data).start();
    refused(&["--full-scan"], 2, "is in use by process");
    assert!(daemon.terminate().success());
}
