//! The embedded store without the log: flushes of memtable rows, scans and gets.
//!
//! Four kinds of series at ten seconds (random walk, counter, gauge, constant), as flushes and as row
//! compaction write them. Every bench checks what it reads.

#![expect(clippy::unwrap_used, reason = "a bench may panic")]

use std::{hint::black_box, time::Duration};

use divan::{Bencher, counter::ItemsCount};
use tsd_model::{Family, PackedRun, PointColumns};
use tsd_storage::{FlushCell, FlushRow, FlushRows, FlushTarget, Get, Scan, Storage, Table};
use tsd_storage_lsm::{LsmConfig, LsmStorage, TableSpec};
use tsd_testkit::SplitMix64;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BASE: u32 = 1_500_001_200;
const POINTS_AN_HOUR: u32 = 360;

/// Qualifiers and values of the points `steps` of an hour.
fn points(series: u64, hour: u32, steps: std::ops::Range<u32>) -> Vec<([u8; 2], Vec<u8>)> {
    let mut random = SplitMix64::new(series << 16 | u64::from(hour));
    let mut walk = random.below(100_000) as i64;
    let mut counter = random.below(1 << 30);
    let mut gauge = random.below(2_000);
    let mut points = Vec::with_capacity(steps.len());
    for i in 0..steps.end {
        walk += random.below(101) as i64 - 50;
        counter += random.below(1_500);
        if i % 7 == 6 {
            gauge = random.below(2_000);
        }
        if i < steps.start {
            continue;
        }
        let integer = match series % 4 {
            1 => Some(counter),
            2 => Some(gauge),
            3 => Some(42),
            _ => None,
        };
        let (flags, value) = match integer {
            None => (0xF, (walk as f64 / 100.0).to_be_bytes().to_vec()),
            Some(v @ 0..0x80) => (0, vec![v as u8]),
            Some(v @ 0x80..0x8000) => (1, (v as u16).to_be_bytes().to_vec()),
            Some(v @ 0x8000..0x8000_0000) => (3, (v as u32).to_be_bytes().to_vec()),
            Some(v) => (7, v.to_be_bytes().to_vec()),
        };
        points.push((((i * 10) << 4 | flags) as u16, value));
    }
    points.into_iter().map(|(q, v)| (q.to_be_bytes(), v)).collect()
}

fn key(series: u64, hour: u32) -> Vec<u8> {
    let [.., high, middle, low] = series.to_be_bytes();
    let mut key = vec![(series % 20) as u8, 0, 0, 1];
    key.extend_from_slice(&(BASE + hour * 3_600).to_be_bytes());
    key.extend_from_slice(&[0, 0, 1, high, middle, low, 0, 0, 2, 0, 0, 3]);
    key
}

/// Rows of a flush, built before the clock starts in few allocations, as in a memtable.
struct Flush {
    bytes: Vec<u8>,
    /// Ends of the key and of each row's last cell.
    rows: Vec<(usize, usize)>,
    /// Ends of qualifier and value.
    cells: Vec<(usize, usize)>,
    next_row: usize,
    next_cell: usize,
    at: usize,
}

impl Flush {
    fn new(series: u64, hours: std::ops::Range<u32>, steps: std::ops::Range<u32>) -> Self {
        Self::build(series, hours, &steps, false)
    }

    /// The same points after row compaction.
    fn compacted(series: u64, hours: std::ops::Range<u32>) -> Self {
        Self::build(series, hours, &(0..POINTS_AN_HOUR), true)
    }

    fn build(
        series: u64,
        hours: std::ops::Range<u32>,
        steps: &std::ops::Range<u32>,
        compacted: bool,
    ) -> Self {
        let mut keys: Vec<_> = hours
            .flat_map(|hour| (0..series).map(move |series| (key(series, hour), series, hour)))
            .collect();
        keys.sort();
        let (mut bytes, mut rows, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for (key, series, hour) in keys {
            bytes.extend_from_slice(&key);
            let key_end = bytes.len();
            let points = points(series, hour, steps.clone());
            if compacted {
                for (q, _) in &points {
                    bytes.extend_from_slice(q);
                }
                let qualifier_end = bytes.len();
                for (_, v) in &points {
                    bytes.extend_from_slice(v);
                }
                bytes.push(0);
                cells.push((qualifier_end, bytes.len()));
            } else {
                for (qualifier, value) in points {
                    bytes.extend_from_slice(&qualifier);
                    let qualifier_end = bytes.len();
                    bytes.extend_from_slice(&value);
                    cells.push((qualifier_end, bytes.len()));
                }
            }
            rows.push((key_end, cells.len()));
        }
        Self { bytes, rows, cells, next_row: 0, next_cell: 0, at: 0 }
    }
}

impl FlushRows for Flush {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        let &(key_end, last_cell) = self.rows.get(self.next_row)?;
        let key = self.bytes.get(self.at..key_end)?;
        self.at = key_end;
        self.next_row += 1;
        let mut cells = Vec::with_capacity(last_cell - self.next_cell);
        for &(qualifier_end, value_end) in self.cells.get(self.next_cell..last_cell)? {
            cells.push(FlushCell {
                family: Family::T,
                qualifier: self.bytes.get(self.at..qualifier_end)?,
                value: self.bytes.get(qualifier_end..value_end)?,
                timestamp_ms: 1_500_000_000_000 + cells.len() as i64 * 10_007,
            });
            self.at = value_end;
        }
        self.next_cell = last_cell;
        Some(FlushRow { key, delete_row: None, deletes: Vec::new(), cells })
    }
}

struct BenchStore {
    runtime: tokio::runtime::Runtime,
    lsm: LsmStorage,
    table: Table,
    _dir: tempfile::TempDir,
}

impl BenchStore {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let table = Table::new("tsdb");
        let lsm =
            LsmStorage::open(&LsmConfig::new(dir.path(), vec![TableSpec::points(table.clone())]))
                .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { runtime, lsm, table, _dir: dir }
    }

    fn flush(&self, rows: Flush) {
        self.runtime.block_on(self.lsm.flush_rows(&self.table, Box::new(rows))).unwrap();
    }

    fn gauge(&self, name: &str) -> f64 {
        self.lsm.gauges().into_iter().find(|(n, _)| *n == name).map_or(0.0, |(_, v)| v)
    }

    /// Waits until the tree is compacted.
    fn wait_for_compaction(&self) {
        let mut before = -1.0;
        while self.gauge("tsd_lsm_compaction_steps_total") > before {
            before = self.gauge("tsd_lsm_compaction_steps_total");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Scans all rows and decodes their points into columns; returns the number of points.
    fn scan(&self) -> usize {
        let mut columns = PointColumns::default();
        let mut count = 0;
        self.runtime.block_on(async {
            let mut scanner = self.lsm.scan(&self.table, Scan::default());
            while let Some(rows) = scanner.next_rows().await.unwrap() {
                for row in rows {
                    columns.clear();
                    for run in &row.runs {
                        run.decode_into(BASE, &mut columns).unwrap();
                    }
                    count += black_box(&columns).len() + row.cells.len();
                }
            }
        });
        count
    }
}

/// A thousand series over a day after row compaction.
#[divan::bench(sample_count = 10)]
fn scan_and_decode_compacted_hours(bencher: Bencher) {
    let store = BenchStore::new();
    store.flush(Flush::compacted(1_000, 0..24));
    store.wait_for_compaction();
    let points = 1_000 * 24 * POINTS_AN_HOUR as usize;
    println!("{:.3} bytes a point", store.gauge("tsd_lsm_disk_bytes") / points as f64);
    assert_eq!(store.scan(), points);
    bencher.counter(ItemsCount::new(points)).bench_local(|| store.scan());
}

/// A thousand series over four hours, each row flushed six times.
#[divan::bench(sample_count = 10)]
fn scan_and_decode_flushed_hours(bencher: Bencher) {
    let store = BenchStore::new();
    for flush in 0..6 {
        store.flush(Flush::new(1_000, 0..4, flush * 60..flush * 60 + 60));
    }
    store.wait_for_compaction();
    let points = 1_000 * 4 * POINTS_AN_HOUR as usize;
    println!("{:.3} bytes a point", store.gauge("tsd_lsm_disk_bytes") / points as f64);
    assert_eq!(store.scan(), points);
    bencher.counter(ItemsCount::new(points)).bench_local(|| store.scan());
}

/// Flushes of a hundred thousand series, six points each.
#[divan::bench(sample_count = 8)]
fn ingest_six_points_a_row(bencher: Bencher) {
    let store = BenchStore::new();
    let mut flush = 0;
    bencher
        .counter(ItemsCount::new(600_000_u32))
        .with_inputs(|| {
            flush += 1;
            Flush::new(100_000, 0..1, flush * 6 - 6..flush * 6)
        })
        .bench_local_values(|rows| store.flush(rows));
    store.wait_for_compaction();
}

/// Flushes of a thousand series, sixty points each, a new hour each time.
#[divan::bench(sample_count = 8)]
fn ingest_sixty_points_a_row(bencher: Bencher) {
    let store = BenchStore::new();
    let mut flush = 0;
    bencher
        .counter(ItemsCount::new(600_000_u32))
        .with_inputs(|| {
            flush += 1;
            Flush::new(1_000, flush * 10..flush * 10 + 10, 0..60)
        })
        .bench_local_values(|rows| store.flush(rows));
    store.wait_for_compaction();
}

/// One row of a compacted day of a thousand series.
#[divan::bench(sample_count = 20, sample_size = 200)]
fn get_a_compacted_row(bencher: Bencher) {
    let store = BenchStore::new();
    store.flush(Flush::compacted(1_000, 0..24));
    store.wait_for_compaction();
    let mut random = SplitMix64::new(1);
    bencher.bench_local(|| {
        let key = key(random.below(1_000), random.below(24) as u32);
        let row = store.runtime.block_on(store.lsm.get(&store.table, Get::row(key.into())));
        let points: usize = row.unwrap().unwrap().runs.iter().map(PackedRun::point_count).sum();
        assert_eq!(points, POINTS_AN_HOUR as usize);
    });
}

fn main() {
    divan::main();
}
