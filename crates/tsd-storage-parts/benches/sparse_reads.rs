//! CPU time and cache look-ups of reads of series whose points are far apart, and of dense series with as many points.
//!
//! ```text
//! cargo bench -p tsd-storage-parts --bench sparse_reads
//! ```
//!
//! Each read is sent as the engine sends it: a range of all series is one read for each salt bucket, a list of series
//! is one read. Without `--bench`, as in `cargo test --benches`, it writes few points to check that it runs.

use std::{error::Error, fs, path::Path, time::Duration};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tsd_model::{Family, TableSchema};
use tsd_storage::{
    FlushTarget, OwnedFlushRow, ReadSelection, SeriesRange, SeriesRead, Storage, Table,
};
use tsd_storage_parts::{PartLayout, PartStorage, PartStorageConfig, PartTableSpec};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// 2013-01-01, the start of a UTC day.
const START: u32 = 1_356_998_400;
const DAY: u32 = PartLayout::DAY_SECS;
const BUCKETS: u32 = 20;
/// Series of one host.
const HOST_SERIES: u32 = 10;
/// Days in one flush.
const FLUSH_DAYS: usize = 50;
const PREFIX_LEN: usize = 4;
const RUNS: usize = 5;

type AnyError = Box<dyn Error>;

struct Set {
    name: &'static str,
    days: u32,
    series: u32,
    /// Distance of the points, seconds.
    step: u32,
}

const SETS: [Set; 4] = [
    Set { name: "2 000 days, 500 series, a point a day", days: 2_000, series: 500, step: DAY },
    Set { name: "3 650 days, 10 series, a point a day", days: 3_650, series: 10, step: DAY },
    Set { name: "1 460 days, a series, every 10 min", days: 1_460, series: 1, step: 600 },
    Set { name: "20 days, 500 series, every 864 s", days: 20, series: 500, step: 864 },
];

/// Cost of a read.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    points: usize,
    blocks: usize,
    cpu_ns: f64,
    lookups: f64,
    read_bytes: u64,
}

fn table() -> Table {
    Table::new("tsdb")
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Bytes that the process has read from files, including the page cache.
fn read_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Row key of a series without base time: salt, metric, two tags.
fn series_key(series: u32) -> Vec<u8> {
    let salt = (series.wrapping_mul(2_654_435_761) >> 16) % BUCKETS;
    let host = series / HOST_SERIES;
    let tags = [0, 0, 1, 0, (host >> 8) as u8, host as u8, 0, 0, 2, 0, 0, series as u8];
    [&[salt as u8, 0, 0, 1][..], &tags].concat()
}

/// The rows of these days, in order of keys.
fn rows(set: &Set, days: &[u32]) -> Vec<OwnedFlushRow> {
    let mut rows = Vec::new();
    for day in days {
        for series in 0..set.series {
            let mut seconds = (0..DAY).step_by(set.step as usize).peekable();
            while let Some(first) = seconds.peek().copied() {
                let hour = first / 3_600;
                let mut cells = Vec::new();
                while let Some(second) = seconds.next_if(|second| second / 3_600 == hour) {
                    let value = (f64::from(day * 31 + second / 7 + series) / 8.0).to_be_bytes();
                    let qualifier = (((second % 3_600) as u16) << 4 | 0xF).to_be_bytes().to_vec();
                    let timestamp_ms = i64::from(START + day * DAY + second) * 1_000;
                    cells.push((Family::T, qualifier, value.to_vec(), timestamp_ms));
                }
                let mut key = series_key(series);
                let base = START + day * DAY + hour * 3_600;
                key.splice(PREFIX_LEN..PREFIX_LEN, base.to_be_bytes());
                rows.push(OwnedFlushRow { key, cells, ..OwnedFlushRow::default() });
            }
        }
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

fn open(dir: &Path) -> Result<PartStorage, AnyError> {
    let schema = TableSchema::try_new(3, 3, 3, 1, BUCKETS)?;
    let layout = PartLayout::try_new(&schema, DAY)?;
    let spec = PartTableSpec { compacts_rows: true, ..PartTableSpec::new(table(), layout) };
    let config = PartStorageConfig::new(dir, vec![spec]);
    Ok(PartStorage::open(&PartStorageConfig { read_threads: 1, ..config })?)
}

/// Flushes days in order, each in two sections, and waits until they are merged.
async fn load(store: &PartStorage, set: &Set) -> Result<(), AnyError> {
    let days: Vec<u32> = (0..set.days).collect();
    for days in days.chunks(FLUSH_DAYS) {
        for half in 0..2 {
            let mut rows = rows(set, days);
            rows.retain(|row| row.key.last().is_some_and(|tag| u32::from(*tag) % 2 == half));
            store.flush_rows(&table(), OwnedFlushRow::flush_rows(rows)).await?;
        }
    }
    let parts = store.backend().parts(&table()).ok_or("no table")?;
    parts.allow_compaction(u32::MAX);
    while parts.snapshot().spans().values().flatten().any(|s| s.compacted_before.is_none()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn all_series(bases: (u32, u32)) -> Vec<SeriesRead> {
    let bucket = |salt: u32| {
        let prefix = Bytes::copy_from_slice(&[salt as u8, 0, 0, 1]);
        let range = SeriesRange { prefix, from: Bytes::new(), to: None, filter: None };
        read_of(ReadSelection::Range(range), bases)
    };
    (0..BUCKETS).map(bucket).collect()
}

fn one_host(set: &Set, bases: (u32, u32)) -> Vec<SeriesRead> {
    let mut keys: Vec<Bytes> =
        (0..HOST_SERIES.min(set.series)).map(|series| series_key(series).into()).collect();
    keys.sort_unstable();
    vec![read_of(ReadSelection::Keys(keys), bases)]
}

const fn read_of(selection: ReadSelection, bases: (u32, u32)) -> SeriesRead {
    SeriesRead {
        prefix_len: PREFIX_LEN,
        selection,
        bases,
        summaries: None,
        reads_past_losses: false,
    }
}

fn lookups(store: &PartStorage) -> f64 {
    let gauges = store.maintenance().gauges();
    let is_lookup = |name: &str| name.contains("_cache_hits") || name.contains("_cache_misses");
    gauges.iter().filter(|(name, _)| is_lookup(name)).map(|(_, value)| value).sum()
}

async fn read(store: &PartStorage, reads: &[SeriesRead]) -> Result<Cost, AnyError> {
    let (lookups_before, bytes_before, began) = (lookups(store), read_bytes(), cpu_ns());
    let mut cost = Cost::default();
    for read in reads {
        let mut scanner = store.series().read_series(&table(), read).ok_or("no read of series")?;
        while let Some(blocks) = scanner.next_series().await? {
            cost.blocks += blocks.len();
            cost.points += blocks.iter().map(|block| block.columns.len()).sum::<usize>();
        }
    }
    cost.cpu_ns = cpu_ns() - began;
    cost.lookups = lookups(store) - lookups_before;
    cost.read_bytes = read_bytes() - bytes_before;
    Ok(cost)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (days, series) = if is_bench { (u32::MAX, u32::MAX) } else { (30, 20) };
    for set in &SETS {
        let set = &Set { days: set.days.min(days), series: set.series.min(series), ..*set };
        let directory = tempfile::tempdir()?;
        let store = open(directory.path())?;
        load(&store, set).await?;
        drop(store);
        let end = START + set.days * DAY - 1;
        let week = (end + 1 - 7 * DAY, end);
        let expected = |days: u32, series: u32| (days * series * DAY.div_ceil(set.step)) as usize;
        println!("{}", set.name);
        for (name, reads, points) in [
            ("all series", all_series((START, end)), expected(set.days, set.series)),
            (
                "a host",
                one_host(set, (START, end)),
                expected(set.days, set.series.min(HOST_SERIES)),
            ),
            ("a week of all series", all_series(week), expected(7, set.series)),
        ] {
            let store = open(directory.path())?;
            let first = read(&store, &reads).await?;
            let mut costs = Vec::new();
            for _ in 0..RUNS {
                costs.push(read(&store, &reads).await?);
            }
            costs.sort_by(|a, b| a.cpu_ns.total_cmp(&b.cpu_ns));
            let cost = costs.get(RUNS / 2).copied().unwrap_or_default();
            if cost.points != points {
                return Err(format!("{name}: {} points instead of {points}", cost.points).into());
            }
            let per_point = |value: f64| value / points as f64;
            println!(
                "  {name:20} {points:8} points {:8} blocks {:8} look-ups; first {:7.1} ns and {:6.1} bytes read a \
                 point, then {:7.1} ns and {:5.1} bytes",
                cost.blocks,
                cost.lookups,
                per_point(first.cpu_ns),
                per_point(first.read_bytes as f64),
                per_point(cost.cpu_ns),
                per_point(cost.read_bytes as f64),
            );
        }
    }
    Ok(())
}
