//! Reads of series, of stores that answer them, which must return the points of the rows of a scan.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::{
    BaseTime, Cell, Family, MergeRule, PointColumns, Row, RowExtras, TagkUid, TagvUid, decode_row,
};

use super::fixture::{bytes, data};
use crate::{
    BlockSegment, CellBatch, CellRef, Delete, ReadSelection, RowFilter, Scan, SeriesRange,
    SeriesRead, SeriesScanner, SeriesVersion, SplitGoal, Storage, StorageExt, Table, TagCondition,
    TagPattern,
};

const METRIC: [u8; 3] = [0, 0, 7];
const OTHER_METRIC: [u8; 3] = [0, 0, 8];
/// A UTC day begins.
const DAY: u32 = 1_356_998_400;

/// Random numbers that a seed determines (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(end)) as u32
    }
}

fn tags(series: u32) -> Vec<u8> {
    [&[0, 0, 1][..], &(series + 1).to_be_bytes()[1..]].concat()
}

fn key(metric: [u8; 3], series: u32, base: u32) -> Vec<u8> {
    [&metric[..], &base.to_be_bytes(), &tags(series)].concat()
}

fn seconds(offset: u32, flags: u32) -> Vec<u8> {
    ((offset << 4 | flags) as u16).to_be_bytes().to_vec()
}

fn millis(offset_ms: u32, flags: u32) -> Vec<u8> {
    (0xF000_0000 | offset_ms << 6 | flags).to_be_bytes().to_vec()
}

/// A column of a row of points: mostly points, some with equal instants, and other columns.
fn column(numbers: &mut Numbers) -> (Vec<u8>, Vec<u8>) {
    let offset = numbers.below(24) * 150;
    let value = numbers.below(100) as u8;
    match numbers.below(16) {
        0 => (millis(offset * 1_000 + numbers.below(2) * 500, 0), vec![value]),
        1 => (seconds(offset, 1), vec![1, value]),
        2 => (seconds(offset, 0xF), f64::from(value).to_be_bytes().to_vec()),
        3 => (seconds(offset, 0xF), f64::NAN.to_be_bytes().to_vec()),
        4 => {
            let compacted = [seconds(offset, 0), seconds(offset + 7, 0)].concat();
            (compacted, vec![value, value + 1, 0])
        }
        5 => (vec![5, 0, 0], [&seconds(offset, 0)[..], &[value]].concat()),
        6 => (vec![1, 0, value], b"{}".to_vec()),
        7 => (vec![6, 0, value], vec![0, value]),
        8 => (vec![9, 9, 9, 9, 9], vec![value]),
        _ => (seconds(offset, 0), vec![value]),
    }
}

async fn write(store: &dyn Storage, numbers: &mut Numbers) {
    let mut batch = CellBatch::new();
    // Each delete is a flush where there is no log.
    let mut deletes = 0;
    for _ in 0..40 {
        // Half of the rows are of one day.
        let hour = if numbers.below(2) == 0 { numbers.below(24) } else { numbers.below(72) };
        // A few rows do not begin at a full hour.
        let odd = if numbers.below(16) == 0 { 1_800 } else { 0 };
        let metric = if numbers.below(8) == 0 { OTHER_METRIC } else { METRIC };
        let row = key(metric, numbers.below(9), DAY + hour * 3_600 + odd);
        if deletes == 0 && numbers.below(12) == 0 {
            deletes += 1;
            let (qualifier, _) = column(numbers);
            let delete = if numbers.below(2) == 0 {
                Delete::Row(bytes(&row))
            } else {
                let columns = vec![(Family::T, bytes(&qualifier))];
                Delete::Columns { row: bytes(&row), columns }
            };
            store.delete(&data(), delete).await.unwrap();
            continue;
        }
        batch.begin_row(&row).unwrap();
        let mut columns: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..=numbers.below(6) {
            let (qualifier, value) = column(numbers);
            columns.insert(qualifier, value);
        }
        for (qualifier, value) in &columns {
            let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
            batch.push(cell).unwrap();
        }
        if numbers.below(8) == 0 {
            let cell =
                CellRef { family: Family::Name, qualifier: b"q", value: b"v", timestamp_ms: None };
            batch.push(cell).unwrap();
        }
    }
    store.put(&data(), batch).await.unwrap();
}

/// Points and other cells of series, in the order in which their rows come; rows with an error as text.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    points: Vec<(i64, u64, bool)>,
    others: Vec<Cell>,
    errors: Vec<String>,
}

impl Content {
    fn add_points(&mut self, columns: &PointColumns, from: usize, to: usize) {
        let point = |i: usize| (columns.times_ms[i], columns.bits[i], columns.is_integer(i));
        self.points.extend((from..to).map(point));
    }

    fn add_row(&mut self, row: &Row, base: BaseTime) {
        let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
        match decode_row(row, base, MergeRule::Newest, &mut columns, &mut extras) {
            Ok(()) => self.add_points(&columns, 0, columns.len()),
            Err(error) => self.errors.push(error.to_string()),
        }
        self.others.extend(extras.annotations);
        self.others.extend(extras.histograms);
    }
}

type Contents = BTreeMap<Vec<u8>, Content>;

fn base_of(key: &[u8]) -> u32 {
    u32::from_be_bytes(key[3..7].try_into().unwrap())
}

/// Expected result of a read, from a scan of all rows.
async fn scanned(store: &dyn Storage, wanted: impl Fn(&[u8]) -> bool) -> Contents {
    let scan = Scan { family: Some(Family::T), ..Scan::default() };
    let mut scanner = store.scan(&data(), scan);
    let mut contents = Contents::new();
    while let Some(rows) = scanner.next_rows().await.unwrap() {
        for row in rows.iter().filter(|row| wanted(&row.key)) {
            let series = [&row.key[..3], &row.key[7..]].concat();
            let base = BaseTime::from_stored(base_of(&row.key).to_be_bytes());
            contents.entry(series).or_default().add_row(row, base);
        }
    }
    contents.retain(|_, content| *content != Content::default());
    contents
}

/// Checks that a read of some series of the metric equals a scan of their rows.
async fn assert_scanned(
    store: &dyn Storage,
    found: &Contents,
    read: &SeriesRead,
    series: impl IntoIterator<Item = u32>,
) {
    let wanted: Vec<Vec<u8>> = series.into_iter().map(tags).collect();
    let (first, last) = read.bases;
    let expected = scanned(store, |key| {
        key[..3] == METRIC
            && (first..=last).contains(&base_of(key))
            && wanted.iter().any(|tags| *tags == key[7..])
    })
    .await;
    assert_equal(found, &expected, read);
}

/// Result of a read; `None` if the store does not answer reads of series.
async fn read(store: &dyn Storage, read: &SeriesRead) -> Option<Contents> {
    let scanner = store.series().read_series(&data(), read)?;
    Some(drain(scanner, read).await)
}

async fn drain(mut scanner: Box<dyn SeriesScanner>, read: &SeriesRead) -> Contents {
    let mut contents = Contents::new();
    let is_one_day = read.bases.0 / 86_400 == read.bases.1 / 86_400;
    let mut last: Option<Bytes> = None;
    while let Some(blocks) = scanner.next_series().await.unwrap() {
        assert!(!blocks.is_empty(), "a batch is never empty");
        for block in blocks {
            assert!(!block.is_empty(), "a block is never empty");
            let is_next = last.as_ref().is_none_or(|last| *last < block.series);
            assert!(is_next || !is_one_day, "the series of a day are in order");
            last = Some(block.series.clone());
            assert!(block.columns.times_ms.is_sorted_by(|a, b| a < b), "points are in order");
            let content = contents.entry(block.series.to_vec()).or_default();
            for piece in block.pieces(3) {
                match piece {
                    BlockSegment::Points(range) => {
                        content.add_points(&block.columns, range.start, range.end);
                    }
                    BlockSegment::Row(row, base) => {
                        assert!(row.cells.iter().all(|cell| cell.family == Family::T));
                        content.add_row(row, base);
                    }
                }
            }
        }
    }
    assert!(scanner.next_series().await.unwrap().is_none(), "an ended read stays ended");
    contents.retain(|_, content| *content != Content::default());
    contents
}

fn range(from: u32, to: Option<u32>, filter: Option<RowFilter>) -> ReadSelection {
    ReadSelection::Range(SeriesRange {
        prefix: bytes(METRIC),
        from: if from == 0 { Bytes::new() } else { tags(from).into() },
        to: to.map(|to| tags(to).into()),
        filter,
    })
}

#[track_caller]
fn assert_equal(contents: &Contents, expected: &Contents, read: &SeriesRead) {
    let series: Vec<_> = contents.keys().collect();
    assert_eq!(series, expected.keys().collect::<Vec<_>>(), "series of {read:?}");
    for (series, content) in contents {
        assert_eq!(content, &expected[series], "series {series:?} of {read:?}");
    }
}

/// Lists of series: empty, one, neighbours, every second or third, all, some, and some without rows.
fn lists(numbers: &mut Numbers) -> Vec<Vec<u32>> {
    let (one, step) = (numbers.below(9), 2 + numbers.below(2) as usize);
    vec![
        Vec::new(),
        vec![one],
        (one..one + 3).collect(),
        (numbers.below(2)..9).step_by(step).collect(),
        (0..9).collect(),
        (0..12).filter(|_| numbers.below(2) == 0).collect(),
        (9..40).collect(),
    ]
}

pub(super) async fn reads_of_series_return_what_scans_return(store: Arc<dyn Storage>) {
    let mut numbers = Numbers(7);
    for step in 0..24 {
        write(&*store, &mut numbers).await;
        if numbers.below(3) == 0 {
            store.flush().await.unwrap();
        }
        if step % 4 != 3 {
            continue;
        }
        let day = numbers.below(3);
        let bases = [
            (0, u32::MAX),
            (DAY, DAY + 86_400 - 1),
            (DAY + day * 86_400, DAY + day * 86_400 + 86_400 - 1),
            (DAY + 5 * 3_600, DAY + 5 * 3_600),
            (DAY + 5 * 3_600, DAY + 40 * 3_600 + numbers.below(3_600)),
        ];
        let value = TagvUid::try_new(&tags(4)[3..]).unwrap();
        let filter = RowFilter::Tags(Arc::new(TagPattern {
            tags_start: 7,
            tagk_width: 3,
            tagv_width: 3,
            conditions: vec![TagCondition {
                tagk: TagkUid::from_number(1, 3).unwrap(),
                tagvs: Some(vec![value]),
            }],
            explicit: false,
        }));
        let lists = lists(&mut numbers);
        for bases in bases {
            let of_series = |series: u32| Bytes::from([&METRIC[..], &tags(series)].concat());
            let mut reads: Vec<(ReadSelection, Vec<u32>)> = vec![
                (range(0, None, None), (0..12).collect()),
                (range(2, Some(6), None), (2..6).collect()),
                (range(0, None, Some(filter.clone())), vec![4]),
            ];
            for list in &lists {
                let keys = list.iter().map(|series| of_series(*series)).collect();
                reads.push((ReadSelection::Keys(keys), list.clone()));
            }
            for (selection, wanted) in reads {
                let request = SeriesRead {
                    prefix_len: 3,
                    selection,
                    bases,
                    summaries: None,
                    reads_past_losses: false,
                };
                let Some(found) = read(&*store, &request).await else { return };
                assert_scanned(&*store, &found, &request, wanted).await;
            }
            let goal = SplitGoal { ranges: 1 + numbers.below(6) as usize, min_bytes: 1 };
            divided_reads_return_the_whole(&*store, bases, goal).await;
        }
    }
}

/// Puts rows to some of 40 days, or deletes a few of them: all days in turn, every second one, every tenth, one.
async fn write_days(store: &dyn Storage, numbers: &mut Numbers) {
    let deletes = numbers.below(4) == 0;
    let (first, step) = match numbers.below(4) {
        0 => (0, 1),
        1 => (numbers.below(2), 2),
        2 => (numbers.below(10), 10),
        _ => (numbers.below(40), 40),
    };
    let last = if numbers.below(3) == 0 { first + numbers.below(20) } else { 39 };
    let mut batch = CellBatch::new();
    let mut deleted = 0;
    for day in (first..=last.min(39)).step_by(step) {
        let row = key(METRIC, numbers.below(9), DAY + day * 86_400 + numbers.below(3) * 3_600);
        let (qualifier, value) = column(numbers);
        if deletes && deleted < 6 {
            deleted += 1;
            let delete = match numbers.below(2) {
                0 => Delete::Row(bytes(&row)),
                _ => Delete::Columns {
                    row: bytes(&row),
                    columns: vec![(Family::T, bytes(&qualifier))],
                },
            };
            store.delete(&data(), delete).await.unwrap();
        } else if !deletes {
            batch.begin_row(&row).unwrap();
            let (qualifier, value) = (&qualifier[..], &value[..]);
            let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
            batch.push(cell).unwrap();
        }
    }
    store.put(&data(), batch).await.unwrap();
}

pub(super) async fn reads_of_many_days_return_what_scans_return(store: Arc<dyn Storage>) {
    let mut numbers = Numbers(23);
    for _ in 0..24 {
        for _ in 0..=numbers.below(3) {
            write_days(&*store, &mut numbers).await;
        }
        let day = DAY + numbers.below(40) * 86_400;
        for bases in [(0, u32::MAX), (DAY + 7_200, day + 7_200), (day, day + 9 * 86_400 - 1)] {
            let of_series = |series: u32| Bytes::from([&METRIC[..], &tags(series)].concat());
            let list = numbers.below(9)..9;
            let keys = ReadSelection::Keys(list.clone().map(of_series).collect());
            let reads = [(range(0, None, None), 0..9), (range(2, Some(6), None), 2..6)];
            for (selection, wanted) in reads.into_iter().chain([(keys, list)]) {
                let request = SeriesRead {
                    prefix_len: 3,
                    selection,
                    bases,
                    summaries: None,
                    reads_past_losses: false,
                };
                let Some(scanner) = store.series().read_series(&data(), &request) else { return };
                // Rows that the read took from memtables may have moved when it continues.
                if numbers.below(16) == 0 {
                    store.flush().await.unwrap();
                }
                let found = drain(scanner, &request).await;
                assert_scanned(&*store, &found, &request, wanted).await;
            }
        }
    }
}

pub(super) async fn equal_reads_of_one_version_return_the_same(store: Arc<dyn Storage>) {
    let day = |day: u32| SeriesRead {
        prefix_len: 3,
        selection: range(0, None, None),
        bases: (DAY + day * 86_400, DAY + day * 86_400 + 86_400 - 1),
        summaries: None,
        reads_past_losses: false,
    };
    let mut numbers = Numbers(11);
    let writing = async {
        for _ in 0..24 {
            write(&*store, &mut numbers).await;
            for _ in 0..numbers.below(3) {
                store.flush().await.unwrap();
            }
        }
    };
    let is_written = AtomicBool::new(false);
    let reading = async {
        let mut of_versions: HashMap<(u32, SeriesVersion), Contents> = HashMap::new();
        while !is_written.load(Ordering::Relaxed) {
            for request in [day(0), day(1), day(2)] {
                let before = store.series().series_version(&data(), &request);
                let Some(found) = read(&*store, &request).await else { return };
                let after = store.series().series_version(&data(), &request);
                if let Some(version) = before.filter(|before| Some(before) == after.as_ref()) {
                    let known = of_versions.entry((request.bases.0, version));
                    let known = known.or_insert_with(|| found.clone());
                    assert_equal(&found, known, &request);
                }
            }
            tokio::task::yield_now().await;
        }
    };
    let writing = async {
        writing.await;
        is_written.store(true, Ordering::Relaxed);
    };
    tokio::join!(writing, reading);
}

/// Checks that reads of the ranges between the splits together return the result of the whole read.
async fn divided_reads_return_the_whole(store: &dyn Storage, bases: (u32, u32), goal: SplitGoal) {
    let of = |from: Bytes, to: Option<Bytes>| {
        let prefix = bytes(METRIC);
        let range = SeriesRange { prefix, from, to, filter: None };
        SeriesRead {
            prefix_len: 3,
            selection: ReadSelection::Range(range),
            bases,
            summaries: None,
            reads_past_losses: false,
        }
    };
    let whole = of(Bytes::new(), None);
    let splits = store.series().series_splits(&data(), &whole, goal).await.unwrap();
    assert!(splits.len() < goal.ranges && splits.is_sorted_by(|a, b| a < b), "{splits:?}");
    let expected = read(store, &whole).await.unwrap();
    let mut found = Contents::new();
    let ends = splits.iter().cloned().map(Some).chain([None]);
    for (from, to) in [Bytes::new()].into_iter().chain(splits.iter().cloned()).zip(ends) {
        for (series, content) in read(store, &of(from, to)).await.unwrap() {
            assert!(found.insert(series, content).is_none(), "a series in two ranges");
        }
    }
    assert_equal(&found, &expected, &whole);
}

pub(super) async fn reads_of_an_unknown_table_fail(store: Arc<dyn Storage>) {
    let request = SeriesRead {
        prefix_len: 3,
        selection: range(0, None, None),
        bases: (0, u32::MAX),
        summaries: None,
        reads_past_losses: false,
    };
    let Some(mut scanner) = store.series().read_series(&Table::new("nope"), &request) else {
        return;
    };
    assert!(scanner.next_series().await.is_err());
    assert!(scanner.next_series().await.is_err(), "a failed read stays failed");
}
