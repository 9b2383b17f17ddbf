//! CPU time of reads of series whose points are all in a memtable, per point.
//!
//! ```text
//! cargo bench -p tsd-storage-wal --bench series_reads
//! ```
//!
//! The number of points of each read is checked. Without `--bench`, as in `cargo test --benches`, it writes few points
//! to check that it works.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench may stop, and prints its result"
)]

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use tsd_model::{Family, SummaryFold, SummaryUse};
use tsd_storage::{
    CellBatch, CellRef, ReadSelection, SeriesRange, SeriesRead, Storage, StorageExt, Table,
};
use tsd_storage_wal::{WalConfig, WalStorage};

use self::counting_backend::CountingBackend;

#[path = "support/counting_backend.rs"]
mod counting_backend;

/// 2013-01-01, the start of a UTC day, epoch seconds.
const START: u32 = 1_356_998_400;
/// Length of the metric, which comes first in row keys.
const PREFIX_LEN: usize = 3;
/// Points of a batch.
const BATCH: u32 = 1_000;
/// Number of measurements of a read.
const RUNS: usize = 9;
/// Points of a measurement, which repeats short reads. The system counts CPU time in steps of some milliseconds.
const MIN_POINTS: u64 = 1_000_000;
const MAX_REPEATS: u64 = 2_000;

/// Points in time order, one of each series in turn.
struct Shape {
    name: &'static str,
    series: u32,
    points: u32,
    step_ms: u32,
}

const SHAPES: [Shape; 4] = [
    Shape { name: "1 000 series, every 10 s", series: 1_000, points: 1_000, step_ms: 10_000 },
    Shape { name: "100 000 series, every 10 s", series: 100_000, points: 10, step_ms: 10_000 },
    Shape { name: "100 series, every 100 ms", series: 100, points: 10_000, step_ms: 100 },
    Shape { name: "100 series, every minute", series: 100, points: 10_000, step_ms: 60_000 },
];

/// Tags of a series.
fn tags(series: u32) -> Vec<u8> {
    let mut tags = vec![0, 0, 1];
    tags.extend(series.to_be_bytes().iter().skip(1));
    tags.extend_from_slice(&[0, 0, 2, 0, 0, (series % 7) as u8]);
    tags
}

fn key(series: u32) -> Bytes {
    [&[0, 0, 1][..], &tags(series)].concat().into()
}

/// The batches of some points of each series.
fn batches(shape: &Shape, points: Range<u32>) -> impl Iterator<Item = CellBatch> + '_ {
    let numbers = points.start * shape.series..points.end * shape.series;
    numbers.clone().step_by(BATCH as usize).map(move |first| {
        let mut cells = CellBatch::new();
        for number in first..(first + BATCH).min(numbers.end) {
            let (series, at) = (number % shape.series, number / shape.series);
            let offset_ms = u64::from(at) * u64::from(shape.step_ms);
            let hour = u32::try_from(offset_ms / 3_600_000).expect("an hour");
            let in_hour = u32::try_from(offset_ms % 3_600_000).expect("an offset");
            let base = START + hour * 3_600;
            let row = [&[0, 0, 1][..], &base.to_be_bytes(), &tags(series)].concat();
            let double = f64::from(number.wrapping_mul(2_654_435_761) % 10_000) / 100.0;
            let qualifier = if shape.step_ms < 1_000 {
                (0xF000_000F | (in_hour << 6)).to_be_bytes().to_vec()
            } else {
                (((in_hour / 1_000) << 4) as u16 | 0xF).to_be_bytes().to_vec()
            };
            cells.begin_row(&row).expect("a row key");
            let (qualifier, value) = (&qualifier[..], &double.to_be_bytes()[..]);
            let family = Family::T;
            cells.push(CellRef { family, qualifier, value, timestamp_ms: None }).expect("a cell");
        }
        cells
    })
}

/// CPU time of this thread so far, in nanoseconds.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_cpu = stat.split_whitespace().next().and_then(|field| field.parse().ok());
    on_cpu.unwrap_or_default()
}

/// Points and summarized points of a read.
async fn read(store: &impl Storage, table: &Table, read: &SeriesRead) -> (u64, u64) {
    let mut scanner = store.series().read_series(table, read).expect("reads of series");
    let (mut points, mut summarized) = (0, 0);
    while let Some(blocks) = scanner.next_series().await.expect("blocks") {
        for block in blocks {
            points += block.columns.len() as u64;
            summarized += block.summaries.iter().map(|summary| summary.count).sum::<u64>();
            assert!(block.rows.is_empty(), "every row has points only");
        }
    }
    (points, summarized)
}

fn all_series() -> ReadSelection {
    ReadSelection::Range(SeriesRange {
        prefix: Bytes::from_static(&[0, 0, 1]),
        from: Bytes::new(),
        to: None,
        filter: None,
    })
}

async fn run(shape: &Shape, is_bench: bool) {
    let table = Table::new("tsdb");
    let directory = tempfile::tempdir().expect("a directory");
    // The backend discards what is flushed.
    let (memtable_bytes, max_age) = (1 << 30, Duration::from_hours(1));
    let config = WalConfig { memtable_bytes, max_age, ..WalConfig::new(directory.path()) };
    let backend = Arc::new(CountingBackend::new(table.clone()));
    let (store, _) = WalStorage::open(config, Arc::clone(&backend)).await.expect("a log");
    for batch in batches(shape, 0..shape.points) {
        store.put(&table, batch).await.expect("a durable batch");
    }
    let last = START + 7 * 24 * 3_600;
    let keys = |count: u32| {
        let step = (shape.series / count).max(1) as usize;
        ReadSelection::Keys((0..shape.series).step_by(step).map(key).collect())
    };
    let summaries = SummaryUse {
        range_ms: (i64::from(START) * 1_000, i64::from(last) * 1_000),
        has_days: false,
        fold: SummaryFold::Extremes,
        with_points: false,
    };
    for (name, selection, summaries) in [
        ("all", all_series(), None),
        ("all, hourly extremes", all_series(), Some(summaries)),
        ("one series", keys(1), None),
        ("100 series by key", keys(100), None),
    ] {
        let selected = match &selection {
            ReadSelection::Range(_) => u64::from(shape.series),
            ReadSelection::Keys(keys) => keys.len() as u64,
        };
        let request = SeriesRead {
            prefix_len: PREFIX_LEN,
            selection,
            bases: (START, last),
            summaries,
            reads_past_losses: false,
        };
        let expected = selected * u64::from(shape.points);
        let (mut ns, mut summarized_points) = (Vec::new(), 0);
        for _ in 0..RUNS {
            let repeats = if is_bench { MIN_POINTS.div_ceil(expected) } else { 1 };
            let before = cpu_ns();
            for _ in 0..repeats.min(MAX_REPEATS) {
                let (points, summarized) = read(&store, &table, &request).await;
                assert_eq!(points + summarized, expected, "{name} of {}", shape.name);
                summarized_points = summarized;
            }
            ns.push((cpu_ns() - before) / (expected * repeats.min(MAX_REPEATS)) as f64);
        }
        let first = ns.remove(0);
        ns.sort_by(f64::total_cmp);
        println!(
            "{:<28} {name:<22} {:7.2} ns CPU a point, the first time {first:7.2}, {} summarized",
            shape.name,
            ns.get(ns.len() / 2).copied().unwrap_or_default(),
            summarized_points,
        );
    }
    let added = read_beside_a_writer(&store, &table, shape, summaries, is_bench).await;
    store.close().await.expect("a clean close");
    let total = u64::from(shape.series) * u64::from(shape.points + added);
    assert_eq!(backend.cells(), total, "every cell is flushed");
}

/// Repeats a read by hours after each point that every series gets. Returns the number of these points.
async fn read_beside_a_writer(
    store: &impl Storage,
    table: &Table,
    shape: &Shape,
    summaries: SummaryUse,
    is_bench: bool,
) -> u32 {
    let rounds = if is_bench { 20 } else { 2 };
    let request = SeriesRead {
        prefix_len: PREFIX_LEN,
        selection: all_series(),
        bases: (START, START + 7 * 24 * 3_600),
        summaries: Some(summaries),
        reads_past_losses: false,
    };
    let mut ns = Vec::new();
    for round in 0..rounds {
        let points = shape.points + round;
        for batch in batches(shape, points..points + 1) {
            store.put(table, batch).await.expect("a durable batch");
        }
        let expected = u64::from(shape.series) * u64::from(points + 1);
        let before = cpu_ns();
        let (points, summarized) = read(store, table, &request).await;
        assert_eq!(points + summarized, expected, "{}", shape.name);
        ns.push((cpu_ns() - before) / expected as f64);
    }
    let mean = ns.iter().sum::<f64>() / ns.len() as f64;
    println!("{:<28} {:<22} {mean:7.2} ns CPU a point", shape.name, "… while points arrive");
    rounds
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    for shape in SHAPES {
        let points = if is_bench { shape.points } else { shape.points.min(20) };
        let series = if is_bench { shape.series } else { shape.series.min(300) };
        run(&Shape { series, points, ..shape }, is_bench).await;
    }
}
