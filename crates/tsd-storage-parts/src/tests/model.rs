//! After any history of flushes and merges, reads equal the model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tsd_model::{BaseTime, Cell, MergeRule, PointColumns, Row, RowExtras, decode_row};

use super::scenario::{
    Model, PlainCell, StoreAction, TestRow, TestRows, actions, apply, key, layout, new_store,
    part_files, try_open,
};
use crate::{Part, PartStore, RowsReader, SeriesReader, SeriesSelection};

pub(super) fn plain(cell: &Cell) -> PlainCell {
    (cell.family, cell.qualifier.to_vec(), cell.value.to_vec(), cell.timestamp_ms)
}

/// Names of the files that the manifest lists.
pub(super) fn live_files(store: &PartStore) -> Vec<String> {
    let snapshot = store.snapshot();
    let name = |part: &Part| part.path().file_name().unwrap().to_str().unwrap().to_owned();
    let sections = snapshot.spans().values().flatten();
    let mut files: Vec<String> = sections.map(|section| name(&section.part)).collect();
    files.sort();
    files.dedup();
    files
}

/// Rows by key, from the store.
pub(super) fn read_rows(
    store: &PartStore,
    selection: &SeriesSelection,
) -> BTreeMap<Vec<u8>, Vec<PlainCell>> {
    let snapshot = store.snapshot();
    let mut reader = RowsReader::new(&snapshot, selection, (0, u32::MAX));
    let mut rows = BTreeMap::new();
    while let Some(series) = reader.next_series().unwrap() {
        for (base, cells) in series.rows {
            let key = layout().join_key(&series.series, base);
            assert!(cells.is_sorted_by(|a, b| (a.family, &a.qualifier) < (b.family, &b.qualifier)));
            let before = rows.insert(key, cells.iter().map(plain).collect());
            assert!(before.is_none(), "a row is read once");
        }
    }
    rows
}

pub(super) fn expected_rows(model: &Model) -> BTreeMap<Vec<u8>, Vec<PlainCell>> {
    model
        .iter()
        .map(|(key, columns)| {
            let cells = columns.iter().map(|((f, q), (v, t))| (*f, q.clone(), v.clone(), *t));
            (key.clone(), cells.collect())
        })
        .collect()
}

fn row_of(key: &[u8], cells: &[PlainCell]) -> Row {
    let cells = cells.iter().map(|(family, q, v, t)| Cell {
        family: *family,
        qualifier: q.clone().into(),
        value: v.clone().into(),
        timestamp_ms: *t,
    });
    Row::from_cells(key.to_vec().into(), cells.collect())
}

/// Time and value bits by series; `None` where a row cannot be decoded.
type SeriesColumns = BTreeMap<Vec<u8>, Vec<(i64, u64, bool)>>;

fn collect(columns: &PointColumns) -> impl Iterator<Item = (i64, u64, bool)> + '_ {
    let bits = columns.times_ms.iter().zip(&columns.bits).enumerate();
    bits.map(|(i, (t, b))| (*t, *b, columns.is_integer(i)))
}

/// Points as the row decoder reads them from the model's rows.
fn expected_points(model: &Model, range_ms: (i64, i64)) -> Option<SeriesColumns> {
    let mut all = SeriesColumns::new();
    for (key, cells) in expected_rows(model) {
        let mut series = Vec::new();
        let base = layout().split_key(&key, &mut series);
        let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
        let base = BaseTime::from_stored(base.to_be_bytes());
        decode_row(&row_of(&key, &cells), base, MergeRule::Newest, &mut columns, &mut extras)
            .ok()?;
        let points = collect(&columns).filter(|(t, ..)| (range_ms.0..=range_ms.1).contains(t));
        all.entry(series).or_default().extend(points);
    }
    for points in all.values_mut() {
        points.sort_unstable();
    }
    all.retain(|_, points| !points.is_empty());
    Some(all)
}

fn read_points(store: &PartStore, range_ms: (i64, i64)) -> SeriesColumns {
    let snapshot = store.snapshot();
    let mut reader = SeriesReader::new(&snapshot, &SeriesSelection::All, range_ms);
    let mut all = SeriesColumns::new();
    while let Some(item) = reader.next_series().unwrap() {
        item.settle(layout(), MergeRule::Newest, range_ms).unwrap();
        all.entry(item.series.clone()).or_default().extend(collect(&item.columns));
    }
    for points in all.values_mut() {
        points.sort_unstable();
    }
    all.retain(|_, points| !points.is_empty());
    all
}

fn check(store: &PartStore, model: &Model, range_ms: (i64, i64)) {
    let rows = read_rows(store, &SeriesSelection::All);
    assert_eq!(rows, expected_rows(model));
    for section in store.snapshot().spans().values().flatten() {
        section.part.verify().unwrap();
    }
    for range_ms in [(0, i64::MAX), range_ms] {
        // Rows with unaligned base times may share instants with other rows; the model sorts them.
        if let Some(points) = expected_points(model, range_ms) {
            assert_eq!(read_points(store, range_ms), points);
        }
    }
    // Any selection returns a subset of all rows.
    let of_rows = |row: &Vec<u8>| {
        let mut series = Vec::new();
        layout().split_key(row, &mut series);
        series
    };
    let mut wanted: Vec<Vec<u8>> = rows.keys().map(of_rows).step_by(2).collect();
    wanted.push(vec![0, 0, 1, 0, 0, 1, 0, 0, 9, 0]);
    wanted.sort_unstable();
    wanted.dedup();
    let mut some = rows.clone();
    some.retain(|row, _| wanted.contains(&of_rows(row)));
    assert_eq!(read_rows(store, &SeriesSelection::Some(wanted)), some);
    let prefix = vec![0, 0, 1];
    let mut metric = rows;
    metric.retain(|row, _| of_rows(row).starts_with(&prefix));
    assert_eq!(read_rows(store, &SeriesSelection::Prefix(prefix)), metric);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_history_reads_as_the_model(
        actions in actions(),
        from in 1_356_998_400_000..1_357_008_400_000_i64, secs in 0..90_000_i64,
    ) {
        let (disk, store) = new_store();
        let mut model = Model::new();
        for action in &actions {
            match action {
                StoreAction::Flush(rows) => {
                    store.flush(&mut TestRows::new(rows)).unwrap();
                    apply(&mut model, rows);
                }
                // Without row compaction, because it changes cells.
                StoreAction::Merge => while store.merge_due(0).unwrap() {},
                StoreAction::MergeAll => {
                    store.merge_all(0).unwrap();
                    let sections = store.snapshot().spans().values().map(Vec::len).max();
                    prop_assert!(sections.unwrap_or(0) <= 1);
                }
            }
        }
        check(&store, &model, (from, from + secs * 1_000));
        // Unneeded files are removed.
        prop_assert_eq!(part_files(&disk), live_files(&store));
        // After a restart, the manifest has the same state.
        let before = read_rows(&store, &SeriesSelection::All);
        drop(store);
        let store = try_open(&disk).unwrap();
        prop_assert_eq!(read_rows(&store, &SeriesSelection::All), before);
        prop_assert_eq!(part_files(&disk), live_files(&store));
    }

    /// A merge that compacts rows changes cells, but no points.
    #[test]
    fn compacted_rows_have_the_same_points(actions in actions()) {
        let (_, store) = new_store();
        let mut model = Model::new();
        for action in &actions {
            if let StoreAction::Flush(rows) = action {
                store.flush(&mut TestRows::new(rows)).unwrap();
                apply(&mut model, rows);
            }
        }
        let range_ms = (0, i64::MAX);
        let Some(points) = expected_points(&model, range_ms) else { return Ok(()) };
        store.merge_all(u32::MAX).unwrap();
        prop_assert_eq!(read_points(&store, range_ms), points);
        let rows = read_rows(&store, &SeriesSelection::All);
        prop_assert!(rows.keys().eq(model.keys()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Merges with row compaction run at any time; corrections still replace the points that they correct.
    #[test]
    fn corrections_win_over_merges_that_compact(actions in actions()) {
        let (_, store) = new_store();
        let mut model = Model::new();
        for (written_ms, action) in (1..).zip(&actions) {
            match action {
                StoreAction::Flush(rows) => {
                    let mut rows = rows.clone();
                    for row in &mut rows {
                        // A deleted column would remain in the compacted column, as in OpenTSDB.
                        row.deletes.clear();
                        row.cells.retain(|(family, q, ..)| {
                            *family == tsd_model::Family::T && matches!(q.len(), 2 | 4)
                        });
                        for cell in &mut row.cells {
                            cell.3 = written_ms;
                        }
                    }
                    store.flush(&mut TestRows::new(&rows)).unwrap();
                    apply(&mut model, &rows);
                }
                StoreAction::Merge => while store.merge_due(u32::MAX).unwrap() {},
                StoreAction::MergeAll => store.merge_all(u32::MAX).unwrap(),
            }
        }
        let range_ms = (0, i64::MAX);
        let Some(points) = expected_points(&model, range_ms) else { return Ok(()) };
        prop_assert_eq!(read_points(&store, range_ms), points);
    }
}

/// If a merge of newer sections alone compacted two corrections of an hour into a column, the points that
/// they corrected would come back.
#[test]
fn a_merge_without_the_oldest_section_does_not_compact() {
    let (_, store) = new_store();
    let row = |seconds: std::ops::Range<u32>, value: fn(u32) -> u8| {
        let mut row = point(1, BASE, 0, 0, 0);
        row.cells = seconds.flat_map(|s| point(1, BASE, s, value(s), 5).cells).collect();
        vec![row]
    };
    // Larger than all corrections together.
    let first = |second: u32| (second * 7_919 % 113) as u8;
    store.flush(&mut TestRows::new(&row(0..900, first))).unwrap();
    for second in 0..8 {
        store.flush(&mut TestRows::new(&row(second * 10..second * 10 + 2, |_| 121))).unwrap();
    }
    let corrected = |second: u32| second < 80 && second % 10 < 2;
    let expected: u64 =
        (0..900).map(|s| if corrected(s) { 121 } else { u64::from(first(s)) }).sum();
    while store.merge_due(u32::MAX).unwrap() {}
    assert!((2..9).contains(&store.snapshot().section_count()), "some were merged");
    let sum = |store: &PartStore| -> u64 {
        read_points(store, (0, i64::MAX)).into_values().flatten().map(|(_, bits, _)| bits).sum()
    };
    assert_eq!(sum(&store), expected);
    store.merge_all(u32::MAX).unwrap();
    assert_eq!(sum(&store), expected);
}

fn point(series: u8, base: u32, second: u32, value: u8, timestamp_ms: i64) -> TestRow {
    let qualifier = ((second << 4) as u16).to_be_bytes().to_vec();
    TestRow {
        key: key(series, base),
        delete_row: false,
        deletes: Vec::new(),
        cells: vec![(tsd_model::Family::T, qualifier, vec![value], timestamp_ms)],
    }
}

const BASE: u32 = 1_356_998_400;

#[test]
fn the_newer_flush_wins_whatever_its_cell_time() {
    let (_, store) = new_store();
    store.flush(&mut TestRows::new(&[point(1, BASE, 5, 7, 900)])).unwrap();
    store.flush(&mut TestRows::new(&[point(1, BASE, 5, 8, 100)])).unwrap();
    for merged in [false, true] {
        if merged {
            store.merge_all(0).unwrap();
        }
        let points = read_points(&store, (0, i64::MAX));
        let points: Vec<_> = points.into_values().flatten().collect();
        assert_eq!(points, [(i64::from(BASE) * 1_000 + 5_000, 8, true)]);
    }
}

#[test]
fn tombstones_hide_older_parts_until_nothing_older_is_left() {
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[point(1, BASE, 5, 7, 1)])).unwrap();
    let delete = TestRow { delete_row: true, cells: Vec::new(), ..point(1, BASE, 0, 0, 0) };
    store.flush(&mut TestRows::new(&[delete])).unwrap();
    assert!(read_rows(&store, &SeriesSelection::All).is_empty());
    assert_eq!(store.snapshot().section_count(), 2);
    store.merge_all(0).unwrap();
    assert_eq!(store.snapshot().section_count(), 0);
    assert_eq!(part_files(&disk).len(), 0);
}

#[test]
fn a_flush_of_many_days_is_one_file_and_each_day_merges_alone() {
    let (disk, store) = new_store();
    for second in 0..3 {
        let rows: Vec<_> = (0..50).map(|day| point(1, BASE + day * 86_400, second, 1, 1)).collect();
        store.flush(&mut TestRows::new(&rows)).unwrap();
    }
    assert_eq!(part_files(&disk).len(), 3);
    assert_eq!(store.snapshot().section_count(), 150);
    while store.merge_closed(BASE + 10 * 86_400).unwrap() {}
    assert_eq!(store.snapshot().section_count(), 10 + 40 * 3);
    assert_eq!(part_files(&disk).len(), 4);
    assert_eq!(read_points(&store, (0, i64::MAX)).into_values().flatten().count(), 150);
}

#[test]
fn a_reader_keeps_the_files_of_its_snapshot() {
    let (disk, store) = new_store();
    for second in 0..2 {
        store.flush(&mut TestRows::new(&[point(1, BASE, second, 1, 1)])).unwrap();
    }
    let snapshot = store.snapshot();
    store.merge_all(0).unwrap();
    store.flush(&mut TestRows::new(&[point(1, BASE, 9, 1, 1)])).unwrap();
    let mut reader = SeriesReader::new(&snapshot, &SeriesSelection::All, (0, i64::MAX));
    assert_eq!(reader.next_series().unwrap().unwrap().columns.len(), 2);
    assert!(reader.next_series().unwrap().is_none());
    assert_eq!(part_files(&disk).len(), 4);
    drop(reader);
    drop(snapshot);
    assert_eq!(part_files(&disk).len(), 2);
}

#[test]
fn closed_spans_end_as_one_compacted_section() {
    let (_, store) = new_store();
    let flush: Vec<_> = (0..3).map(|second| point(1, BASE, second, 1, i64::from(second))).collect();
    for row in &flush {
        store.flush(&mut TestRows::new(std::slice::from_ref(row))).unwrap();
    }
    assert!(!store.merge_closed(BASE + 86_399).unwrap(), "the day is open");
    assert!(store.merge_closed(BASE + 86_400).unwrap());
    assert!(!store.merge_closed(BASE + 86_400).unwrap());
    let rows: Vec<_> = read_rows(&store, &SeriesSelection::All).into_values().flatten().collect();
    let column = (tsd_model::Family::T, vec![0, 0, 0, 0x10, 0, 0x20], vec![1, 1, 1, 0], 2);
    assert_eq!(rows, [column]);
}
