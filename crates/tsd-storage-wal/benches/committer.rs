//! Measures the CPU time per point of the committer and flusher threads, with a backend that discards all rows.
//!
//! ```text
//! cargo bench -p tsd-storage-wal --bench committer -- [series] [points]
//! ```
//!
//! Without `--bench`, as in `cargo test --benches`, it writes few points to check that it works.

use std::{error::Error, fs, sync::Arc, time::Instant};

use futures_util::{StreamExt, stream};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Storage, StorageError, StorageExt, Table};
use tsd_storage_wal::{WalConfig, WalStorage};

use self::counting_backend::CountingBackend;

#[path = "support/counting_backend.rs"]
mod counting_backend;

/// Rows per batch.
const BATCH_ROWS: usize = 1_000;
/// Concurrent batches.
const CONCURRENCY: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let mut numbers = arguments.map(|argument| argument.parse::<usize>());
    let series = numbers.next().transpose()?.unwrap_or(100_000);
    let default_points = if is_bench { 10_000_000 } else { 20_000 };
    let points = numbers.next().transpose()?.unwrap_or(default_points);
    let directory = std::env::temp_dir().join(format!("committer-{}", std::process::id()));
    let backend = Arc::new(CountingBackend::new(Table::new("tsdb")));
    let (store, _) = WalStorage::open(WalConfig::new(&directory), Arc::clone(&backend)).await?;
    let table = Table::new("tsdb");
    let (store, table) = (&store, &table);
    let keys: Vec<[u8; 20]> = (0..series).map(key).collect();
    let batches = (0..points / BATCH_ROWS).map(|number| batch(&keys, number * BATCH_ROWS));
    let (faults, started) = (page_faults()?, Instant::now());
    let put = |batch: Result<CellBatch, StorageError>| async { store.put(table, batch?).await };
    let mut puts = stream::iter(batches).map(put).buffer_unordered(CONCURRENCY);
    while let Some(done) = puts.next().await {
        done?;
    }
    let (faults, seconds) = (page_faults()? - faults, started.elapsed().as_secs_f64());
    let millions = points as f64 / 1e6;
    print!("{series} series, {:.2} M points/s; ns per point:", millions / seconds);
    for name in ["wal-committer", "wal-flusher"] {
        print!(" {name} {:.0}", thread_seconds(name)? * 1_000.0 / millions);
    }
    let log: f64 = log_bytes(&directory)?;
    println!(
        "; {:.0} page faults per M points; peak {} MiB; {} cells flushed; {log:.0} bytes of log",
        faults / millions,
        peak_bytes()? >> 20,
        backend.cells(),
    );
    for (name, value) in store.maintenance().gauges() {
        if name.contains("memtable") {
            println!("{name} {value}");
        }
    }
    store.close().await?;
    fs::remove_dir_all(directory)?;
    Ok(())
}

/// A row key of points: salt, metric, base time, two tags.
fn key(series: usize) -> [u8; 20] {
    let mut key = [0; 20];
    let tag = (series as u32).to_be_bytes();
    let parts: [&[u8]; 6] =
        [&[series as u8 % 20], &[0, 0, 1], &[0x50, 0xe2, 0x27, 0], &[0, 0, 1], &tag, &[0; 5]];
    key.iter_mut().zip(parts.concat()).for_each(|(to, byte)| *to = byte);
    key
}

fn batch(keys: &[[u8; 20]], first: usize) -> Result<CellBatch, StorageError> {
    let mut batch = CellBatch::new();
    for point in first..first + BATCH_ROWS {
        let second = point / keys.len() % 3_600;
        batch.begin_row(keys.get(point % keys.len()).map_or(&[][..], |key| key))?;
        let qualifier = ((second as u16) << 4 | 1).to_be_bytes();
        let value = &(point as u16).to_be_bytes();
        batch.push(CellRef {
            family: Family::T,
            qualifier: &qualifier,
            value,
            timestamp_ms: None,
        })?;
    }
    Ok(batch)
}

/// CPU time of the threads with this name, in seconds.
fn thread_seconds(name: &str) -> Result<f64, Box<dyn Error>> {
    let mut nanos = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.trim() == name {
            let spent = fs::read_to_string(path.join("schedstat"))?;
            nanos += spent.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
    }
    Ok(nanos as f64 / 1e9)
}

fn page_faults() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    Ok(fields.split_whitespace().nth(7).unwrap_or_default().parse::<f64>()?)
}

fn peak_bytes() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    Ok(peak.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

fn log_bytes(directory: &std::path::Path) -> Result<f64, Box<dyn Error>> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes as f64)
}
