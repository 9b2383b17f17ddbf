//! Tests `tsdb fsck` on tables with very many damaged cells, on both stores: each cell is found and repaired, and
//! memory is bounded.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use tsd_testkit::http;

use super::TSDB;
use crate::{
    damaged_cells::{MEMORY_LIMIT, ROW_CELLS, damaged_rows, plant, watched},
    hbase_fake::HBase,
    in_process,
};

/// Runs a full check. Returns its exit status, the damaged cells that it names, and the total of errors and of
/// repairs at its end.
fn check(place: &[&str], arguments: &[&str], out: &Path) -> (Option<i32>, u64, u64, u64) {
    let mut command = Command::new(TSDB);
    command.args(["fsck", "--full-scan"]).args(place).args(arguments);
    command.env("TSD_STORAGE_SALT_WIDTH", "0").env("TSD_MEMORY_LIMIT", MEMORY_LIMIT.to_string());
    command.stdin(Stdio::null()).stdout(File::create(out).expect("a file")).stderr(Stdio::piped());
    let (output, used) = watched(&mut command);
    let (mut named, mut errors, mut fixed) = (0, None, None);
    for line in BufReader::new(File::open(out).expect("a file")).lines() {
        let line = line.expect("a line");
        named += u64::from(line.contains("bytes long but should be 8 bytes"));
        let count = |label: &str| line.strip_prefix(label)?.parse().ok();
        errors = errors.or_else(|| count("INFO Total Errors: "));
        fixed = fixed.or_else(|| count("INFO Total Errors Fixed: "));
    }
    used.check(&format!("fsck {} {}", place[0], arguments.join(" ")), 1);
    (output.status.code(), named, errors.expect("a total"), fixed.expect("a total"))
}

#[test]
fn damaged_cells_are_found_repaired_and_gone() {
    let rows = damaged_rows();
    let directory = in_process::directory();
    let data = directory.path().join("data");
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let settings = [("tsd.storage.salt.width", "0"), ("tsd.core.auto_create_metrics", "true")];
    let node = in_process::start(&runtime, &data, &settings).expect("a daemon");
    let body = r#"{"metric":"m","timestamp":1500000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(http(node.address(), "POST", "/api/put", Some(body)).status, 204);
    in_process::stop(&runtime, node);
    plant(&data, rows, |row| (1, 440_000 + row));
    let hbase = HBase::with_tables();
    let path = data.to_str().expect("a path");
    let state = directory.path().join("state.json");
    let copied = Command::new(TSDB)
        .args(["copy", "--from", path, "--to", hbase.quorum(), "--state"])
        .arg(&state)
        .output()
        .expect("run tsdb");
    assert!(copied.status.success(), "{copied:?}");

    let cells = rows * ROW_CELLS;
    let out = directory.path().join("out");
    for place in [["--data", path], ["--zkquorum", hbase.quorum()]] {
        assert_eq!(check(&place, &[], &out), (Some(1), cells, cells, 0));
        assert_eq!(check(&place, &["--fix-all"], &out), (Some(1), cells, cells, cells));
        assert_eq!(check(&place, &[], &out), (Some(0), 0, 0, 0));
    }
}
