//! Measures durable cells per second and their CPU time.
//!
//! ```text
//! cargo bench -p tsd-storage-wal --bench throughput -- [directory]
//! ```
//!
//! The backend only counts cells, so the results cover only log, memtable and flush. Without `--bench`, as in
//! `cargo test --benches`, it writes few cells to check that it works.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench may stop, and prints its result"
)]

use std::{path::PathBuf, sync::Arc, time::Instant};

use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Storage, StorageExt, Table};
use tsd_storage_wal::{WalConfig, WalStorage};

use self::counting_backend::CountingBackend;

#[path = "support/counting_backend.rs"]
mod counting_backend;

/// Cells of a run, and of one without `--bench`.
const CELLS: u32 = 3_000_000;
const TEST_CELLS: u32 = 10_000;

/// Write pattern of a run.
struct Workload {
    name: &'static str,
    series: u32,
    /// Total number of cells.
    cells: u32,
    /// Cells per batch.
    batch: u32,
    /// Number of concurrent batches.
    in_flight: usize,
}

/// One point of each series in turn, 10 s apart.
fn batches(workload: &Workload) -> Vec<CellBatch> {
    let mut point = 0;
    let mut all = Vec::new();
    while point < workload.cells {
        let mut cells = CellBatch::new();
        for _ in 0..workload.batch.min(workload.cells - point) {
            let (series, step) = (point % workload.series, point / workload.series);
            let hash = series.wrapping_mul(2_654_435_761);
            let mut key = vec![(hash % 20) as u8, 0, 0, 1];
            key.extend_from_slice(&(step / 360 * 3600).to_be_bytes());
            key.extend_from_slice(&[0, 0, 1]);
            key.extend(series.to_be_bytes().iter().skip(1));
            key.extend_from_slice(&[0, 0, 2, 0, 0, (series % 7) as u8]);
            cells.begin_row(&key).expect("a row key");
            let cell = CellRef {
                family: Family::T,
                qualifier: &(((step % 360 * 10) << 4) as u16 | 1).to_be_bytes(),
                value: &(point as u16).to_be_bytes(),
                timestamp_ms: None,
            };
            cells.push(cell).expect("a cell");
            point += 1;
        }
        all.push(cells);
    }
    all
}

/// CPU time of this process so far, in seconds.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, after)| after).split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
        / TICKS_PER_SECOND
}

async fn run(workload: Workload, directory: PathBuf) {
    let table = Table::new("tsdb");
    let backend = Arc::new(CountingBackend::new(table.clone()));
    let config = WalConfig::new(directory);
    let opened = WalStorage::open(config, Arc::clone(&backend)).await;
    let (store, _) = opened.expect("an openable log");
    let batches = batches(&workload);
    let (cpu, started) = (cpu_seconds(), Instant::now());
    let pending = parking_lot::Mutex::new(batches.into_iter());
    let next = || pending.lock().next();
    let writer = async |_| {
        while let Some(batch) = next() {
            store.put(&table, batch).await.expect("a durable batch");
        }
    };
    futures_util::future::join_all((0..workload.in_flight).map(writer)).await;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    store.close().await.expect("a clean close");
    assert_eq!(backend.cells(), u64::from(workload.cells), "every cell is flushed");
    let millions = f64::from(workload.cells) / 1e6;
    println!(
        "{:<34} batch {:>5}, {:>2} in flight: {:5.2} M cells/s, {:.2} cpu-s per M cells",
        workload.name,
        workload.batch,
        workload.in_flight,
        millions / seconds,
        cpu / millions
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let cells = if is_bench { CELLS } else { TEST_CELLS };
    let directory = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let root = directory.map(PathBuf::from);
    let root = root.unwrap_or_else(|| std::env::temp_dir().join("saltern-throughput"));
    let in_order = "1 000 series in time order";
    let one_each = "100 000 series, one point per step";
    for (name, series) in [(in_order, 1_000), (one_each, 100_000)] {
        for (batch, in_flight) in [(1_000, 1), (1_000, 4), (1_000, 16), (5_000, 4), (100, 16)] {
            let workload = Workload { name, series, cells, batch, in_flight };
            run(workload, root.join(format!("{series}-{batch}-{in_flight}"))).await;
        }
    }
    std::fs::remove_dir_all(&root).expect("the directory of this bench");
}
