//! Tests which series have summaries in files, and damage of summary blocks. The engine tests that queries return
//! the same with summaries.

use std::sync::Arc;

use tsd_files::{FaultyDisk, StoreDir};
use tsd_model::{Family, SumBucket, SummaryFold, SummaryUse};

use super::{
    model::{expected_rows, read_rows},
    scenario::{Model, TestRow, TestRows, apply, key, try_open},
};
use crate::{
    PartError, PartStore, SeriesSelection, file_names::part_name, part::BlockUse,
    read::SeriesReader,
};

/// Start of a UTC day.
const BASE: u32 = 1_356_998_400;
const DAY: u32 = 86_400;

/// An hour of points, `step` seconds apart, one compacted column; the bytes depend on `value`.
fn hour(series: u8, hour: u32, step: u16, value: u8) -> TestRow {
    let (mut qualifier, mut values) = (Vec::new(), Vec::new());
    for second in (0..3_600_u16).step_by(step.into()) {
        qualifier.extend_from_slice(&(second << 4).to_be_bytes());
        values.push((second / step) as u8 ^ value);
    }
    values.push(0);
    TestRow {
        key: key(series, BASE + hour * 3_600),
        delete_row: false,
        deletes: Vec::new(),
        cells: vec![(Family::T, qualifier, values, 1)],
    }
}

fn hours(series: u8, hours: std::ops::Range<u32>, step: u16) -> Vec<TestRow> {
    hours.map(|at| hour(series, at, step, series)).collect()
}

fn flush(store: &PartStore, model: &mut Model, mut rows: Vec<TestRow>) {
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    store.flush(&mut TestRows::new(&rows)).unwrap();
    apply(model, &rows);
}

fn new_store() -> (FaultyDisk, PartStore) {
    let disk = FaultyDisk::new(1);
    let store = try_open(&disk).unwrap();
    (disk, store)
}

/// Counts of the summaries of each series, and the number of points that the read returned in addition.
fn read(store: &PartStore, fold: SummaryFold) -> Result<Vec<(Vec<u64>, usize)>, PartError> {
    let all = Arc::new(SeriesSelection::All);
    let (start_ms, end_ms) = (i64::from(BASE) * 1_000, i64::from(BASE + DAY) * 1_000);
    let read =
        SummaryUse { range_ms: (start_ms, end_ms), has_days: true, fold, with_points: false };
    let mut reader = SeriesReader::of_rows(&store.snapshot(), all, (BASE, BASE + DAY - 1))
        .with_summaries(Some(read));
    let mut found = Vec::new();
    while let Some(item) = reader.next_series()? {
        found.push((item.summaries.iter().map(|s| s.count).collect(), item.columns.len()));
    }
    Ok(found)
}

const HOURLY: SummaryFold = SummaryFold::Sums(SumBucket::Hour);

#[test]
fn dense_series_of_points_have_summaries() {
    let (_, store) = new_store();
    let mut model = Model::new();
    let mut rows = hours(1, 0..24, 60);
    // Too few points per hour; too few hours; a column without points; a deleted row.
    rows.extend(hours(2, 0..24, 90));
    rows.extend(hours(3, 0..5, 60));
    let mut with_annotation = hours(4, 0..24, 60);
    with_annotation[3].cells.push((Family::T, vec![1, 0, 1], vec![7], 1));
    rows.extend(with_annotation);
    let mut with_delete = hours(5, 0..24, 60);
    with_delete[0].delete_row = true;
    rows.extend(with_delete);
    rows.extend(hours(6, 2..9, 30));
    flush(&store, &mut model, rows);
    let whole_day = read(&store, SummaryFold::Extremes).unwrap();
    let points = [0, 24 * 40, 5 * 60, 24 * 60, 24 * 60, 0];
    let days = [vec![1_440], vec![], vec![], vec![], vec![], vec![840]];
    assert_eq!(whole_day, days.into_iter().zip(points).collect::<Vec<_>>());
    let by_hour = read(&store, HOURLY).unwrap();
    assert_eq!(by_hour[0], (vec![1_440], 0), "a day in which each hour is a bucket");
    assert_eq!(read_rows(&store, &SeriesSelection::All), expected_rows(&model));
}

#[test]
fn another_section_of_the_series_hides_its_summaries_until_it_is_merged() {
    let (_, store) = new_store();
    let mut model = Model::new();
    let both = [hours(1, 0..24, 60), hours(2, 0..24, 60)].concat();
    flush(&store, &mut model, both);
    let late =
        TestRow { cells: vec![(Family::T, vec![0x00, 0x10], vec![5], 9)], ..hour(1, 7, 60, 0) };
    flush(&store, &mut model, vec![late]);
    let found = read(&store, SummaryFold::Extremes).unwrap();
    assert_eq!(found, [(vec![], 1_441), (vec![1_440], 0)]);
    store.merge_all(0).unwrap();
    let found = read(&store, SummaryFold::Extremes).unwrap();
    assert_eq!(found, [(vec![1_441], 0), (vec![1_440], 0)]);
    let delete = TestRow { delete_row: true, cells: Vec::new(), ..hour(2, 7, 60, 0) };
    flush(&store, &mut model, vec![delete]);
    let found = read(&store, SummaryFold::Extremes).unwrap();
    assert_eq!(found, [(vec![1_441], 0), (vec![], 1_380)]);
    store.merge_all(0).unwrap();
    let found = read(&store, SummaryFold::Extremes).unwrap();
    assert_eq!(found, [(vec![1_441], 0), (vec![1_380], 0)]);
    assert_eq!(read_rows(&store, &SeriesSelection::All), expected_rows(&model));
}

#[test]
fn files_without_summaries_keep_version_1() {
    let (disk, store) = new_store();
    let mut model = Model::new();
    flush(&store, &mut model, hours(1, 0..24, 90));
    flush(&store, &mut model, hours(2, 0..24, 60));
    let version = |number: u64| {
        let file = disk.open_reader(&part_name(number)).unwrap();
        let len = file.size().unwrap() as usize;
        let mut bytes = vec![0; len];
        file.read_exact_at(0, &mut bytes).unwrap();
        let footer = u32::from_le_bytes(bytes[len - 16..len - 12].try_into().unwrap());
        bytes[len - 16 - footer as usize]
    };
    assert_eq!([version(1), version(2)], [3, 3]);
}

#[test]
fn damage_of_summaries_is_found_and_loses_no_points() {
    let (disk, store) = new_store();
    let mut model = Model::new();
    let both = [hours(1, 0..24, 60), hours(2, 0..24, 60)].concat();
    flush(&store, &mut model, both);
    let snapshot = store.snapshot();
    let part = Arc::clone(&snapshot.spans()[&BASE][0].part);
    let head = part.head(0, BlockUse::Once).unwrap();
    let &[place] = head.summary_blocks.as_slice() else { panic!("{head:?}") };
    drop((snapshot, part, store));
    disk.flip(&part_name(1), place.block.offset as usize + 9, 0x04);
    let store = try_open(&disk).unwrap();
    // The read falls back to points.
    let found = read(&store, SummaryFold::Ends).unwrap();
    assert_eq!(found, [(vec![], 1_440), (vec![], 1_440)]);
    assert_eq!(store.take_found_damage().len(), 1);
    // Reads of points ignore the damaged summaries.
    assert_eq!(read_rows(&store, &SeriesSelection::All), expected_rows(&model));
    let part = Arc::clone(&store.snapshot().spans()[&BASE][0].part);
    let error = part.verify_section(0, &[], &mut |_| Ok(())).unwrap_err();
    let PartError::Damaged { offset, .. } = &error else { panic!("{error}") };
    assert_eq!(*offset, place.block.offset);
    drop(part);
    store.quarantine(&error).unwrap();
    let loss = store.loss_of("t.tsdb-1").unwrap();
    assert_eq!((loss.points, loss.blocks), (0, 1));
    assert!(store.accept_loss("t.tsdb-1").unwrap());
    assert_eq!(read_rows(&store, &SeriesSelection::All), expected_rows(&model));
    let found = read(&store, SummaryFold::Ends).unwrap();
    assert_eq!(found, [(vec![1_440], 0), (vec![1_440], 0)]);
}
