//! Reads by summaries equal reads of all points, while rows change between the reads.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use tsd_model::{Family, PointColumns, SummaryFold, SummaryUse, Value};
use tsd_storage::{CellBatch, CellRef, MemoryStorage, ReadSelection, SeriesRange};

use super::*;
use crate::{
    change::Change,
    memtable::{BufferPool, Memtable},
    memtable_list::MemtableList,
};

const ID: TableId = TableId(0);
const PREFIX: [u8; 2] = [0, 2];
const HOUR: u32 = 3_600;
const HOURS: u32 = 4;

#[derive(Clone, Debug)]
enum ScanAction {
    /// Points of a row, from `second` on, `gap` seconds apart.
    Put {
        row: (u8, u32),
        second: u16,
        gap: u16,
        values: Vec<i16>,
        is_double: bool,
    },
    Delete {
        row: (u8, u32),
        second: u16,
    },
    DeleteRow {
        row: (u8, u32),
    },
    Rotate,
    Read {
        by_keys: bool,
        by_cursors: bool,
        hours_ms: (i64, i64),
    },
}

fn step() -> impl Strategy<Value = ScanAction> {
    let row = || (0..2_u8, 0..HOURS);
    let put = (row(), 0..600_u16, 1..6_u16, prop::collection::vec(any::<i16>(), 1..130));
    let put = (put, any::<bool>()).prop_map(|((row, second, gap, values), is_double)| {
        ScanAction::Put { row, second, gap, values, is_double }
    });
    let hours_ms = (0..HOURS, 0..=HOURS, 0..2_i64).prop_map(|(from, hours, late)| {
        let from_ms = i64::from(from * HOUR) * 1_000 + late;
        (from_ms, from_ms + i64::from(hours * HOUR) * 1_000)
    });
    prop_oneof![
        8 => put,
        1 => (row(), 0..1_800_u16).prop_map(|(row, second)| ScanAction::Delete { row, second }),
        1 => row().prop_map(|row| ScanAction::DeleteRow { row }),
        1 => Just(ScanAction::Rotate),
        6 => (any::<bool>(), any::<bool>(), hours_ms).prop_map(|(by_keys, by_cursors, hours_ms)| {
            ScanAction::Read { by_keys, by_cursors, hours_ms }
        }),
    ]
}

fn series(number: u8) -> Bytes {
    [&PREFIX[..], &[number]].concat().into()
}

fn row_key((number, hour): (u8, u32)) -> Bytes {
    [&PREFIX[..], &(hour * HOUR).to_be_bytes(), &[number]].concat().into()
}

fn qualifier(second: u16, is_double: bool) -> [u8; 2] {
    let flags = if is_double { 0xF } else { 1 };
    (second % HOUR as u16 * 16 + flags).to_be_bytes()
}

/// The cells of a [`ScanAction::Put`]. Integers take two bytes, so all need more than one.
fn put_of(
    row: (u8, u32),
    seconds: impl Iterator<Item = u16>,
    values: &[i16],
    is_double: bool,
) -> Change {
    let mut batch = CellBatch::new();
    batch.begin_row(&row_key(row)).unwrap();
    for (second, value) in seconds.zip(values) {
        let double = f64::from(*value) / 7.0;
        let wide = if value.unsigned_abs() < 200 { *value * 2 + 1_000 } else { *value };
        let (double, integer) = (double.to_be_bytes(), wide.to_be_bytes());
        let value = if is_double { &double[..] } else { &integer[..] };
        let qualifier = &qualifier(second, is_double)[..];
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        batch.push(cell).unwrap();
    }
    Change::Put(batch)
}

/// Blocks of the backend.
struct Stored(Vec<SeriesBlock>);

impl SeriesScanner for Stored {
    fn next_series(&mut self) -> StorageFuture<'_, Option<Vec<SeriesBlock>>> {
        let blocks = std::mem::take(&mut self.0);
        Box::pin(async { Ok((!blocks.is_empty()).then_some(blocks)) })
    }
}

/// A block with a point in some hours.
fn stored_blocks(hours: &[u32]) -> Vec<SeriesBlock> {
    let mut columns = PointColumns::default();
    for hour in hours {
        columns.push(i64::from(hour * HOUR + 3_500) * 1_000, Value::Float(0.1));
    }
    let block = SeriesBlock { series: series(1), columns, ..SeriesBlock::default() };
    if block.is_empty() { Vec::new() } else { vec![block] }
}

fn read_of(by_keys: bool, summaries: Option<SummaryUse>) -> SeriesRead {
    let range = SeriesRange {
        prefix: Bytes::from_static(&PREFIX),
        from: Bytes::new(),
        to: None,
        filter: None,
    };
    let keys = || (0..2).map(series).collect();
    SeriesRead {
        prefix_len: PREFIX.len(),
        selection: if by_keys { ReadSelection::Keys(keys()) } else { ReadSelection::Range(range) },
        bases: (0, HOURS * HOUR),
        summaries,
        reads_past_losses: false,
    }
}

fn blocks_of(
    view: &Arc<MemtableView>,
    read: &SeriesRead,
    by_cursors: bool,
    stored: &[u32],
) -> BTreeMap<Bytes, SeriesBlock> {
    let rows = if by_cursors {
        MemtableDays::of_day(view, ID, read.clone())
    } else {
        MemtableDays::try_copied(view, ID, read).unwrap()
    };
    let table = Table::new("t");
    let backend = MemoryStorage::new([table.clone()]);
    let mut days = MergedDays::new(rows, Some(Box::new(Stored(stored_blocks(stored)))));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut found = BTreeMap::new();
        while let Some(blocks) = days.next_batch(&backend, &table).await.unwrap() {
            for block in blocks {
                assert!(found.insert(block.series.clone(), block).is_none());
            }
        }
        found
    })
}

type Point = (i64, u64, bool);

fn points(columns: &PointColumns) -> Vec<Point> {
    let bits = columns.times_ms.iter().zip(&columns.bits).enumerate();
    bits.map(|(i, (time, bits))| (*time, *bits, columns.is_integer(i))).collect()
}

fn double((_, bits, is_integer): &Point) -> f64 {
    if *is_integer { *bits as i64 as f64 } else { f64::from_bits(*bits) }
}

/// Checks a block with summaries against that with all points. Returns the number of summarized points.
fn check(block: &SeriesBlock, whole: &SeriesBlock, hours_ms: (i64, i64)) -> u64 {
    assert_eq!(format!("{:?}", block.rows), format!("{:?}", whole.rows));
    let mut rest = points(&whole.columns);
    let mut last_ms = i64::MIN;
    for summary in &block.summaries {
        assert!(hours_ms.0 <= summary.start_ms && summary.end_ms <= hours_ms.1);
        assert!(last_ms <= summary.start_ms);
        last_ms = summary.end_ms;
        let hour = summary.start_ms..summary.end_ms;
        let (of_hour, others): (Vec<Point>, Vec<Point>) =
            rest.into_iter().partition(|point| hour.contains(&point.0));
        rest = others;
        let values: Vec<f64> = of_hour.iter().map(double).collect();
        assert_eq!(summary.count, values.len() as u64);
        let sum = values.iter().fold(0.0, |a, b| a + b);
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert_eq!((summary.min, summary.max, summary.sum.to_bits()), (min, max, sum.to_bits()));
        assert_eq!((summary.first, summary.last), (values[0], values[values.len() - 1]));
        assert_eq!(summary.is_integral, values.iter().all(|v| v.fract() == 0.0));
    }
    assert_eq!(points(&block.columns), rest);
    block.summaries.iter().map(|summary| summary.count).sum()
}

fn memtable(id: u64) -> Memtable {
    Memtable::new(id, 0, Arc::new(BufferPool::new(0)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn reads_by_summaries_have_all_points(
        steps in prop::collection::vec(step(), 1..40),
        is_orderly in any::<bool>(),
        stored in prop::sample::subsequence((0..HOURS).collect::<Vec<_>>(), 0..3),
    ) {
        let list = MemtableList::new(vec![Arc::new(memtable(0))]);
        let mut ends: BTreeMap<(u8, u32), u16> = BTreeMap::new();
        for (number, step) in (1..).zip(steps) {
            let apply = |change: &Change| {
                list.view().active().unwrap().apply(ID, change, 5, number);
            };
            match step {
                ScanAction::Put { row, second, gap, values, is_double } => {
                    let end = ends.entry(row).or_default();
                    let first = if is_orderly { *end } else { second };
                    let seconds = (0..values.len() as u16).map(|i| first + i * gap);
                    *end = first + values.len() as u16 * gap;
                    if *end < HOUR as u16 {
                        apply(&put_of(row, seconds, &values, is_double));
                    }
                }
                ScanAction::Delete { row, second } => apply(&Change::DeleteColumns {
                    row: row_key(row),
                    columns: vec![(Family::T, Bytes::copy_from_slice(&qualifier(second, true)))],
                }),
                ScanAction::DeleteRow { row } => apply(&Change::DeleteRow(row_key(row))),
                ScanAction::Rotate => list.rotate(memtable(number)),
                ScanAction::Read { by_keys, by_cursors, hours_ms } => {
                    let fold = SummaryFold::Ends;
                    let summaries =
                        SummaryUse { range_ms: hours_ms, has_days: false, fold, with_points: false };
                    let view = list.view();
                    let found =
                        blocks_of(&view, &read_of(by_keys, Some(summaries)), by_cursors, &stored);
                    let whole = blocks_of(&view, &read_of(by_keys, None), by_cursors, &stored);
                    prop_assert!(found.keys().eq(whole.keys()));
                    for (block, whole) in found.values().zip(whole.values()) {
                        check(block, whole, hours_ms);
                    }
                }
            }
        }
    }
}

#[test]
fn a_summary_is_kept_and_extended() {
    let list = MemtableList::new(vec![Arc::new(memtable(0))]);
    let apply = |first: u16, values: &[i16]| {
        let seconds = first..first + values.len() as u16;
        list.view().active().unwrap().apply(ID, &put_of((0, 1), seconds, values, true), 5, 1);
    };
    let hours_ms = (0, i64::from(HOURS * HOUR) * 1_000);
    let fold = SummaryFold::Extremes;
    let summaries = SummaryUse { range_ms: hours_ms, has_days: true, fold, with_points: false };
    let summarized = || {
        let view = list.view();
        let found = blocks_of(&view, &read_of(false, Some(summaries)), false, &[]);
        let whole = blocks_of(&view, &read_of(false, None), false, &[]);
        (check(&found[&series(0)], &whole[&series(0)], hours_ms), view.summary_count())
    };
    apply(0, &[7; 40]);
    assert_eq!(summarized(), (0, 0), "few points");
    apply(40, &[8; 40]);
    assert_eq!(summarized(), (80, 1));
    let bytes = list.view().bytes();
    apply(80, &[9; 3]);
    assert_eq!(summarized(), (83, 1), "extended");
    assert_eq!(list.view().bytes(), bytes, "in place");
    // The first half of the hour stays in the older memtable.
    list.rotate(memtable(1));
    apply(83, &[1; 60]);
    assert_eq!(summarized(), (143, 1), "in two memtables");
    apply(10, &[3]);
    assert_eq!(summarized(), (0, 1), "a corrected point");
}
