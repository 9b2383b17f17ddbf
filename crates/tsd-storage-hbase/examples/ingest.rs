//! What writing points costs: `ingest QUORUM [MILLION POINTS]`.
//!
//! Three ways for the same points: a cell a put, six cells of a row in one put, and held rows of six points
//! as one column each. Prints points a second and the processor time that this process took for a
//! million of them.

use std::{error::Error, fs, time::Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_model::Family;
use tsd_storage::{
    CellBatch, CellRef, FlushCell, FlushRow, FlushRows, FlushTarget, Storage, StorageError, Table,
};
use tsd_storage_hbase::{
    HBaseConfig, HBaseStorage, Splits, TableLayout, TableOptions, create_tables,
};

/// Points of a row.
const POINTS: u32 = 6;
/// Rows of one put.
const ROWS_A_PUT: u32 = 2_000;
/// Puts under way.
const PUTS: usize = 4;
/// Time of every cell.
const WRITTEN: i64 = 1_700_000_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let quorum = args.next().ok_or("which quorum?")?;
    let rows = args.next().map_or(Ok(3), |number| number.parse::<u32>())? * 1_000_000 / POINTS;
    let table = Table::new("ingest-example");
    let store = HBaseStorage::connect(HBaseConfig::new(quorum))?;
    let name = table.as_str().parse()?;
    let admin = store.client().admin();
    let ways =
        [("a point a put", Some(1)), ("six points a put", Some(6)), ("a column a row", None)];
    for (way, together) in ways {
        let layout = TableLayout::data(table.as_str(), Splits::Salt { width: 1, buckets: 16 });
        create_tables(store.client(), &[layout], &TableOptions::default(), |_| {}).await?;
        let (started, cpu) = (Instant::now(), cpu_seconds());
        match together {
            Some(together) => put(&store, &table, rows, together).await?,
            None => store.flush_rows(&table, Box::new(Held::new(rows))).await?,
        }
        let millions = f64::from(rows) * f64::from(POINTS) / 1e6;
        let speed = millions * 1e6 / started.elapsed().as_secs_f64();
        let cpu = (cpu_seconds() - cpu) / millions;
        println!("{way:18} {speed:9.0} points/s {cpu:6.2} cpu-s/M");
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

/// An integer of four bytes, ten seconds after the one before.
const fn qualifier(point: u32) -> [u8; 2] {
    ((point as u16 * 10) << 4 | 3).to_be_bytes()
}

async fn put(
    store: &HBaseStorage,
    table: &Table,
    rows: u32,
    together: u32,
) -> Result<(), StorageError> {
    let batch = |first: u32, from: u32| {
        let mut batch = CellBatch::new();
        for row in first..(first + ROWS_A_PUT).min(rows) {
            batch.begin_row(&key(row))?;
            for point in from..from + together {
                let (qualifier, value) = (&qualifier(point), &row.to_be_bytes());
                let timestamp_ms = Some(WRITTEN);
                batch.push(CellRef { family: Family::T, qualifier, value, timestamp_ms })?;
            }
        }
        Ok::<_, StorageError>(batch)
    };
    let parts = (0..POINTS)
        .step_by(together as usize)
        .flat_map(|from| (0..rows).step_by(ROWS_A_PUT as usize).map(move |first| (first, from)));
    stream::iter(parts)
        .map(|(first, from)| async move { store.put(table, batch(first, from)?).await })
        .buffer_unordered(PUTS)
        .try_collect()
        .await
}

/// Rows as a log would hand them over.
struct Held {
    next: u32,
    rows: u32,
    key: [u8; 14],
    qualifiers: [[u8; 2]; POINTS as usize],
    value: [u8; 4],
}

impl Held {
    fn new(rows: u32) -> Self {
        let qualifiers = std::array::from_fn(|point| qualifier(point as u32));
        Self { next: 0, rows, key: key(0), qualifiers, value: [0; 4] }
    }
}

impl FlushRows for Held {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        if self.next == self.rows {
            return None;
        }
        // Rows rise in each bucket, bucket after bucket.
        let (of_bucket, bucket) = (self.rows.div_ceil(16), self.next);
        let row = (bucket % of_bucket) * 16 + bucket / of_bucket;
        (self.key, self.value) = (key(row), row.to_be_bytes());
        self.next += 1;
        let cells = self.qualifiers.iter().map(|qualifier| FlushCell {
            family: Family::T,
            qualifier,
            value: &self.value,
            timestamp_ms: WRITTEN,
        });
        Some(FlushRow {
            key: &self.key,
            delete_row: None,
            deletes: Vec::new(),
            cells: cells.collect(),
        })
    }
}

/// Processor time of this process, as Linux counts it: in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}
