//! The series index of a table is complete after restarts, kills, damage and deletes.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use tsd_model::{Family, TableSchema};
use tsd_storage::{CellBatch, CellRef, Delete, Storage, StorageExt, Table};

use super::storage::new_dir;
use crate::{PartLayout, PartStorage, PartStorageConfig, PartTableSpec};

type Dir = tempfile::TempDir;

fn data() -> Table {
    Table::new("tsdb")
}

const HOUR: u32 = 3_600;

fn schema() -> TableSchema {
    TableSchema::try_new(3, 3, 3, 0, 1).unwrap()
}

fn open(dir: &Dir) -> PartStorage {
    open_with(dir, Some(schema()))
}

fn open_with(dir: &Dir, series: Option<TableSchema>) -> PartStorage {
    let layout = PartLayout::try_new(&schema(), PartLayout::DAY_SECS).unwrap();
    let spec = PartTableSpec { series, ..PartTableSpec::new(data(), layout) };
    PartStorage::open(&PartStorageConfig::new(dir.path(), vec![spec])).unwrap()
}

fn row_key(metric: u8, host: u8, hour: u32) -> Vec<u8> {
    let tags = [0, 0, 1, 0, 0, host];
    [&[0, 0, metric][..], &(hour * HOUR).to_be_bytes(), &tags].concat()
}

async fn put(store: &PartStorage, metric: u8, host: u8, hour: u32) {
    let cell =
        CellRef { family: Family::T, qualifier: &[0, 0], value: &[1], timestamp_ms: Some(1) };
    let batch = CellBatch::single(&row_key(metric, host, hour), cell).unwrap();
    store.put(&data(), batch).await.unwrap();
}

/// Metric, host and day of all series in the index.
fn indexed(store: &PartStorage) -> BTreeSet<(u8, u8, u32)> {
    let index = store.series().series_index(&data()).unwrap();
    let mut found = BTreeSet::new();
    for uid in index.metrics() {
        let metric = index.metric(uid).unwrap();
        let all = metric.matching(&[], false);
        let (from, to) = (0, 100 * 24 * HOUR);
        let base = tsd_model::BaseTime::containing;
        for day in metric.rows(&all, base(from), base(to)) {
            let number = day.hours.first().unwrap().as_secs() / (24 * HOUR);
            metric.for_each(&day.series, |_, tags| {
                found.insert((uid.as_bytes()[2], *tags.last().unwrap(), number));
            });
        }
    }
    found
}

fn await_complete(store: &PartStorage) {
    let index = store.series().series_index(&data()).unwrap();
    let started = Instant::now();
    while !index.is_complete() {
        assert!(started.elapsed() < Duration::from_mins(1), "the index is not built");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn files(dir: &Dir) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.path().join("series")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn rows() -> BTreeSet<(u8, u8, u32)> {
    [(1, 1, 0), (1, 2, 0), (1, 2, 3), (2, 1, 1)].into()
}

async fn fill(store: &PartStorage) {
    for (metric, host, day) in rows() {
        put(store, metric, host, day * 24 + 5).await;
    }
}

fn is_complete(store: &PartStorage) -> bool {
    store.series().series_index(&data()).unwrap().is_complete()
}

#[tokio::test]
async fn index_survives_a_restart_and_deletes() {
    let dir = new_dir();
    let store = open(&dir);
    assert!(is_complete(&store), "a new table needs no build");
    fill(&store).await;
    assert_eq!(indexed(&store), rows());
    store.delete(&data(), Delete::Row(row_key(1, 2, 5).into())).await.unwrap();
    drop(store);
    for _ in 0..2 {
        let store = open(&dir);
        assert!(is_complete(&store), "loaded");
        assert_eq!(indexed(&store), rows(), "deleted rows stay in the index");
        drop(store);
    }
    assert_eq!(files(&dir).len(), 2);
}

#[tokio::test]
async fn missing_or_damaged_files_are_built_again() {
    let dir = new_dir();
    let store = open(&dir);
    fill(&store).await;
    drop(store);
    let [state, frames] = files(&dir).try_into().unwrap();
    let original = [fs::read(&state).unwrap(), fs::read(&frames).unwrap()];
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 4;
        bytes
    };
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 1].to_vec();
    let damages = [
        [None, Some(original[1].clone())],
        [Some(original[0].clone()), None],
        [Some(flipped(&original[0], 20)), Some(original[1].clone())],
        [Some(original[0].clone()), Some(cut(&original[1]))],
        [Some(original[0].clone()), Some(vec![0; original[1].len()])],
    ];
    let flips = (0..original[1].len())
        .map(|at| [Some(original[0].clone()), Some(flipped(&original[1], at))]);
    for damage in damages.into_iter().chain(flips.step_by(7)) {
        for (path, bytes) in [&state, &frames].into_iter().zip(&damage) {
            let _ = fs::remove_file(path);
            if let Some(bytes) = bytes {
                fs::write(path, bytes).unwrap();
            }
        }
        let store = open(&dir);
        await_complete(&store);
        assert_eq!(indexed(&store), rows());
        let built = store
            .maintenance()
            .gauges()
            .into_iter()
            .find(|g| g.0 == "tsd_parts_series_index_built_rows_total");
        assert_eq!(built.unwrap().1 as u64, 4);
        drop(store);
        let store = open(&dir);
        assert!(is_complete(&store), "the built index was written");
        assert_eq!(indexed(&store), rows());
        drop(store);
        // The number of the file changed.
        for file in files(&dir) {
            fs::remove_file(file).unwrap();
        }
    }
}

#[tokio::test]
async fn bytes_after_the_recorded_length_are_cut_off() {
    let dir = new_dir();
    let store = open(&dir);
    fill(&store).await;
    drop(store);
    let frames = files(&dir).pop().unwrap();
    let original = fs::read(&frames).unwrap();
    for tail in [&b"\x09\0\0\0"[..], &original] {
        fs::write(&frames, [&original[..], tail].concat()).unwrap();
        let store = open(&dir);
        assert!(is_complete(&store));
        assert_eq!(indexed(&store), rows());
        assert_eq!(fs::read(&frames).unwrap(), original);
        drop(store);
    }
    let store = open(&dir);
    put(&store, 3, 3, 0).await;
    drop(store);
    assert!(indexed(&open(&dir)).contains(&(3, 3, 0)));
}

#[tokio::test]
async fn a_table_without_an_index_gets_one_while_it_is_written() {
    let dir = new_dir();
    let store = open_with(&dir, None);
    assert!(store.series().series_index(&data()).is_none());
    for host in 1..=200 {
        put(&store, 1, host, 0).await;
    }
    drop(store);
    let store = open(&dir);
    for host in 201..=255 {
        put(&store, 1, host, 30).await;
    }
    await_complete(&store);
    let expected = (1..=255).map(|host| (1, host, u32::from(host > 200))).collect();
    assert_eq!(indexed(&store), expected);
    drop(store);
    assert_eq!(indexed(&open(&dir)), expected);
    // Opened without the index, which therefore misses these writes.
    let store = open_with(&dir, None);
    put(&store, 9, 9, 0).await;
    drop(store);
    let store = open(&dir);
    await_complete(&store);
    assert!(indexed(&store).contains(&(9, 9, 0)));
}
