//! Merges compact rows only while no log in front holds them.

use parking_lot::Mutex;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use tsd_files::{DiskSpace, FaultyDisk};
use tsd_model::Family;
use tsd_storage::{HeldRows, Table};

use super::{
    model::read_rows,
    scenario::{TestRow, TestRows, config, key, part_files},
};
use crate::{PartConfig, PartStore, SeriesSelection};

const BASE: u32 = 1_356_998_400;

/// A log that holds rows from a base time on.
struct FakeLog {
    oldest: AtomicU32,
    /// An older row arrives before the next commit.
    gets_row: AtomicBool,
    /// Runs before a commit.
    before_commit: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for FakeLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeLog")
    }
}

impl HeldRows for FakeLog {
    fn oldest_base(&self, _: &Table) -> u32 {
        self.oldest.load(Ordering::Relaxed)
    }

    fn commit_unless_held(&self, _: &Table, _: u32, commit: &mut dyn FnMut()) -> bool {
        if let Some(run) = self.before_commit.lock().take() {
            run();
        }
        let is_free = !self.gets_row.load(Ordering::Relaxed);
        if is_free {
            commit();
        }
        is_free
    }
}

fn row(second: u16) -> TestRow {
    let cells = vec![(Family::T, (second << 4).to_be_bytes().to_vec(), vec![1], 1)];
    TestRow { key: key(1, BASE), delete_row: false, deletes: Vec::new(), cells }
}

fn open(compacts_rows: bool) -> (FaultyDisk, Arc<PartStore>, Arc<FakeLog>) {
    let disk = FaultyDisk::new(1);
    let clock = || (i64::from(BASE) + 10 * 86_400) * 1_000;
    let config = PartConfig { clock, compacts_rows, ..config(DiskSpace::new("/", 0)) };
    let store = Arc::new(PartStore::open(Arc::new(disk.clone()), config).unwrap());
    let log = Arc::new(FakeLog {
        oldest: AtomicU32::new(u32::MAX),
        gets_row: AtomicBool::new(false),
        before_commit: Mutex::new(None),
    });
    store.set_held_rows(Arc::<FakeLog>::clone(&log));
    for second in 0..2 {
        store.flush(&mut TestRows::new(&[row(second)])).unwrap();
    }
    (disk, store, log)
}

/// Runs all due merges; returns the number of steps.
fn merge(store: &PartStore) -> u32 {
    let mut steps = 0;
    while store.merge_step(&mut || Ok(())).unwrap() {
        steps += 1;
    }
    steps
}

/// Number of cells of all rows.
fn cells(store: &PartStore) -> usize {
    read_rows(store, &SeriesSelection::All).into_values().flatten().count()
}

#[test]
fn a_closed_span_is_merged_and_its_rows_are_compacted_when_the_log_has_none_of_them() {
    let (_, store, log) = open(true);
    log.oldest.store(BASE, Ordering::Relaxed);
    assert_eq!(merge(&store), 0);
    assert_eq!((store.snapshot().section_count(), cells(&store)), (2, 2));
    // The span is still open.
    log.oldest.store(BASE + 3_600, Ordering::Relaxed);
    assert_eq!(merge(&store), 0);
    log.oldest.store(BASE + 86_400, Ordering::Relaxed);
    assert_eq!(merge(&store), 1);
    assert_eq!((store.snapshot().section_count(), cells(&store)), (1, 1));
}

#[test]
fn a_merge_is_given_up_when_the_log_gets_one_of_its_rows() {
    let (disk, store, log) = open(true);
    log.gets_row.store(true, Ordering::Relaxed);
    store.merge_step(&mut || Ok(())).unwrap();
    assert_eq!((store.snapshot().section_count(), cells(&store)), (2, 2));
    assert_eq!(part_files(&disk).len(), 2, "the output was removed");
}

#[test]
fn a_merge_is_given_up_when_its_span_gets_another_section() {
    let (disk, store, log) = open(true);
    let flushed = Arc::clone(&store);
    *log.before_commit.lock() =
        Some(Box::new(move || flushed.flush(&mut TestRows::new(&[row(7)])).unwrap()));
    store.merge_step(&mut || Ok(())).unwrap();
    assert_eq!((store.snapshot().section_count(), cells(&store)), (3, 3));
    assert_eq!(part_files(&disk).len(), 3, "the output was removed");
    assert_eq!(merge(&store), 1);
    assert_eq!((store.snapshot().section_count(), cells(&store)), (1, 1));
}

#[test]
fn rows_stay_as_they_are_without_row_compaction() {
    let (_, store, _) = open(false);
    assert_eq!(merge(&store), 1);
    assert_eq!((store.snapshot().section_count(), cells(&store)), (1, 2));
}

#[test]
fn few_late_rows_do_not_have_a_closed_span_merged_at_once() {
    let (_, store, _) = open(true);
    let points = |series: std::ops::Range<u8>| -> Vec<TestRow> {
        series.map(|series| TestRow { key: key(series, BASE), ..row(1) }).collect()
    };
    store.flush(&mut TestRows::new(&points(2..250))).unwrap();
    assert_eq!(merge(&store), 1);
    assert_eq!(store.snapshot().section_count(), 1);
    store.flush(&mut TestRows::new(&points(1..2))).unwrap();
    assert_eq!(merge(&store), 0);
    // Many late rows are worth a merge.
    store.flush(&mut TestRows::new(&points(2..250))).unwrap();
    assert_eq!(merge(&store), 1);
    assert_eq!(store.snapshot().section_count(), 1);
}
