//! Plants very many damaged cells in a data directory, and measures the peak memory of tools, which must be bounded.

use std::{
    path::Path,
    process::{Command, Output},
    thread::sleep,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, StorageExt, Table};
use tsd_testkit::process::status_bytes_or_zero;

use crate::in_process;

/// Cells of a damaged row.
pub(crate) const ROW_CELLS: u64 = 10;
/// Rows per put.
const PUT_ROWS: u64 = 1_000;
/// `tsd.memory.limit` of a store: its least value.
pub(crate) const MEMORY_LIMIT: u64 = 256 << 20;
/// Memory of code, and other memory that the limits do not count.
pub(crate) const UNCOUNTED: u64 = 256 << 20;

/// Number of damaged rows, from the number of cells in `DAMAGED_CELLS`, as in
/// `DAMAGED_CELLS=1000000 cargo test --test main damaged::`.
pub(crate) fn damaged_rows() -> u64 {
    let cells = std::env::var("DAMAGED_CELLS").ok();
    cells.map_or(20_000, |cells| cells.parse().expect("DAMAGED_CELLS is a number")) / ROW_CELLS
}

/// Plants rows of unreadable cells in a directory without salt. Row `n` has the tag value and the hour that `place`
/// returns.
pub(crate) fn plant(data: &Path, rows: u64, place: impl Fn(u32) -> (u32, u32)) {
    let runtime = Runtime::new().expect("runtime");
    let settings = [("tsd.storage.salt.width", "0"), ("tsd.storage.memtable.size", "8388608")];
    let node = in_process::start(&runtime, data, &settings).expect("a daemon");
    for first in (0..rows).step_by(PUT_ROWS as usize) {
        let mut batch = CellBatch::new();
        for row in first..rows.min(first + PUT_ROWS) {
            let (value, hour) = place(row as u32);
            let (base, tagv) = ((hour * 3_600).to_be_bytes(), value.to_be_bytes());
            let key = [&[0, 0, 1], &base[..], &[0, 0, 1], &tagv[1..]].concat();
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

/// Resources that a tool has used.
pub(crate) struct Used {
    /// Greatest resident memory.
    peak: u64,
    time: Duration,
}

impl Used {
    /// Prints peak memory and time after a label, and fails if the memory was not bounded.
    pub(crate) fn check(&self, what: &str, stores: u64) {
        println!("{what}: at most {} MiB, {:.1?}", self.peak >> 20, self.time);
        assert!(self.peak < stores * MEMORY_LIMIT + UNCOUNTED, "{what}: {}", self.peak);
    }
}

/// Runs a tool to its end. Its output must go to files, or fit a pipe.
pub(crate) fn watched(command: &mut Command) -> (Output, Used) {
    let started = Instant::now();
    let mut child = command.spawn().expect("run tsdb");
    let mut peak = 0;
    while child.try_wait().expect("a state").is_none() {
        peak = peak.max(status_bytes_or_zero(child.id(), "VmHWM:"));
        sleep(Duration::from_millis(20));
    }
    let time = started.elapsed();
    (child.wait_with_output().expect("an exit status"), Used { peak, time })
}
