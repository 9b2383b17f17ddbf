//! Part files and manifests of the embedded store.

use std::{
    ops::Range,
    sync::{Arc, LazyLock},
};

use tsd_files::{DiskSpace, FaultyDisk, StoreDir};
use tsd_model::{Family, SumBucket, SummaryFold, TableSchema, Value};
use tsd_storage::{OwnedFlushRow, Table};
use tsd_storage_parts::{
    PartConfig, PartError, PartLayout, PartResources, PartStore, SeriesReader, SeriesSelection,
    testing,
};

use super::files::{Files, disk_with, length_at, pack, unpack};

/// 2013-01-01.
pub(crate) const START_SECS: u32 = 1_356_998_400;
pub(crate) const DAY_SECS: u32 = 86_400;
pub(crate) const DAYS: u32 = 3;
pub(crate) const SERIES: u8 = 6;
/// A series with enough points for summaries, on the first day.
const DENSE: u8 = 9;
/// Magic, and the reference to the copy of the footer.
const PART_START: usize = 24;
/// Length and checksum of the footer, and a magic.
const PART_TAIL: usize = 16;
const MANIFESTS: [&str; 2] = ["manifest", "manifest.copy"];
const PARTS: [&str; 2] = ["0000000001.part", "0000000002.part"];

/// Files of an intact store, in the order of an input.
static NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| MANIFESTS.into_iter().chain(PARTS).map(str::to_owned).collect());
static INTACT: LazyLock<Files> = LazyLock::new(|| {
    let disk = FaultyDisk::new(1);
    let store = open(&disk).expect("a new store");
    for days in [[0, 1], [1, 2]] {
        // Each part has its own hour of a common day.
        let hour = days[0] + 2;
        let rows =
            days.into_iter().flat_map(|day| (0..SERIES).map(move |series| row(series, day, hour)));
        let dense = (4..10).filter(|_| days[0] == 0).map(dense_row);
        let mut rows: Vec<OwnedFlushRow> = rows.chain(dense).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        store.flush(&mut *OwnedFlushRow::flush_rows(rows)).expect("a flush");
    }
    drop(store);
    let files = disk.all_contents();
    assert!(files.keys().all(|name| NAMES.contains(name)), "{:?}", files.keys());
    assert_eq!(files.len(), NAMES.len(), "{:?}", files.keys());
    files
});
/// Points of each day.
static COUNTS: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let store = open(&disk_with(&INTACT)).expect("an intact store");
    (0..DAYS).map(|day| read_day(&store, day).expect("an intact day")).collect()
});

/// The value of a series at a time.
fn value_at(series: u8, time_ms: i64) -> i64 {
    time_ms << 8 | i64::from(series)
}

pub(crate) fn key(series: u8, base_secs: u32) -> Vec<u8> {
    let base = base_secs.to_be_bytes();
    [&[0, 0, 1][..], &base, &[0, 0, 1, 0, 0, series]].concat()
}

type StoredCell = (Family, Vec<u8>, Vec<u8>, i64);

/// The points of an hour, one a minute.
fn points(series: u8, base: u32, minutes: Range<u32>) -> Vec<StoredCell> {
    let point = |minute: u32| {
        let qualifier = ((minute * 60) << 4 | 7) as u16;
        let value = value_at(series, i64::from(base + minute * 60) * 1_000);
        (Family::T, qualifier.to_be_bytes().to_vec(), value.to_be_bytes().to_vec(), 1)
    };
    minutes.map(point).collect()
}

/// The row of an hour: twenty points, and a note.
fn row(series: u8, day: u32, hour: u32) -> OwnedFlushRow {
    let base = START_SECS + day * DAY_SECS + hour * 3_600;
    let mut cells = points(series, base, 0..20);
    cells.push((Family::T, vec![1, 0, 0], b"{}".to_vec(), 1));
    OwnedFlushRow { key: key(series, base), cells, ..OwnedFlushRow::default() }
}

/// A row of only points.
fn dense_row(hour: u32) -> OwnedFlushRow {
    let base = START_SECS + hour * 3_600;
    let cells = points(DENSE, base, 0..60);
    OwnedFlushRow { key: key(DENSE, base), cells, ..OwnedFlushRow::default() }
}

fn resources() -> Arc<PartResources> {
    Arc::new(PartResources::new(1 << 20, 4, Arc::new(DiskSpace::new("/", 0))))
}

fn open(disk: &FaultyDisk) -> Result<PartStore, PartError> {
    let schema = TableSchema::opentsdb_default();
    let config = PartConfig {
        table: Table::new("tsdb"),
        layout: PartLayout::try_new(&schema, PartLayout::DAY_SECS)?,
        resources: resources(),
        clock: || 5,
        compacts_rows: true,
    };
    PartStore::open(Arc::new(disk.clone()), config)
}

/// Reads a day; returns its number of points, all of which must have been written.
fn read_day(store: &PartStore, day: u32) -> Result<usize, PartError> {
    let start_ms = i64::from(START_SECS + day * DAY_SECS) * 1_000;
    // A read of the first hour needs the day before.
    let range_ms = (start_ms + 3_600_000, start_ms + i64::from(DAY_SECS) * 1_000 - 1);
    let mut reader = SeriesReader::new(&store.snapshot(), &SeriesSelection::All, range_ms);
    let mut points = 0;
    while let Some(item) = reader.next_series()? {
        // A byte after the tags marks a key with a time.
        let &[0, 0, 1, 0, 0, 1, 0, 0, series, _] = item.series.as_slice() else {
            panic!("series {:?} was not written", item.series)
        };
        for (at, time_ms) in item.columns.times_ms.iter().enumerate() {
            let value = Some(Value::Integer(value_at(series, *time_ms)));
            assert_eq!(item.columns.value(at), value, "a point that was written");
        }
        assert!(item.conflicts.is_empty(), "no points of one instant");
        assert!(item.others.iter().all(|(_, cell)| cell.value == b"{}"[..]), "notes");
        points += item.columns.len();
    }
    Ok(points)
}

/// Checks that an error of damage names the damaged file.
fn check_named(error: &PartError) {
    let text = error.to_string();
    assert!(
        text.contains("manifest") || text.contains(".part") || text.contains("tsdb-"),
        "{text}"
    );
}

/// A store with damaged files: it must return written points, or an error that names a file.
pub(crate) fn part_files(input: &[u8]) {
    let files = unpack(&NAMES, input);
    let differs = |name: &String| files.get(name) != INTACT.get(name);
    let damaged: Vec<&str> =
        NAMES.iter().filter(|name| differs(name)).map(String::as_str).collect();
    check_parts(&files, &damaged);
    // If both manifests are damaged, the last edits may be lost.
    let is_listed = MANIFESTS.iter().any(|name| !damaged.contains(name));
    let store = match open(&disk_with(&files)) {
        Ok(store) => store,
        Err(error) => {
            check_named(&error);
            assert!(!is_listed, "one manifest is enough: {error}");
            return;
        }
    };
    let before = read_days(&store, !is_listed);
    if is_listed && damaged.iter().all(|name| is_harmless(name, &files)) {
        assert!(before.iter().all(|is_whole| *is_whole), "all days with damage of {damaged:?}");
    }
    let result = store.merge_all(u32::MAX);
    if let Err(error) = result {
        check_named(&error);
    }
    for (day, (before, after)) in before.iter().zip(read_days(&store, !is_listed)).enumerate() {
        assert!(after || !before, "a merge keeps what can be read of day {day}");
    }
}

/// Checks that a verification finds any changed byte of a part.
fn check_parts(files: &Files, damaged: &[&str]) {
    let dir: Arc<dyn StoreDir> = Arc::new(disk_with(files));
    for (name, number) in PARTS.iter().zip(1..) {
        let Some(file) = files.get(*name) else { continue };
        let result = testing::verify_part(&dir, &resources(), number);
        if damaged.contains(name) && !INTACT.values().any(|intact| intact == file) {
            check_named(&result.expect_err("a changed byte"));
        } else if !damaged.contains(name) {
            result.expect("an intact part");
        }
    }
}

/// True for a manifest, which has a copy, and for a part with damage in only one copy of its footer or heads.
fn is_harmless(name: &str, files: &Files) -> bool {
    if MANIFESTS.contains(&name) {
        return true;
    }
    let (Some(file), intact) = (files.get(name), &INTACT[name]) else { return false };
    let different = || (0..intact.len()).filter(|&at| file[at] != intact[at]);
    let PartAreas { copy, heads, footer } = PartAreas::of(intact);
    file.len() == intact.len()
        && (different().all(|at| at < PART_START || copy.contains(&at))
            || different().all(|at| heads.contains(&at))
            || different().all(|at| footer.contains(&at)))
}

/// Areas of a part that are stored twice.
struct PartAreas {
    /// The copy of the footer.
    copy: Range<usize>,
    /// The copies of the heads.
    heads: Range<usize>,
    /// The footer and the bytes after it.
    footer: Range<usize>,
}

impl PartAreas {
    fn of(part: &[u8]) -> Self {
        let footer_len = length_at(part, part.len() - PART_TAIL).expect("a footer");
        let copy_at = length_at(part, 8).expect("a copy");
        let footer_at = part.len() - PART_TAIL - footer_len;
        Self {
            copy: copy_at..copy_at + footer_len,
            heads: copy_at + footer_len..footer_at,
            footer: footer_at..part.len(),
        }
    }
}

/// Reads all days; returns false for each incomplete day.
fn read_days(store: &PartStore, may_lack: bool) -> Vec<bool> {
    let day = |(day, count): (u32, &usize)| match read_day(store, day) {
        Ok(found) if found == *count => true,
        Ok(found) => {
            assert!(may_lack && found < *count, "{found} of {count} points of day {day}");
            false
        }
        Err(error) => {
            check_named(&error);
            false
        }
    };
    (0..DAYS).zip(COUNTS.iter()).map(day).collect()
}

/// A block or the footer of a part, or a manifest, with correct checksums. The first byte selects the kind.
pub(crate) fn part_blocks(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 6 {
        0 => {
            if let Some(head) = testing::recode_head(bytes, START_SECS) {
                assert_eq!(testing::recode_head(&head, START_SECS), Some(head), "one form");
            }
        }
        1 => {
            let _ = testing::count_cells(bytes, START_SECS);
        }
        2 => {
            let (wanted, block) = bytes.split_at(bytes.len().min(SEARCHED.len()));
            if let Some((count, (index, is_there))) = testing::read_series_block(block, wanted) {
                assert!(count <= block.len(), "a series has a byte at least");
                // A place for each restart of four bytes counts as sixteen series.
                assert!(!is_there || index < 5 * block.len(), "{index} in {} bytes", block.len());
            }
        }
        3 => summaries(bytes),
        4 => footer(bytes),
        _ => match testing::recode_manifest(&resealed(bytes)) {
            Ok(again) => assert_eq!(testing::recode_manifest(&again), Ok(again), "one form"),
            Err((at, what)) => assert!(at <= bytes.len() && !what.is_empty(), "{what} at {at}"),
        },
    }
}

/// The series to search in the series block of a seed.
const SEARCHED: [u8; 4] = [0, 0, 1, 0];

/// Summaries of hours of one day, which must be equal in every use.
fn summaries(block: &[u8]) {
    let hours = |fold| {
        let days = testing::read_summaries(block, START_SECS, fold)?;
        for day in &days {
            assert!(day.hours.is_sorted_by(|a, b| a.start_ms < b.start_ms), "hours rise");
            let start_ms = i64::from(START_SECS) * 1_000;
            let day_ms = start_ms..start_ms + i64::from(DAY_SECS) * 1_000;
            assert!(day.hours.iter().all(|hour| day_ms.contains(&hour.start_ms)), "of the day");
            let points: u64 = day.hours.iter().map(|hour| hour.count).sum();
            // An hour of NaN has no minimum: the day has no summary, and its points are read.
            assert!(day.day().is_none_or(|day| day.count == points), "points of the day");
        }
        let hours = days.iter().flat_map(|day| &day.hours);
        Some(hours.map(|hour| (hour.start_ms, hour.count)).collect::<Vec<_>>())
    };
    let extremes = hours(SummaryFold::Extremes);
    for bucket in [SumBucket::Hour, SumBucket::Day] {
        // Sums come later in the block.
        let sums = hours(SummaryFold::Sums(bucket));
        assert!(sums.is_none() || sums == extremes, "hours of sums");
    }
    let _ = hours(SummaryFold::Ends);
}

/// An intact part with this footer in both places.
fn footer(bytes: &[u8]) {
    let intact = &INTACT[PARTS[0]];
    let areas = PartAreas::of(intact);
    let sums = [&(bytes.len() as u32).to_le_bytes()[..], &crc32c::crc32c(bytes).to_le_bytes()];
    let part = [
        &intact[..16],
        &sums.concat(),
        &intact[PART_START..areas.copy.start],
        bytes,
        &intact[areas.heads],
        bytes,
        &sums.concat(),
        &intact[intact.len() - 8..],
    ];
    let files = Files::from([(PARTS[0].to_owned(), part.concat())]);
    let dir: Arc<dyn StoreDir> = Arc::new(disk_with(&files));
    let is_intact = bytes == &intact[areas.footer.start..intact.len() - PART_TAIL];
    for result in [
        testing::verify_part(&dir, &resources(), 1),
        testing::blocks(&dir, &resources(), 1).map(|_| ()),
    ] {
        match result {
            Ok(()) => {}
            Err(error) => assert!(!is_intact && !error.to_string().is_empty(), "{error}"),
        }
    }
}

/// Corrects the checksum of each record of a manifest.
fn resealed(file: &[u8]) -> Vec<u8> {
    let (mut file, mut at) = (file.to_vec(), 8);
    while let Some(len) = length_at(&file, at) {
        let end = (at + 8).saturating_add(len);
        let Some(payload) = file.get(at + 8..end) else { break };
        let crc = crc32c::crc32c(payload).to_le_bytes();
        file[at + 4..at + 8].copy_from_slice(&crc);
        at = end;
    }
    file
}

/// The manifest of a store that has a damaged block.
fn manifest_with_damage() -> Vec<u8> {
    let mut files = INTACT.clone();
    files.get_mut(PARTS[1]).expect("a part")[PART_START + 40] ^= 1;
    let disk = disk_with(&files);
    let store = open(&disk).expect("a store");
    store.merge_all(u32::MAX).expect("damage does not stop a merge");
    drop(store);
    disk.all_contents().remove(MANIFESTS[0]).expect("a manifest")
}

/// Valid inputs, each with its target.
pub(crate) fn generated() -> Vec<(&'static str, Vec<u8>)> {
    let block = |kind: u8, bytes: &[u8]| ("part_blocks", [&[kind][..], bytes].concat());
    let part = &INTACT[PARTS[0]];
    let footer = &part[PartAreas::of(part).footer.start..part.len() - PART_TAIL];
    let mut inputs = vec![("part_files", pack(&NAMES, &INTACT)), block(4, footer)];
    for manifest in [&INTACT[MANIFESTS[0]], &manifest_with_damage()] {
        assert!(testing::recode_manifest(manifest).is_ok(), "a manifest that was written");
        inputs.push(block(5, manifest));
    }
    let dir: Arc<dyn StoreDir> = Arc::new(disk_with(&INTACT));
    for (kind, bytes) in testing::blocks(&dir, &resources(), 1).expect("an intact part") {
        match kind {
            0 => assert_eq!(testing::recode_head(&bytes, START_SECS).as_ref(), Some(&bytes)),
            1 => assert!(testing::count_cells(&bytes, START_SECS).is_some_and(|cells| cells > 100)),
            2 => assert!(testing::read_series_block(&bytes, &SEARCHED).is_some()),
            _ => {
                let days = testing::read_summaries(&bytes, START_SECS, SummaryFold::Extremes);
                assert_eq!(days.map(|days| days.len()), Some(1), "one series has summaries");
            }
        }
        // A series block comes after a series that is searched.
        let wanted = if kind == 2 { &SEARCHED[..] } else { &[] };
        inputs.push(block(kind, &[wanted, &bytes].concat()));
    }
    assert!(inputs.iter().any(|(_, input)| input[0] == 3), "a block of summaries");
    inputs
}
