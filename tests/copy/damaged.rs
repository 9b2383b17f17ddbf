//! `tsdb copy` of tables with very many damaged cells: all are counted, few are printed, and memory is bounded.

use std::{
    fs,
    path::Path,
    process::{Output, Stdio},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;
use tokio::runtime::Runtime;
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Table};
use tsd_testkit::process::status_bytes_or_zero;

use super::{HOURS, POINTS, command, path, report, store};
use crate::{hbase_fake::HBase, in_process};

/// Cells of a damaged row.
const ROW_CELLS: u64 = 10;
/// Rows per put.
const PUT_ROWS: u64 = 1_000;
/// `tsd.memory.limit` of both sides, the least one.
const MEMORY_LIMIT: u64 = 256 << 20;

/// Damaged cells: `DAMAGED_CELLS`, as `DAMAGED_CELLS=1000000 cargo test --test main copy::damaged`.
fn damaged_cells() -> u64 {
    let cells = std::env::var("DAMAGED_CELLS").ok();
    cells.map_or(20_000, |cells| cells.parse().expect("DAMAGED_CELLS is a number"))
}

/// Plants rows of a metric that has a name, with a tag value that has none; no cell of them can be read.
fn plant(data: &Path, rows: u64) {
    let runtime = Runtime::new().expect("runtime");
    let settings = [("tsd.storage.salt.width", "0"), ("tsd.storage.memtable.size", "8388608")];
    let node = in_process::start(&runtime, data, &settings).expect("a daemon");
    for first in (0..rows).step_by(PUT_ROWS as usize) {
        let mut batch = CellBatch::new();
        for row in first..rows.min(first + PUT_ROWS) {
            let base = (440_000 + row as u32 / 100) * 3_600;
            let value = 0x00F0_0000 + (row % 100) as u32;
            let tagv = value.to_be_bytes();
            let key = [&[0, 0, 1], &base.to_be_bytes()[..], &[0, 0, 1], &tagv[1..]].concat();
            batch.begin_row(&key).expect("a key");
            for cell in 0..ROW_CELLS as u8 {
                // Eight bytes are announced, three are there.
                let (qualifier, value) = ([cell, 0x07], [1, 2, 3]);
                let cell = CellRef {
                    family: Family::T,
                    qualifier: &qualifier,
                    value: &value,
                    timestamp_ms: Some(17),
                };
                batch.push(cell).expect("a cell");
            }
        }
        runtime.block_on(node.storage().put(&Table::new("tsdb"), batch)).expect("planted");
    }
    in_process::stop(&runtime, node);
}

/// Runs a copy to its end; also returns its greatest resident memory.
fn watched(from: &str, to: &str, arguments: &[&str]) -> (Output, u64) {
    let limit = format!("tsd.memory.limit={MEMORY_LIMIT}");
    // A fake HBase with very many rows is slow.
    let patience = "tsd.storage.hbase.operation_timeout=900000";
    let limits =
        ["--from-set", &limit, "--to-set", &limit, "--from-set", patience, "--to-set", patience];
    let mut command = command(from, to, &[&limits[..], arguments].concat());
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run tsdb");
    let mut peak = 0;
    // What is printed fits the pipes, or this would not end.
    while child.try_wait().expect("a state").is_none() {
        peak = peak.max(status_bytes_or_zero(child.id(), "VmHWM:"));
        sleep(Duration::from_millis(20));
    }
    (child.wait_with_output().expect("an exit status"), peak)
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
    let rows = damaged_cells() / ROW_CELLS;
    let directory = in_process::directory();
    let (data, wide) = (directory.path().join("data"), directory.path().join("wide"));
    store(&data, &[("tsd.storage.salt.width", "0")]);
    plant(&data, rows);
    // A row of `store` has an annotation, and one has three damaged cells.
    let (all_rows, all_cells) = (rows + 6 * HOURS + 2, rows * ROW_CELLS + 6 * HOURS * POINTS + 4);
    let hbase = HBase::with_tables();
    let state = directory.path().join("state.json");
    let (copied, to_hbase_peak) =
        watched(path(&data), hbase.quorum(), &["--verify", "--state", path(&state)]);
    let copied = report(&copied, 0);
    assert_eq!((&copied["keys"], &copied["clean"]), (&"same".into(), &true.into()), "{copied}");
    assert_eq!(counts(&copied), [all_rows, 0, 0], "{copied}");
    let compared = copied["compared"].as_array().expect("tables");
    let data_table = compared.iter().find(|table| table["from"] == "tsdb").expect("the table");
    assert_eq!(data_table["source"]["cells"], all_cells, "{copied}");
    assert_eq!(data_table["source"], data_table["target"], "{copied}");

    // By name they cannot be copied: their tag value has none.
    let findings = directory.path().join("findings");
    let (output, to_data_peak) =
        watched(hbase.quorum(), path(&wide), &["--rekey", "--findings", path(&findings)]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = report(&output, 1);
    assert_eq!(counts(&refused), [all_rows, rows, rows], "{refused}");
    let printed = stderr.lines().filter(|line| line.contains("not copied")).count();
    assert_eq!(printed, 20, "{stderr}");
    assert!(stderr.contains("further findings are only counted"), "{stderr}");
    let listed = fs::read_to_string(&findings).expect("the findings");
    assert_eq!(listed.lines().count() as u64, rows);
    // Code and what the memory limits do not count.
    let most = 2 * MEMORY_LIMIT + (256 << 20);
    assert!(to_hbase_peak < most && to_data_peak < most, "{to_hbase_peak} {to_data_peak}");
    println!("{rows} damaged rows: {} MiB, {} MiB", to_hbase_peak >> 20, to_data_peak >> 20);
}
