//! Reads that join small spans return the same as reads of each span.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use proptest::prelude::*;
use tsd_model::{Cell, Family};

use super::scenario::{TestRow, TestRows, new_store};
use crate::{PartLayout, SeriesReader, SeriesSelection, Snapshot};

const BASE: u32 = 1_356_998_400;
const DAYS: u32 = 150;

fn series_key(series: u8) -> Vec<u8> {
    vec![0, 0, 1 + series % 3, 0, 0, 1, 0, 0, series]
}

fn key(series: u8, base: u32) -> Vec<u8> {
    let mut key = series_key(series);
    key.splice(3..3, base.to_be_bytes());
    key
}

/// Rows of a series, one every `step` days: a point, and for some kinds another column.
#[derive(Clone, Debug)]
struct Sparse {
    series: u8,
    first: u32,
    step: u32,
    kind: u8,
}

fn rows(sparse: &Sparse, flush: usize) -> Vec<TestRow> {
    let days = (sparse.first..DAYS).step_by(sparse.step as usize);
    let row = |day: u32| {
        let base = BASE + day * PartLayout::DAY_SECS + day % 24 * 3_600;
        let second = |second: u16, flags: u16| (second << 4 | flags).to_be_bytes().to_vec();
        let mut cells = vec![(Family::T, second(flush as u16, 0), vec![day as u8], 1)];
        match sparse.kind {
            1 => cells.push((Family::T, vec![1, 0, 5], b"{}".to_vec(), 2)),
            // Two columns of one instant.
            2 => cells.push((Family::T, second(flush as u16, 1), vec![1, 2], 2)),
            3 => cells.clear(),
            _ => {}
        }
        let delete_row = sparse.kind == 3;
        TestRow { key: key(sparse.series, base), delete_row, deletes: Vec::new(), cells }
    };
    days.map(row).collect()
}

fn flushes() -> impl Strategy<Value = Vec<Vec<Sparse>>> {
    let kind = prop_oneof![4 => Just(0_u8), 1 => 1_u8..4];
    let sparse = (0_u8..40, 0..DAYS, prop_oneof![Just(1_u32), 1_u32..60], kind)
        .prop_map(|(series, first, step, kind)| Sparse { series, first, step, kind });
    prop::collection::vec(prop::collection::vec(sparse, 1..12), 1..4)
}

/// Points, rows and other columns of a series.
type Contents = (Vec<(i64, u64)>, Vec<(Bytes, Vec<Cell>)>, Vec<(u32, Cell)>);

/// The contents of the series, and the number of blocks.
fn read(
    snapshot: &Arc<Snapshot>,
    selection: &SeriesSelection,
    bases: (u32, u32),
    joins: bool,
) -> (BTreeMap<Vec<u8>, Contents>, usize) {
    let mut reader = SeriesReader::of_rows(snapshot, Arc::new(selection.clone()), bases);
    if joins {
        reader = reader.with_joined_spans();
    }
    let (mut contents, mut blocks) = (BTreeMap::<Vec<u8>, Contents>::new(), 0);
    while let Some(points) = reader.next_series().unwrap() {
        blocks += 1;
        let of_series = contents.entry(points.series.clone()).or_default();
        let columns = &points.columns;
        of_series.0.extend(columns.times_ms.iter().copied().zip(columns.bits.iter().copied()));
        of_series.1.extend(points.conflicts.drain(..).map(|row| (row.key, row.cells)));
        of_series.2.append(&mut points.others);
    }
    (contents, blocks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn joined_spans_have_the_same_points(
        flushes in flushes(), merges: bool, listed in prop::collection::btree_set(0_u8..45, 0..12),
        days in prop_oneof![Just((0, DAYS)), (0..DAYS, 0..DAYS)],
    ) {
        let (_disk, store) = new_store();
        for (index, flush) in flushes.iter().enumerate() {
            let mut of_flush: BTreeMap<Vec<u8>, TestRow> = BTreeMap::new();
            for row in flush.iter().flat_map(|sparse| rows(sparse, index)) {
                of_flush.insert(row.key.clone(), row);
            }
            let rows: Vec<TestRow> = of_flush.into_values().collect();
            store.flush(&mut TestRows::new(&rows)).unwrap();
        }
        if merges {
            store.merge_all(BASE + DAYS / 2 * PartLayout::DAY_SECS).unwrap();
        }
        let snapshot = store.snapshot();
        let bases = (
            BASE + days.0 * PartLayout::DAY_SECS + 7_200,
            BASE + days.0.max(days.1) * PartLayout::DAY_SECS + 43_200,
        );
        let mut keys: Vec<Vec<u8>> =
            listed.iter().map(|series| PartLayout::timed_series(&series_key(*series))).collect();
        keys.sort();
        let range = SeriesSelection::Range(vec![0, 0, 2], Some(vec![0, 0, 3]));
        for selection in [SeriesSelection::All, range, SeriesSelection::Some(keys)] {
            let (plain, blocks) = read(&snapshot, &selection, bases, false);
            let (joined, joined_blocks) = read(&snapshot, &selection, bases, true);
            prop_assert!(joined == plain);
            prop_assert!(joined_blocks <= blocks);
            let has_one_section = snapshot.spans().values().all(|sections| sections.len() == 1);
            if has_one_section {
                // 64 spans are joined.
                prop_assert!(joined_blocks <= plain.len() * 3);
            }
        }
    }
}
