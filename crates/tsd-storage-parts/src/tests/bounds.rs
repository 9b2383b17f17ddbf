//! Limits: disk space, sections of a span, the merge thread.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tsd_files::{DiskSpace, FaultyDisk};
use tsd_model::Family;
use tsd_storage::{FlushRow, FlushRows, HealthImpact, StoreComponent};

use super::{
    model::read_rows,
    scenario::{TestRow, TestRows, config, key, new_store, part_files, try_open},
};
use crate::{PartError, PartMerger, PartStore, SeriesSelection};

const BASE: u32 = 1_356_998_400;

fn row(second: u16, delete_row: bool) -> TestRow {
    let cells = vec![(Family::T, (second << 4).to_be_bytes().to_vec(), vec![1], 1)];
    let cells = if delete_row { Vec::new() } else { cells };
    TestRow { key: key(1, BASE), delete_row, deletes: Vec::new(), cells }
}

/// Rows that free space.
struct Deletes<'a>(TestRows<'a>);

impl FlushRows for Deletes<'_> {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.0.next_row()
    }

    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {
        self.0.sort_by(compare);
    }

    fn frees_space(&self) -> bool {
        true
    }
}

#[test]
fn many_sections_merge_whatever_their_sizes() {
    let store = PartStore::open(Arc::new(FaultyDisk::new(1)), config(DiskSpace::new("/", 0)));
    let store = store.unwrap();
    for flush in 0..70_u32 {
        let hours = if flush.is_multiple_of(2) { 24 } else { 1 };
        let rows: Vec<TestRow> = (0..40_u8)
            .take(if hours == 1 { 1 } else { 40 })
            .map(|series| TestRow {
                key: key(series, BASE + flush % hours * 3_600),
                ..row(1, false)
            })
            .collect();
        store.flush(&mut TestRows::new(&rows)).unwrap();
    }
    assert_eq!(store.max_sections(), 70);
    // The newest section is much smaller than the previous one.
    while store.merge_due(0).unwrap() {}
    assert!(store.max_sections() < 48, "{} sections", store.max_sections());
}

const MIB: u64 = 1 << 20;

#[test]
fn a_full_disk_refuses_points_and_accepts_deletes_and_their_merges() {
    let free = Arc::new(AtomicU64::new(100 * MIB));
    let probe = Arc::clone(&free);
    let space = DiskSpace::with_probe("/data", 8 * MIB, move || Ok(probe.load(Ordering::Relaxed)));
    let store = PartStore::open(Arc::new(FaultyDisk::new(1)), config(space)).unwrap();
    for second in 0..3 {
        store.flush(&mut TestRows::new(&[row(second, false)])).unwrap();
    }
    free.store(8 * MIB, Ordering::Relaxed);
    let refused = store.flush(&mut TestRows::new(&[row(9, false)]));
    assert!(matches!(refused, Err(PartError::DiskFull)), "{refused:?}");
    store.flush(&mut Deletes(TestRows::new(&[row(0, true)]))).unwrap();
    assert!(read_rows(&store, &SeriesSelection::All).is_empty());
    let before = store.disk_bytes();
    store.merge_all(0).unwrap();
    assert!(before > 0 && store.disk_bytes() == 0);
    // A quarter of the reserve stays free.
    free.store(2 * MIB, Ordering::Relaxed);
    let refused = store.flush(&mut Deletes(TestRows::new(&[row(0, true)])));
    assert!(matches!(refused, Err(PartError::DiskFull)), "{refused:?}");
}

/// Points of a day whose values do not pack.
fn random_rows(day: u32, series: u8) -> Vec<TestRow> {
    let mut state = u64::from(day) + 1;
    let mut value = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state ^ state >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec()
    };
    let row = |series| {
        let cell = |second: u16| (Family::T, (second << 4 | 7).to_be_bytes().to_vec(), value(), 1);
        let cells = (0..3_600).map(cell).collect();
        TestRow { key: key(series, BASE + day * 86_400), cells, ..row(0, true) }
    };
    (0..series).map(row).map(|row| TestRow { delete_row: false, ..row }).collect()
}

#[test]
fn a_flush_asks_for_about_what_it_writes() {
    let disk = FaultyDisk::new(1);
    let capacity = Arc::new(AtomicU64::new(100 * MIB));
    let (files, limit) = (disk.clone(), Arc::clone(&capacity));
    let used = move || files.all_contents().values().map(|bytes| bytes.len() as u64).sum::<u64>();
    let used_by_probe = used.clone();
    let free = move || Ok(limit.load(Ordering::Relaxed).saturating_sub(used_by_probe()));
    let space = DiskSpace::with_probe("/data", 8 * MIB, free);
    let store = PartStore::open(Arc::new(disk.clone()), config(space)).unwrap();
    let before = used();
    store.flush(&mut TestRows::new(&random_rows(0, 60))).unwrap();
    let part = used() - before;
    assert!(part > MIB, "{part} bytes");
    let listed = part_files(&disk);
    // Only half of the second part fits, so none of its rows remain.
    let second = random_rows(1, 60);
    capacity.store(used() + 8 * MIB + part / 2, Ordering::Relaxed);
    let refused = store.flush(&mut TestRows::new(&second));
    assert!(matches!(refused, Err(PartError::DiskFull)), "{refused:?}");
    assert_eq!(part_files(&disk), listed);
    // Space for twice the size is enough.
    capacity.store(used() + 8 * MIB + part * 2 + (256 << 10), Ordering::Relaxed);
    store.flush(&mut TestRows::new(&second)).unwrap();
    assert_eq!(read_rows(&store, &SeriesSelection::All).len(), 120);
}

/// Rows that ignore `sort_by`.
struct Unsorted<'a>(TestRows<'a>);

impl FlushRows for Unsorted<'_> {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.0.next_row()
    }

    fn sort_by(&mut self, _: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {}
}

#[test]
fn rows_that_are_not_sorted_by_series_are_refused() {
    let (disk, store) = new_store();
    let rows = [2, 1].map(|series| TestRow { key: key(series, BASE), ..row(1, false) });
    let refused = store.flush(&mut Unsorted(TestRows::new(&rows)));
    assert!(matches!(refused, Err(PartError::Row(_))), "{refused:?}");
    assert_eq!(part_files(&disk), Vec::<String>::new());
    store.flush(&mut TestRows::new(&rows)).unwrap();
    assert_eq!(read_rows(&store, &SeriesSelection::All).len(), 2);
}

#[test]
fn a_merge_on_a_full_disk_takes_the_span_whose_output_fits() {
    let free = Arc::new(AtomicU64::new(100 * MIB));
    let probe = Arc::clone(&free);
    let space = DiskSpace::with_probe("/data", 8 * MIB, move || Ok(probe.load(Ordering::Relaxed)));
    let store = PartStore::open(Arc::new(FaultyDisk::new(1)), config(space)).unwrap();
    // The first day has no deletes; the larger second day has lost all but one series.
    for (day, series) in [(0, 10), (1, 20)] {
        let rows = random_rows(day, series);
        store.flush(&mut TestRows::new(&rows)).unwrap();
        let last: Vec<_> =
            rows.into_iter().map(|row| TestRow { delete_row: true, ..row }).collect();
        let deletes = (1..last.len()).map(|at| TestRow { cells: Vec::new(), ..last[at].clone() });
        let deletes: Vec<_> = if day == 0 { vec![last[0].clone()] } else { deletes.collect() };
        store.flush(&mut Deletes(TestRows::new(&deletes))).unwrap();
    }
    // The same for compacted rows.
    let values = || {
        let rows = read_rows(&store, &SeriesSelection::All).into_iter();
        let bytes = |cells: Vec<_>| -> Vec<u8> {
            let values = cells.into_iter().flat_map(|(_, _, value, _): (_, _, Vec<u8>, _)| value);
            values.take(8 * 3_600).collect()
        };
        rows.map(|(key, cells)| (key, bytes(cells))).collect::<Vec<_>>()
    };
    let expected = values();
    assert_eq!(expected.len(), 11);
    let before = store.disk_bytes();
    free.store(2 * MIB + 150_000, Ordering::Relaxed);
    assert!(store.merge_closed(u32::MAX).unwrap());
    assert!(store.disk_bytes() < before - 400_000, "{before}, {}", store.disk_bytes());
    let result = store.merge_closed(u32::MAX);
    assert!(matches!(result, Err(PartError::DiskFull)), "{result:?}");
    assert!(values() == expected);
    free.store(100 * MIB, Ordering::Relaxed);
    store.merge_all(u32::MAX).unwrap();
    assert_eq!((store.snapshot().section_count(), store.max_sections()), (2, 1));
    assert!(values() == expected);
}

#[test]
fn reads_of_the_same_blocks_read_and_verify_them_once() {
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[row(1, false)])).unwrap();
    let rows = read_rows(&store, &SeriesSelection::All);
    disk.flip("0000000001.part", 26, 1);
    assert_eq!(read_rows(&store, &SeriesSelection::All), rows);
    let gauge = |name| {
        let gauges = store.resources().gauges();
        gauges.into_iter().find(|(n, _)| *n == name).unwrap().1 as u64
    };
    assert_eq!(gauge("tsd_parts_cache_misses_total"), gauge("tsd_parts_cache_hits_total"));
    assert!(gauge("tsd_parts_cache_bytes") > 0);
}

#[test]
fn flushes_wait_for_the_thread_that_merges() {
    let (_, store) = new_store();
    let store = Arc::new(store);
    for second in 0..70 {
        store.flush(&mut TestRows::new(&[row(second, false)])).unwrap();
    }
    assert_eq!(store.max_sections(), 70);
    let merger = PartMerger::start(vec![Arc::clone(&store)]).unwrap();
    for second in 70..300 {
        store.flush(&mut TestRows::new(&[row(second, false)])).unwrap();
        assert!(store.max_sections() <= 64);
    }
    assert!(merger.health().is_empty());
    drop(merger);
    let rows = read_rows(&store, &SeriesSelection::All);
    assert_eq!(rows.into_values().flatten().count(), 300);
    assert!(store.stats().merges > 0);
}

#[test]
fn a_merge_that_fails_is_reported_and_fails_the_flushes_that_wait_for_it() {
    let disk = FaultyDisk::new(1);
    let free = Arc::new(AtomicU64::new(100 * MIB));
    let probe = Arc::clone(&free);
    let space = DiskSpace::with_probe("/data", 8 * MIB, move || Ok(probe.load(Ordering::Relaxed)));
    let store = Arc::new(PartStore::open(Arc::new(disk), config(space)).unwrap());
    for second in 0..64 {
        store.flush(&mut TestRows::new(&[row(second, false)])).unwrap();
    }
    free.store(0, Ordering::Relaxed);
    let merger = PartMerger::start(vec![Arc::clone(&store)]).unwrap();
    let refused = store.flush(&mut TestRows::new(&[row(99, false)]));
    assert!(matches!(refused, Err(PartError::DiskFull)), "{refused:?}");
    let health = merger.health();
    assert_eq!(
        (health[0].component, health[0].impact),
        (StoreComponent::Compaction, HealthImpact::Degraded)
    );
    assert!(health[0].reason.contains("tsdb"), "{}", health[0].reason);
}

#[test]
fn the_thread_merges_closed_spans_and_compacts_only_what_is_allowed() {
    let (_, store) = new_store();
    let store = Arc::new(store);
    for second in 0..3 {
        store.flush(&mut TestRows::new(&[row(second, false)])).unwrap();
    }
    let merger = PartMerger::start(vec![Arc::clone(&store)]).unwrap();
    store.allow_compaction(BASE + 86_400);
    while store.snapshot().section_count() > 1 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(merger);
    let rows = read_rows(&store, &SeriesSelection::All);
    assert_eq!(rows.into_values().flatten().count(), 1, "one compacted column");
}

#[test]
fn a_quarantined_part_is_reported() {
    let (disk, store) = new_store();
    for _ in 0..2 {
        store.flush(&mut TestRows::new(&[row(1, false)])).unwrap();
    }
    disk.flip("0000000001.part", 26, 1);
    assert!(store.health().is_empty());
    store.merge_all(0).unwrap();
    let health = store.health();
    assert_eq!(
        (health[0].component, health[0].impact),
        (StoreComponent::Data, HealthImpact::SomeReadsFail)
    );
    assert!(health[0].reason.contains("/0000000001.part"), "{}", health[0].reason);
    let gauges = store.gauges();
    assert!(gauges.contains(&("tsd_parts_quarantined_files", 1.0)), "{gauges:?}");
}

#[test]
fn a_flush_adds_few_bytes_to_the_manifest_which_is_written_anew_when_it_has_grown() {
    let (disk, store) = new_store();
    let before = store.manifest_bytes();
    store.flush(&mut TestRows::new(&[row(1, false)])).unwrap();
    assert!(store.manifest_bytes() - before < 128, "{}", store.manifest_bytes() - before);
    for second in 0..300 {
        let day = |day: u32| TestRow { key: key(1, BASE + day * 86_400), ..row(second, false) };
        let rows: Vec<TestRow> = (0..50).map(day).collect();
        store.flush(&mut TestRows::new(&rows)).unwrap();
        if second % 50 == 49 {
            store.merge_all(0).unwrap();
        }
        // At most the state of 2 550 sections, 64 KiB of edits, and one more edit.
        assert!(disk.all_contents()["manifest"].len() < 120_000);
    }
    assert!(store.manifest_bytes() > 200_000);
    drop(store);
    let store = try_open(&disk).unwrap();
    assert_eq!(store.snapshot().section_count(), 50);
    let rows = read_rows(&store, &SeriesSelection::All);
    assert_eq!(rows.into_values().flatten().count(), 300 * 50);
}
