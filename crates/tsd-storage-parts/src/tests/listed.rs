//! Reads of listed series return the same as a read of all series, for any list.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use tsd_model::Family;

use super::scenario::{TestRow, TestRows, new_store};
use crate::{PartLayout, PartStore, SeriesReader, SeriesSelection};

const BASE: u32 = 1_356_998_400;
/// More series than fit into a block of names or of data.
const SERIES: u16 = 1_200;

fn tags(series: u16) -> Vec<u8> {
    let [high, low] = series.to_be_bytes();
    [&[0, 0, 1, 0, high, low][..], &[0, 0, 2, 0, 0, low % 3]].concat()
}

fn row(series: u16, hour: u32, delete_row: bool) -> TestRow {
    let base = BASE + hour * 3_600;
    let key = [&[0, 0, 1][..], &base.to_be_bytes(), &tags(series)].concat();
    let second = (series % 50 * 7) << 4;
    let cells = vec![(Family::T, second.to_be_bytes().to_vec(), vec![hour as u8], 1)];
    let cells = if delete_row { Vec::new() } else { cells };
    TestRow { key, delete_row, deletes: Vec::new(), cells }
}

/// Series at a regular step: the first one, the end (exclusive), and the step.
type Every = (u16, u16, u16);

fn numbers((from, to, step): Every) -> impl Iterator<Item = u16> {
    (from..to).step_by(usize::from(step))
}

fn every() -> impl Strategy<Value = Every> {
    let step = prop_oneof![1_u16..4, 4_u16..40, 40_u16..600];
    // Bounds before the first and after the last series, too.
    let bounds = (0..SERIES + 400, prop_oneof![1_u16..30, 30..SERIES + 400]);
    (bounds, step).prop_map(|((from, len), step)| (from, from + len, step))
}

/// Flushes: series, an hour of two days, and whether the rows are deleted.
fn flushes() -> impl Strategy<Value = Vec<(Every, u32, bool)>> {
    let all = (200_u16..201, SERIES..SERIES + 1, 1_u16..3);
    let flush =
        (prop_oneof![all, every()], prop_oneof![0_u32..3, 24_u32..26], prop::bool::weighted(0.2));
    prop::collection::vec(flush, 1..5)
}

fn fill(store: &PartStore, flushes: &[(Every, u32, bool)]) {
    for (every, hour, is_delete) in flushes {
        let rows: Vec<TestRow> = numbers(*every)
            .filter(|series| (200..SERIES).contains(series))
            .map(|series| row(series, *hour, *is_delete))
            .collect();
        store.flush(&mut TestRows::new(&rows)).unwrap();
    }
}

/// Points by series and span.
type Contents = BTreeMap<(Vec<u8>, u32), Vec<(i64, u64)>>;

fn read(store: &PartStore, selection: SeriesSelection, bases: (u32, u32)) -> Contents {
    let mut reader = SeriesReader::of_rows(&store.snapshot(), Arc::new(selection), bases);
    let (mut contents, mut last) = (Contents::new(), None);
    while let Some(points) = reader.next_series().unwrap() {
        let columns = &points.columns;
        let place = (points.span, points.series.clone());
        assert!(last.as_ref().is_none_or(|last| *last < place), "series are in order");
        last = Some(place);
        let points_of = columns.times_ms.iter().copied().zip(columns.bits.iter().copied());
        contents.insert((points.series.clone(), points.span), points_of.collect());
    }
    contents
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn listed_series_are_those_of_a_full_read(
        flushes in flushes(),
        lists in prop::collection::vec(prop::collection::vec(every(), 0..3), 1..6),
        merges: bool,
        hours in prop_oneof![Just((0_u32, 47_u32)), (0_u32..2, 0_u32..26)],
    ) {
        let (_disk, store) = new_store();
        fill(&store, &flushes);
        if merges {
            store.merge_all(0).unwrap();
        }
        let bases = (BASE + hours.0 * 3_600, BASE + hours.0.max(hours.1) * 3_600);
        let all = read(&store, SeriesSelection::All, bases);
        for list in lists {
            let key = |series| PartLayout::timed_series(&[&[0, 0, 1][..], &tags(series)].concat());
            let mut keys: Vec<Vec<u8>> = list.into_iter().flat_map(numbers).map(key).collect();
            keys.sort();
            keys.dedup();
            let mut expected = all.clone();
            expected.retain(|(series, _), _| keys.binary_search(series).is_ok());
            let found = read(&store, SeriesSelection::Some(keys), bases);
            prop_assert!(found == expected, "{} listed, {} expected", found.len(), expected.len());
        }
    }
}
