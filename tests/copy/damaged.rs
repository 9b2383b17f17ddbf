//! Tests `tsdb copy` on tables with very many damaged cells: all are counted, few are printed, and memory is
//! bounded.

use std::{
    fs,
    process::{Output, Stdio},
};

use serde_json::Value;

use super::{HOURS, POINTS, command, path, report, store};
use crate::{
    damaged_cells::{MEMORY_LIMIT, ROW_CELLS, Used, damaged_rows, plant, watched},
    hbase_fake::HBase,
    in_process,
};

fn copy(from: &str, to: &str, arguments: &[&str]) -> (Output, Used) {
    let limit = format!("tsd.memory.limit={MEMORY_LIMIT}");
    let limits = ["--from-set", &limit, "--to-set", &limit];
    let mut command = command(from, to, &[&limits[..], arguments].concat());
    watched(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Rows that were read, rows that were not copied, and findings.
fn counts(report: &Value) -> [u64; 3] {
    let table = &report["tables"]["tsdb"];
    let count = |name: &str| table[name].as_u64().expect("a number");
    let findings = report["findings"]["tsdb"].as_u64().unwrap_or_default();
    [count("rows"), count("refusedRows"), findings]
}

#[test]
fn damaged_cells_are_copied_as_they_are_and_counted_if_they_cannot_be() {
    let rows = damaged_rows();
    let directory = in_process::directory();
    let (data, wide) = (directory.path().join("data"), directory.path().join("wide"));
    store(&data, &[("tsd.storage.salt.width", "0")]);
    // The metric has a name; the tag value lacks one.
    plant(&data, rows, |row| (0x00F0_0000 + row % 100, 440_000 + row / 100));
    // A row of `store` has an annotation, and one has three damaged cells.
    let (all_rows, all_cells) = (rows + 6 * HOURS + 2, rows * ROW_CELLS + 6 * HOURS * POINTS + 4);
    let hbase = HBase::with_tables();
    let state = directory.path().join("state.json");
    let (copied, used) = copy(path(&data), hbase.quorum(), &["--verify", "--state", path(&state)]);
    let copied = report(&copied, 0);
    assert_eq!((&copied["keys"], &copied["clean"]), (&"same".into(), &true.into()), "{copied}");
    assert_eq!(counts(&copied), [all_rows, 0, 0], "{copied}");
    let compared = copied["compared"].as_array().expect("tables");
    let data_table = compared.iter().find(|table| table["from"] == "tsdb").expect("the table");
    assert_eq!(data_table["source"]["cells"], all_cells, "{copied}");
    assert_eq!(data_table["source"], data_table["target"], "{copied}");
    used.check(&format!("copy and comparison of {all_cells} cells to HBase"), 2);

    // By name they cannot be copied.
    let findings = directory.path().join("findings");
    let (output, used) =
        copy(hbase.quorum(), path(&wide), &["--rekey", "--findings", path(&findings)]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = report(&output, 1);
    assert_eq!(counts(&refused), [all_rows, rows, rows], "{refused}");
    let printed = stderr.lines().filter(|line| line.contains("not copied")).count();
    assert_eq!(printed, 20, "{stderr}");
    assert!(stderr.contains("further findings are only counted"), "{stderr}");
    let listed = fs::read_to_string(&findings).expect("the findings");
    assert_eq!(listed.lines().count() as u64, rows);
    used.check(&format!("copy of {all_cells} cells to a directory, {rows} rows refused"), 2);
}
