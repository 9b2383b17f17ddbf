//! Compares the cost of three ways to write points to a real HBase.
//!
//! ```text
//! cargo bench -p tsd-storage-hbase --bench writes -- QUORUM [MILLIONS OF POINTS]
//! ```
//!
//! The same points are written as puts of one cell per row, as puts of six cells per row, and as
//! flushed rows with one compacted column. Prints points per second and the CPU time of this
//! process per million points. Without a quorum it prints a note and ends.

use std::{error::Error, fs, time::Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_model::Family;
use tsd_storage::{
    CellBatch, CellRef, FlushCell, FlushRow, FlushRows, FlushTarget, StorageError, StorageExt,
    Table,
};
use tsd_storage_hbase::{
    HBaseConfig, HBaseStorage, Splits, TableLayout, TableOptions, create_tables,
};

/// Points per row.
const POINTS: u32 = 6;
/// Rows per put.
const ROWS_PER_PUT: u32 = 2_000;
/// Concurrent puts.
const CONCURRENT_PUTS: usize = 4;
/// Timestamp of every cell.
const TIMESTAMP_MS: i64 = 1_700_000_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Cargo passes `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let Some(quorum) = args.next() else {
        println!("skipped: no ZooKeeper quorum given");
        return Ok(());
    };
    let rows = args.next().map_or(Ok(3), |number| number.parse::<u32>())? * 1_000_000 / POINTS;
    let table = Table::new("bench-writes");
    let store = HBaseStorage::connect(HBaseConfig::new(quorum))?;
    let name = table.as_str().parse()?;
    let admin = store.client().admin();
    let modes = [
        ("one point per put", Some(1)),
        ("six points per put", Some(6)),
        ("one column per row", None),
    ];
    for (mode, points_per_put) in modes {
        let layout = TableLayout::data(table.as_str(), Splits::Salt { width: 1, buckets: 16 });
        create_tables(store.client(), &[layout], &TableOptions::default(), |_| {}).await?;
        let (started, cpu) = (Instant::now(), cpu_seconds());
        match points_per_put {
            Some(points) => put(&store, &table, rows, points).await?,
            None => store.flush_rows(&table, Box::new(BenchRows::new(rows))).await?,
        }
        let millions = f64::from(rows) * f64::from(POINTS) / 1e6;
        let speed = millions * 1e6 / started.elapsed().as_secs_f64();
        let cpu = (cpu_seconds() - cpu) / millions;
        println!("{mode:18} {speed:9.0} points/s {cpu:6.2} cpu-s/M");
        admin.disable_table(&name).await?;
        admin.delete_table(&name).await?;
    }
    Ok(())
}

/// Salt, metric, hour, one tag.
const fn key(row: u32) -> [u8; 14] {
    let [_, a, b, c] = row.to_be_bytes();
    [(row % 16) as u8, 0, 0, 1, 0x5B, 0xE8, 0x35, 0xE0, 0, 0, 1, a, b, c]
}

/// Qualifier of a four-byte integer, ten seconds after the previous point.
const fn qualifier(point: u32) -> [u8; 2] {
    ((point as u16 * 10) << 4 | 3).to_be_bytes()
}

async fn put(
    store: &HBaseStorage,
    table: &Table,
    rows: u32,
    points_per_put: u32,
) -> Result<(), StorageError> {
    let batch = |first: u32, from: u32| {
        let mut batch = CellBatch::new();
        for row in first..(first + ROWS_PER_PUT).min(rows) {
            batch.begin_row(&key(row))?;
            for point in from..from + points_per_put {
                let (qualifier, value) = (&qualifier(point), &row.to_be_bytes());
                let timestamp_ms = Some(TIMESTAMP_MS);
                batch.push(CellRef { family: Family::T, qualifier, value, timestamp_ms })?;
            }
        }
        Ok::<_, StorageError>(batch)
    };
    let batches = (0..POINTS)
        .step_by(points_per_put as usize)
        .flat_map(|from| (0..rows).step_by(ROWS_PER_PUT as usize).map(move |first| (first, from)));
    stream::iter(batches)
        .map(|(first, from)| async move { store.put(table, batch(first, from)?).await })
        .buffer_unordered(CONCURRENT_PUTS)
        .try_collect()
        .await
}

/// Rows in the order of a flush.
struct BenchRows {
    next: u32,
    rows: u32,
    key: [u8; 14],
    qualifiers: [[u8; 2]; POINTS as usize],
    value: [u8; 4],
}

impl BenchRows {
    fn new(rows: u32) -> Self {
        let qualifiers = std::array::from_fn(|point| qualifier(point as u32));
        Self { next: 0, rows, key: key(0), qualifiers, value: [0; 4] }
    }
}

impl FlushRows for BenchRows {
    fn sort_by(&mut self, _: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {
        unreachable!("HBase takes rows in key order");
    }

    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        if self.next == self.rows {
            return None;
        }
        // Ascending rows of one bucket after the other.
        let (of_bucket, bucket) = (self.rows.div_ceil(16), self.next);
        let row = (bucket % of_bucket) * 16 + bucket / of_bucket;
        (self.key, self.value) = (key(row), row.to_be_bytes());
        self.next += 1;
        let cells = self.qualifiers.iter().map(|qualifier| FlushCell {
            family: Family::T,
            qualifier,
            value: &self.value,
            timestamp_ms: TIMESTAMP_MS,
        });
        Some(FlushRow {
            key: &self.key,
            delete_row: None,
            deletes: Vec::new(),
            cells: cells.collect(),
        })
    }
}

/// CPU time of this process; Linux counts it in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}
