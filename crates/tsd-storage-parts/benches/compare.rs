//! Parts against the LSM tree: the same flushes, the same queries, answers checked against a model.
//!
//! Options: `--design parts|lsm-series|lsm-hour`, `--data wide|long`, `--series N`, `--days N`,
//! `--interval SECS`, `--span-days N`. One design per process, so that the peak memory is its own.
//!
//! - `parts`: this crate. Spans that closed are merged as they close.
//! - `lsm-series`: the tree with keys in the order metric, day, series, hour.
//! - `lsm-hour`: the tree with keys as they are today: metric, hour, series. A selection walks over
//!   all rows of the time range, as today.
//!
//! Flushes are in order of time. 3 % of the points come later, 1 % are corrected later. The queries run
//! in the middle of the load, at its end, and when all merges are done (`settled`); the tree is measured
//! once more after the rows were compacted (`compacted`), which parts do by merging.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a bench may panic"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tsd_model::{
    BaseTime, Family, MergeRule, PointColumns, Row, RowExtras, TableSchema, decode_row,
};
use tsd_storage::{FlushCell, FlushRow, FlushRows, FlushTarget, Scan, Storage, Table};
use tsd_storage_lsm::{LsmConfig, LsmStorage, TableSpec};
use tsd_storage_parts::{PartLayout, PartStore, SeriesReader, SeriesSelection};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const START: u32 = 1_500_076_800;
const DAY: u32 = 86_400;
const HOUR: u32 = 3_600;

fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xD1B5_4A32_D192_ED03);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// What the load consists of.
#[derive(Clone, Copy, Debug)]
struct Load {
    series: u32,
    steps: u32,
    interval: u32,
    /// Series of one flush of the live edge, and steps.
    flush_series: u32,
    flush_steps: u32,
    /// Steps after which late and corrected points come.
    lag: u32,
}

impl Load {
    fn time(&self, step: u32) -> u32 {
        START + step * self.interval
    }

    fn is_late(series: u32, step: u32) -> bool {
        mix(u64::from(series), u64::from(step) | 1 << 40) % 100 < 3
    }

    fn is_corrected(series: u32, step: u32) -> bool {
        mix(u64::from(series), u64::from(step) | 2 << 40) % 100 < 1
    }

    /// Value in hundredths: a slow wave and noise.
    fn hundredths(series: u32, step: u32, corrected: bool) -> i64 {
        let phase = mix(u64::from(series), 7) % 4_000;
        let at = (u64::from(step) * 10 + phase) % 4_000;
        let wave = if at < 2_000 { at } else { 4_000 - at };
        let noise = mix(u64::from(series), u64::from(step)) % 64;
        5_000 + (wave + noise) as i64 + if corrected { 100_000 } else { 0 }
    }

    fn flushes(&self) -> Vec<FlushSpec> {
        let mut all = Vec::new();
        let mut step = 0;
        while step < self.steps + self.lag {
            let end = step + self.flush_steps;
            let mut first = 0;
            while first < self.series {
                let last = (first + self.flush_series).min(self.series);
                all.push(FlushSpec { series: first..last, steps: step..end });
                first = last;
            }
            step = end;
        }
        all
    }

    /// Points of a flush: series, step, corrected.
    fn points(&self, flush: &FlushSpec) -> Vec<(u32, u32, bool)> {
        let mut points = Vec::new();
        for series in flush.series.clone() {
            for step in flush.steps.clone() {
                if step < self.steps && !Self::is_late(series, step) {
                    points.push((series, step, false));
                }
                if let Some(old) = step.checked_sub(self.lag)
                    && old < self.steps
                {
                    if Self::is_corrected(series, old) {
                        points.push((series, old, true));
                    } else if Self::is_late(series, old) {
                        points.push((series, old, false));
                    }
                }
            }
        }
        points
    }
}

#[derive(Clone, Debug)]
struct FlushSpec {
    series: std::ops::Range<u32>,
    steps: std::ops::Range<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyOrder {
    HourSeries,
    SeriesHour,
}

fn tags(series: u32) -> [u8; 12] {
    let [_, a, b, c] = series.to_be_bytes();
    [0, 0, 1, a, b, c, 0, 0, 2, 0, 0, 3]
}

fn row_key(order: KeyOrder, series: u32, base: u32) -> Vec<u8> {
    let mut key = vec![0, 0, 1];
    match order {
        KeyOrder::HourSeries => {
            key.extend_from_slice(&base.to_be_bytes());
            key.extend_from_slice(&tags(series));
        }
        KeyOrder::SeriesHour => {
            key.extend_from_slice(&(base - base % DAY).to_be_bytes());
            key.extend_from_slice(&tags(series));
            key.push((base % DAY / HOUR) as u8);
        }
    }
    key
}

/// Base time and series of a key.
fn split(order: KeyOrder, key: &[u8]) -> (u32, u32) {
    let base = u32::from_be_bytes(key[3..7].try_into().unwrap());
    let series = u32::from_be_bytes([0, key[10], key[11], key[12]]);
    match order {
        KeyOrder::HourSeries => (base, series),
        KeyOrder::SeriesHour => (base + u32::from(key[19]) * HOUR, series),
    }
}

/// A flush, built before it is measured.
struct BenchRows {
    rows: Vec<(Vec<u8>, std::ops::Range<usize>)>,
    cells: Vec<([u8; 2], [u8; 8], i64)>,
    next: usize,
    /// The rows replace older ones by one column.
    compacted: bool,
    column: (Vec<u8>, Vec<u8>),
}

impl BenchRows {
    fn build(load: &Load, order: KeyOrder, points: &[(u32, u32, bool)], compacted: bool) -> Self {
        let mut cells = Vec::with_capacity(points.len());
        let mut sorted: Vec<(u32, u32, u32, bool)> = points
            .iter()
            .map(|&(series, step, corrected)| {
                (series, load.time(step) / HOUR * HOUR, step, corrected)
            })
            .collect();
        sorted.sort_unstable();
        let mut rows = Vec::new();
        for row in sorted.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let start = cells.len();
            for &(series, base, step, corrected) in row {
                let offset = load.time(step) - base;
                let value = Load::hundredths(series, step, corrected) as f64 / 100.0;
                let qualifier = ((offset << 4 | 0xF) as u16).to_be_bytes();
                let delay = (mix(u64::from(step), 3) % 300) as i64;
                let written = i64::from(load.time(step)) * 1_000 + delay;
                cells.push((qualifier, value.to_be_bytes(), written));
            }
            rows.push((row_key(order, row[0].0, row[0].1), start..cells.len()));
        }
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Self { rows, cells, next: 0, compacted, column: (Vec::new(), Vec::new()) }
    }
}

impl FlushRows for BenchRows {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        let (key, range) = self.rows.get(self.next)?;
        self.next += 1;
        let cells = &self.cells[range.clone()];
        if self.compacted {
            self.column.0.clear();
            self.column.1.clear();
            for (qualifier, value, _) in cells {
                self.column.0.extend_from_slice(qualifier);
                self.column.1.extend_from_slice(value);
            }
            if cells.len() > 1 {
                self.column.1.push(0);
            }
            let timestamp_ms = cells.iter().map(|c| c.2).max().unwrap();
            let (qualifier, value) = (self.column.0.as_slice(), self.column.1.as_slice());
            let cell = FlushCell { family: Family::T, qualifier, value, timestamp_ms };
            let delete_row = Some(i64::MAX);
            return Some(FlushRow { key, delete_row, deletes: Vec::new(), cells: vec![cell] });
        }
        let cells = cells
            .iter()
            .map(|(qualifier, value, timestamp_ms)| FlushCell {
                family: Family::T,
                qualifier,
                value,
                timestamp_ms: *timestamp_ms,
            })
            .collect();
        Some(FlushRow { key, delete_row: None, deletes: Vec::new(), cells })
    }
}

/// Series and time range of a query, inclusive seconds.
struct Query {
    name: &'static str,
    series: Option<Vec<u32>>,
    range: (u32, u32),
    /// The tree with today's key order cannot do it in reasonable time otherwise.
    repeats: u32,
}

/// Points and the sum of their hundredths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    points: u64,
    sum: i64,
}

impl Answer {
    fn add(&mut self, columns: &PointColumns) {
        self.points += columns.len() as u64;
        let sum: f64 = columns.bits.iter().map(|b| f64::from_bits(*b) * 100.0).sum();
        self.sum += sum.round() as i64;
    }
}

fn expected(load: &Load, query: &Query) -> Answer {
    let mut answer = Answer::default();
    let all: Vec<u32> = query.series.clone().unwrap_or_else(|| (0..load.series).collect());
    for series in all {
        for step in 0..load.steps {
            let time = load.time(step);
            if (query.range.0..=query.range.1).contains(&time) {
                answer.points += 1;
                let corrected = Load::is_corrected(series, step);
                answer.sum += Load::hundredths(series, step, corrected);
            }
        }
    }
    answer
}

enum Design {
    Parts { store: PartStore, layout: PartLayout },
    Lsm { lsm: Box<LsmStorage>, table: Table, runtime: tokio::runtime::Runtime, order: KeyOrder },
}

impl Design {
    fn order(&self) -> KeyOrder {
        match self {
            Self::Parts { .. } => KeyOrder::HourSeries,
            Self::Lsm { order, .. } => *order,
        }
    }

    fn flush(&self, mut rows: BenchRows) {
        match self {
            Self::Parts { store, .. } => store.flush(&mut rows).unwrap(),
            Self::Lsm { lsm, table, runtime, .. } => {
                runtime.block_on(lsm.flush_rows(table, Box::new(rows))).unwrap();
            }
        }
    }

    /// Merges that are due, or all.
    fn merge(&self, closed_before: u32) {
        if let Self::Parts { store, .. } = self {
            while store.merge_due(closed_before).unwrap() {}
        }
    }

    fn settle(&self) {
        match self {
            Self::Parts { store, .. } => while store.merge_closed(u32::MAX).unwrap() {},
            Self::Lsm { lsm, .. } => wait_for_compaction(lsm),
        }
    }

    fn disk_bytes(&self) -> f64 {
        match self {
            Self::Parts { store, .. } => store.disk_bytes() as f64,
            Self::Lsm { lsm, .. } => gauge(lsm, "tsd_lsm_disk_bytes"),
        }
    }

    fn ask(&self, query: &Query) -> Answer {
        let mut answer = Answer::default();
        match self {
            Self::Parts { store, layout } => {
                let snapshot = store.snapshot();
                let selection = query.series.as_ref().map_or(SeriesSelection::All, |wanted| {
                    let series = |&s: &u32| {
                        let mut series = Vec::new();
                        layout.split_key(&row_key(KeyOrder::HourSeries, s, 0), &mut series);
                        series
                    };
                    SeriesSelection::Some(wanted.iter().map(series).collect())
                });
                let range =
                    (i64::from(query.range.0) * 1_000, i64::from(query.range.1) * 1_000 + 999);
                let mut reader = SeriesReader::new(&snapshot, &selection, range);
                while let Some(item) = reader.next_series().unwrap() {
                    item.settle(*layout, MergeRule::Newest, range).unwrap();
                    answer.add(&item.columns);
                }
            }
            Self::Lsm { lsm, table, runtime, order } => {
                let (from, to) = query.range;
                let (first, last) = (from / HOUR * HOUR, to / HOUR * HOUR);
                let mut ranges = Vec::new();
                match (order, &query.series) {
                    (KeyOrder::SeriesHour, Some(wanted)) => {
                        for day in (first / DAY..=last / DAY).map(|d| d * DAY) {
                            for &series in wanted {
                                let start = row_key(*order, series, day.max(first));
                                let mut stop = row_key(*order, series, last.min(day + DAY - HOUR));
                                stop.push(0);
                                ranges.push((start, stop));
                            }
                        }
                    }
                    (KeyOrder::SeriesHour, None) => {
                        let start = row_key(*order, 0, first);
                        ranges.push((start, row_key(*order, 0, last + DAY)));
                    }
                    (KeyOrder::HourSeries, _) => {
                        let start = row_key(*order, 0, first);
                        ranges.push((start, row_key(*order, 0, last + HOUR)));
                    }
                }
                let mut columns = PointColumns::default();
                let mut extras = RowExtras::default();
                let mut read = |rows: Vec<Row>, answer: &mut Answer| {
                    for row in rows {
                        let (base, series) = split(*order, &row.key);
                        if base < first
                            || base > last
                            || query
                                .series
                                .as_ref()
                                .is_some_and(|w| w.binary_search(&series).is_err())
                        {
                            continue;
                        }
                        columns.clear();
                        let time = BaseTime::from_stored(base.to_be_bytes());
                        decode_row(&row, time, MergeRule::Newest, &mut columns, &mut extras)
                            .unwrap();
                        let times = &columns.times_ms;
                        let keep = (
                            times.partition_point(|&t| t < i64::from(from) * 1_000),
                            times.partition_point(|&t| t <= i64::from(to) * 1_000 + 999),
                        );
                        columns.keep(keep.0, keep.1);
                        answer.add(&columns);
                    }
                };
                runtime.block_on(async {
                    for (start, stop) in ranges {
                        let scan = Scan {
                            start: Bytes::from(start),
                            stop: Bytes::from(stop),
                            ..Scan::default()
                        };
                        let mut scanner = lsm.scan(table, scan);
                        while let Some(rows) = scanner.next_rows().await.unwrap() {
                            read(rows, &mut answer);
                        }
                    }
                });
            }
        }
        answer
    }
}

fn gauge(lsm: &LsmStorage, name: &str) -> f64 {
    lsm.gauges().into_iter().find(|(n, _)| *n == name).map_or(0.0, |(_, v)| v)
}

fn wait_for_compaction(lsm: &LsmStorage) {
    let mut before = (-1.0, -1.0);
    loop {
        let cpu = thread_cpu("lsm-compactor");
        let now = (gauge(lsm, "tsd_lsm_compaction_steps_total"), cpu);
        if now == before {
            return;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// CPU seconds of the threads of this name.
fn thread_cpu(name: &str) -> f64 {
    let mut ticks = 0;
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() == name {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let fields: Vec<&str> =
                stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    ticks as f64 / 100.0
}

/// Bytes passed to write calls by this process.
fn written() -> f64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|l| l.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1_024.0
}

fn run_queries(design: &Design, load: &Load, queries: &[Query], state: &str, check: bool) {
    for query in queries {
        let answer = design.ask(query);
        if check {
            assert_eq!(answer.points, expected(load, query).points, "{}", query.name);
            let off = (answer.sum - expected(load, query).sum).abs();
            assert!(off <= 1 + answer.points as i64 / 1_000, "{}: sum off by {off}", query.name);
        }
        let (mut wall, mut used) = (Vec::new(), Vec::new());
        for _ in 0..query.repeats {
            let (started, before) = (Instant::now(), cpu());
            assert_eq!(design.ask(query).points, answer.points);
            wall.push(started.elapsed().as_secs_f64() * 1e3);
            used.push((cpu() - before) * 1e3);
        }
        wall.sort_by(f64::total_cmp);
        used.sort_by(f64::total_cmp);
        println!(
            "{state:>10} | {:<28} | {:>10} points | {:>10.3} ms | {:>10.3} cpu-ms | sum {}",
            query.name,
            answer.points,
            wall[wall.len() / 2],
            used[used.len() / 2],
            answer.sum
        );
    }
}

fn queries(load: &Load, wide: bool) -> Vec<Query> {
    let end = load.time(load.steps - 1);
    let all = (START, end);
    let last = |secs: u32| (end.saturating_sub(secs).max(START), end);
    let every = |count: u32| {
        let step = (load.series / count).max(1);
        Some((0..load.series).step_by(step as usize).take(count as usize).collect::<Vec<_>>())
    };
    let query = |name, series, range, repeats| Query { name, series, range, repeats };
    if wide {
        vec![
            query("one series", Some(vec![777 % load.series]), all, 9),
            query("4 neighbours (one host)", Some((400..404).collect()), all, 9),
            query("1111 series", every(1_111), all, 3),
            query("all series", None, all, 3),
        ]
    } else {
        vec![
            query("one series, all time", Some(vec![7]), all, 5),
            query("one series, 60 days", Some(vec![7]), last(60 * DAY), 5),
            query("one series, last day", Some(vec![7]), last(DAY), 9),
            query("all series, last 30 days", None, last(30 * DAY), 3),
            query("all series, last 6 hours", None, last(6 * HOUR), 5),
            query("all series, all time", None, all, 3),
        ]
    }
}

fn option(arguments: &BTreeMap<String, String>, name: &str, default: u32) -> u32 {
    arguments.get(name).map_or(default, |v| v.parse().expect("a number"))
}

fn load(arguments: &BTreeMap<String, String>, wide: bool) -> Load {
    if wide {
        let series = option(arguments, "--series", 20_000);
        let interval = option(arguments, "--interval", 3 * HOUR);
        let flush_series = series.div_ceil(4);
        Load { series, steps: DAY / interval, interval, flush_series, flush_steps: 1, lag: 2 }
    } else {
        let series = option(arguments, "--series", 100);
        let interval = option(arguments, "--interval", 300);
        let days = option(arguments, "--days", 20);
        let steps = days * (DAY / interval);
        let flush_steps = (6 * HOUR / interval).max(1);
        let lag = 10 * DAY / interval;
        Load { series, steps, interval, flush_series: series, flush_steps, lag }
    }
}

fn open(name: &str, dir: &Path, span: u32) -> Design {
    match name {
        "parts" => {
            let layout = PartLayout::try_new(&TableSchema::opentsdb_default(), span).unwrap();
            Design::Parts { store: PartStore::create(dir, layout), layout }
        }
        other => {
            let table = Table::new("tsdb");
            let specs = vec![TableSpec::points(table.clone())];
            let lsm = LsmStorage::open(&LsmConfig::new(dir, specs)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let order =
                if other == "lsm-hour" { KeyOrder::HourSeries } else { KeyOrder::SeriesHour };
            Design::Lsm { lsm: Box::new(lsm), table, runtime, order }
        }
    }
}

fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|a| a != "--bench" && a != "--test").collect();
    let arguments: BTreeMap<String, String> =
        words.chunks(2).filter(|p| p.len() == 2).map(|p| (p[0].clone(), p[1].clone())).collect();
    let wide = arguments.get("--data").is_none_or(|d| d == "wide");
    let name = arguments.get("--design").map_or("parts", String::as_str).to_owned();
    let load = load(&arguments, wide);
    let span = option(&arguments, "--span-days", 1) * DAY;
    let dir: PathBuf = tempfile::tempdir().unwrap().keep();
    let design = open(&name, &dir, span);
    println!("design {name}, {load:?}, span {} days", span / DAY);
    let queries = queries(&load, wide);
    let flushes = load.flushes();
    let points = u64::from(load.series) * u64::from(load.steps);
    let (mut flush_cpu, mut merge_cpu, mut rows_built) = (0.0, 0.0, 0_u64);
    let io_before = written();
    let half = flushes.len() / 2 + 3;
    for (index, flush) in flushes.iter().enumerate() {
        let rows = BenchRows::build(&load, design.order(), &load.points(flush), false);
        rows_built += rows.cells.len() as u64;
        let before = cpu();
        design.flush(rows);
        flush_cpu += cpu() - before;
        let before = cpu();
        // Spans whose late points have come are closed.
        let now = load.time(flush.steps.start.saturating_sub(load.lag)).saturating_sub(HOUR);
        design.merge(now);
        if let Design::Parts { store, .. } = &design
            && !wide
        {
            while store.merge_closed(now).unwrap() {}
        }
        merge_cpu += cpu() - before;
        if index == half {
            if let Design::Lsm { lsm, .. } = &design {
                wait_for_compaction(lsm);
            }
            run_queries(&design, &load, &queries, "half", false);
        }
    }
    if let Design::Lsm { lsm, .. } = &design {
        wait_for_compaction(lsm);
        merge_cpu = thread_cpu("lsm-compactor");
    }
    run_queries(&design, &load, &queries, "loaded", true);
    let report = |state: &str, merge_cpu: f64| {
        let million = rows_built as f64 / 1e6;
        println!(
            "{state:>10} | {points} points, {rows_built} written | {:.3} B/point on disk | {:.2} B/point \
             written | amplification {:.2} | flush {flush_cpu:.2} cpu-s, merge {merge_cpu:.2} cpu-s \
             ({:.3} per million points) | peak {:.0} MiB",
            design.disk_bytes() / points as f64,
            (written() - io_before) / rows_built as f64,
            (written() - io_before) / design.disk_bytes(),
            merge_cpu / million,
            peak_mib()
        );
    };
    report("loaded", merge_cpu);
    let before = cpu();
    design.settle();
    merge_cpu += cpu() - before;
    if let Design::Lsm { .. } = &design {
        merge_cpu = thread_cpu("lsm-compactor");
    }
    report("settled", merge_cpu);
    run_queries(&design, &load, &queries, "settled", true);
    if let Design::Parts { store, .. } = &design {
        println!(
            "{:>10} | {:?} | heads {} KiB",
            "parts",
            store.stats(),
            store.head_bytes() / 1_024
        );
    }
    if matches!(design, Design::Lsm { .. }) && !wide {
        // The rows as row compaction leaves them; its log is not counted. Wide rows have one point.
        let before = cpu();
        for flush in &flushes {
            let steps = flush.steps.start.min(load.steps)..flush.steps.end.min(load.steps);
            let all: Vec<_> = flush
                .series
                .clone()
                .flat_map(|s| steps.clone().map(move |t| (s, t, Load::is_corrected(s, t))))
                .collect();
            design.flush(BenchRows::build(&load, design.order(), &all, true));
        }
        design.settle();
        println!("{:>10} | {:.2} cpu-s (building the rows included)", "rows", cpu() - before);
        report("compacted", thread_cpu("lsm-compactor"));
        run_queries(&design, &load, &queries, "compacted", true);
    }
    drop(design);
    fs::remove_dir_all(&dir).unwrap();
}
