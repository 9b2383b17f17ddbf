//! What a point costs the threads of the layer, over a backend that takes rows and forgets them.
//!
//! `cargo run --release -p tsd-storage-wal --example committer -- [series] [points]`

use std::{
    error::Error,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_model::{Family, Row};
use tsd_storage::{
    BoxFuture, CellBatch, CellRef, Column, Delete, FlushRows, FlushTarget, Get, RowRewrite,
    RowScanner, Scan, Storage, StorageError, Table,
};
use tsd_storage_wal::{WalConfig, WalStorage};

/// Rows of a call, and calls under way.
const BATCH_ROWS: usize = 1_000;
const AT_ONCE: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let series = arguments.next().transpose()?.unwrap_or(100_000);
    let points = arguments.next().transpose()?.unwrap_or(10_000_000);
    let directory = std::env::temp_dir().join(format!("committer-{}", std::process::id()));
    let backend = Arc::new(Nowhere::default());
    let (store, _) = WalStorage::open(WalConfig::new(&directory), Arc::clone(&backend)).await?;
    let table = Table::new("tsdb");
    let (store, table) = (&store, &table);
    let keys: Vec<[u8; 20]> = (0..series).map(key).collect();
    let batches = (0..points / BATCH_ROWS).map(|number| batch(&keys, number * BATCH_ROWS));
    let (faults, started) = (page_faults()?, Instant::now());
    let put = |batch: Result<CellBatch, StorageError>| async { store.put(table, batch?).await };
    let mut puts = stream::iter(batches).map(put).buffer_unordered(AT_ONCE);
    while let Some(done) = puts.next().await {
        done?;
    }
    let (faults, seconds) = (page_faults()? - faults, started.elapsed().as_secs_f64());
    let millions = points as f64 / 1e6;
    print!("{series} series, {:.2} M points/s; ns a point:", millions / seconds);
    for name in ["wal-committer", "wal-flusher"] {
        print!(" {name} {:.0}", thread_seconds(name)? * 1_000.0 / millions);
    }
    let log: f64 = log_bytes(&directory)?;
    println!(
        "; {:.0} page faults a M points; peak {} MiB; {} rows left; {log:.0} bytes of log",
        faults / millions,
        peak_bytes()? >> 20,
        backend.cells.load(Ordering::Relaxed),
    );
    for (name, value) in store.gauges() {
        if name.contains("memtable") || name.contains("spare") {
            println!("{name} {value}");
        }
    }
    store.close().await?;
    fs::remove_dir_all(directory)?;
    Ok(())
}

/// Salt, metric, hour, two tags: as a row key of points is.
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

/// Processor time of the threads of a name, in seconds.
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

/// A backend that takes all rows and has none.
#[derive(Debug, Default)]
struct Nowhere {
    cells: AtomicU64,
}

type Answer<'a, T> = BoxFuture<'a, Result<T, StorageError>>;

fn answer<'a, T: Send + 'a>(answer: T) -> Answer<'a, T> {
    Box::pin(async move { Ok(answer) })
}

impl FlushTarget for Nowhere {
    fn flush_rows<'a>(&'a self, _: &'a Table, mut rows: Box<dyn FlushRows>) -> Answer<'a, ()> {
        while let Some(row) = rows.next_row() {
            self.cells.fetch_add(row.cells.len() as u64, Ordering::Relaxed);
        }
        answer(())
    }
}

struct NoRows;

impl RowScanner for NoRows {
    fn next_rows(&mut self) -> Answer<'_, Option<Vec<Row>>> {
        answer(None)
    }
}

impl Storage for Nowhere {
    fn get<'a>(&'a self, _: &'a Table, _: Get) -> Answer<'a, Option<Row>> {
        answer(None)
    }

    fn multi_get<'a>(&'a self, _: &'a Table, gets: Vec<Get>) -> Answer<'a, Vec<Option<Row>>> {
        answer(gets.iter().map(|_| None).collect())
    }

    fn scan(&self, _: &Table, _: Scan) -> Box<dyn RowScanner> {
        Box::new(NoRows)
    }

    fn put<'a>(&'a self, _: &'a Table, _: CellBatch) -> Answer<'a, ()> {
        answer(())
    }

    fn append<'a>(&'a self, _: &'a Table, _: CellBatch) -> Answer<'a, ()> {
        answer(())
    }

    fn increment<'a>(&'a self, _: &'a Table, _: Column, amount: i64) -> Answer<'a, i64> {
        answer(amount)
    }

    fn compare_and_set<'a>(
        &'a self,
        _: &'a Table,
        _: Column,
        expected: Option<Bytes>,
        _: Bytes,
    ) -> Answer<'a, bool> {
        answer(expected.is_none())
    }

    fn compare_and_delete<'a>(&'a self, _: &'a Table, _: Column, _: Bytes) -> Answer<'a, bool> {
        answer(false)
    }

    fn delete<'a>(&'a self, _: &'a Table, _: Delete) -> Answer<'a, ()> {
        answer(())
    }

    fn rewrite_row<'a>(&'a self, _: &'a Table, _: RowRewrite) -> Answer<'a, ()> {
        answer(())
    }

    fn table_exists<'a>(&'a self, _: &'a Table) -> Answer<'a, bool> {
        answer(true)
    }

    fn flush(&self) -> Answer<'_, ()> {
        answer(())
    }

    fn close(&self) -> Answer<'_, ()> {
        answer(())
    }
}
