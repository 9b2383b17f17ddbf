//! Files of the series index of a table.

use std::sync::{Arc, LazyLock};

use tsd_files::{FaultyDisk, StoreDir};
use tsd_model::TableSchema;
use tsd_series_index::SeriesIndex;
use tsd_storage::{StorageError, Table};
use tsd_storage_parts::testing;

use super::{
    files::{Files, disk_with, length_at, pack, unpack},
    parts::{DAY_SECS, DAYS, SERIES, START_SECS, key},
};

/// The file with the name of the index file, and the index file: a snapshot and a delta for each
/// further flush.
static NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| ["t.tsdb", "t.tsdb.1"].map(str::to_owned).to_vec());
static INTACT: LazyLock<Files> = LazyLock::new(|| {
    let disk = FaultyDisk::new(1);
    let dir: Arc<dyn StoreDir> = Arc::new(disk.clone());
    let flushes: Vec<_> = (0..DAYS).map(keys).collect();
    testing::write_series_index(dir, &Table::new("tsdb"), schema(), &flushes).expect("an index");
    let files = disk.all_contents();
    assert!(files.keys().eq(&*NAMES), "{:?}", files.keys());
    files
});

/// Length and checksum of a frame.
const FRAME_HEADER: usize = 8;

fn schema() -> TableSchema {
    TableSchema::opentsdb_default()
}

/// The rows that a flush adds: each day has one more series.
fn keys(day: u32) -> Vec<Vec<u8>> {
    let series = 0..SERIES + day as u8;
    series.map(|series| key(series, START_SECS + day * DAY_SECS + 7_200)).collect()
}

fn read(files: &Files) -> Result<Result<SeriesIndex, String>, StorageError> {
    let dir: Arc<dyn StoreDir> = Arc::new(disk_with(files));
    testing::read_series_index(&dir, &Table::new("tsdb"), schema())
}

/// The first byte decides: after 0 the unchanged files of a series index, after 1 the files with
/// corrected checksums, else a frame.
pub(crate) fn series_index(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 3 {
        0 => {
            let files = unpack(&NAMES, bytes);
            match read(&files) {
                Ok(Ok(index)) => check_whole(&index),
                Ok(Err(what)) => assert!(files != *INTACT && what.contains("tsdb"), "{what}"),
                Err(error) => assert!(error.to_string().contains("tsdb"), "{error}"),
            }
        }
        1 => match read(&resealed(unpack(&NAMES, bytes))) {
            Ok(Ok(index)) => check_written_again(&index),
            Ok(Err(what)) => assert!(what.contains("tsdb"), "{what}"),
            Err(error) => assert!(error.to_string().contains("tsdb"), "{error}"),
        },
        _ => {
            let index = SeriesIndex::new(schema());
            match index.load(bytes) {
                Ok(()) => check_written_again(&index),
                Err(error) => assert!(!error.to_string().is_empty(), "an error says why"),
            }
        }
    }
}

/// Checks that the index has all added rows, and no other series.
fn check_whole(index: &SeriesIndex) {
    let keys: Vec<_> = (0..DAYS).flat_map(keys).collect();
    assert_eq!(index.count_missing(keys.iter().map(Vec::as_slice)), 0, "all rows");
    assert_eq!(index.size().series, u64::from(SERIES) + u64::from(DAYS) - 1);
}

/// Checks that a written and loaded index has the same series and days.
fn check_written_again(index: &SeriesIndex) {
    let again = SeriesIndex::new(schema());
    for frame in snapshot(index) {
        again.load(&frame).expect("what was written is read");
    }
    let counts = |index: &SeriesIndex| (index.size().series, index.metrics());
    assert_eq!(counts(&again), counts(index), "the same series");
    for uid in index.metrics() {
        let series = |index: &SeriesIndex| {
            let metric = index.metric(uid).expect("a metric");
            let mut all = Vec::new();
            metric.for_each(&metric.matching(&[], false), |id, tags| all.push((id, tags.to_vec())));
            (all, metric.last_days(usize::MAX))
        };
        assert_eq!(series(&again), series(index), "the same tags and days");
    }
}

fn snapshot(index: &SeriesIndex) -> Vec<Vec<u8>> {
    index.delta(true).map(|delta| delta.frames).unwrap_or_default()
}

/// Corrects the checksums of the text and of the frames.
fn resealed(mut files: Files) -> Files {
    if let Some(text) = files.get_mut(&NAMES[0]) {
        text.truncate(text.len().saturating_sub("sum 00000000\n".len()));
        let sum = format!("sum {:08x}\n", crc32c::crc32c(text));
        text.extend_from_slice(sum.as_bytes());
    }
    if let Some(frames) = files.get_mut(&NAMES[1]) {
        let mut at = 0;
        while let Some(len) = length_at(frames, at) {
            let start = at + FRAME_HEADER;
            let Some(frame) = frames.get(start..start.saturating_add(len)) else { break };
            let crc = crc32c::crc32c(frame).to_le_bytes();
            frames[at + 4..start].copy_from_slice(&crc);
            at = start + len;
        }
    }
    files
}

/// Valid inputs, each with its target.
pub(crate) fn generated() -> Vec<(&'static str, Vec<u8>)> {
    let packed = pack(&NAMES, &INTACT);
    let index = read(&INTACT).expect("a disk").expect("an intact index");
    check_whole(&index);
    let [frame] = &*snapshot(&index) else { panic!("a snapshot of one frame") };
    [(0, &packed), (1, &packed), (2, frame)]
        .map(|(kind, bytes)| ("series_index", [&[kind][..], bytes].concat()))
        .to_vec()
}
