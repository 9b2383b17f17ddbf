//! Power cuts and kills during flushes, merges, drops, and removals of series from the index.

use std::{collections::BTreeMap, sync::Arc};

use tsd_files::{FaultyDisk, TestRng};
use tsd_model::{Family, TableSchema};
use tsd_storage::Retention;

use super::{
    super::{
        model::{expected_rows, live_files, read_rows},
        scenario::{Model, PlainCell, TestRow, TestRows, apply, key, part_files, try_open},
    },
    BASE, DAY, HOUR, clock, flush, keeper_of, key_of, retention, retention_by_metric, row,
    set_clock,
};
use crate::{
    PartStore, SeriesSelection,
    retention::{RetainedTable, RetentionKeeper},
    series::TableSeries,
};

fn random_rows(rng: &mut TestRng) -> Vec<TestRow> {
    let mut rows = BTreeMap::new();
    for _ in 0..=rng.below(5) {
        let base = BASE + rng.below(8 * 24) as u32 * HOUR;
        let base = if rng.chance(50) { base - base % DAY } else { base };
        let key = key_of(1 + rng.below(2) as u8, rng.below(2) as u8, base);
        let cells: Vec<PlainCell> = (0..rng.below(3) as u8)
            .map(|i| (Family::T, vec![0, i << 4], vec![rng.below(100) as u8], 1))
            .collect();
        let row =
            TestRow { key: key.clone(), delete_row: rng.chance(25), deletes: Vec::new(), cells };
        if row.delete_row || !row.cells.is_empty() {
            rows.insert(key, row);
        }
    }
    rows.into_values().collect()
}

/// Rows that have not expired.
type LiveModel = BTreeMap<Vec<u8>, Vec<PlainCell>>;

/// `removed_before` is the newest cut-off that merges used for the short metric. After a restart, the seen time
/// may be some minutes earlier.
fn live(mut rows: LiveModel, retention: &Retention, removed_before: u32) -> LiveModel {
    let cutoffs = retention.cutoffs();
    let is_removed = |key: &[u8]| key[2] == 2 && key[3..7] < removed_before.to_be_bytes()[..];
    rows.retain(|key, _| !retention.is_expired(&cutoffs, HOUR, key) && !is_removed(key));
    rows
}

/// Cuts the power and kills during flushes, merges and drops. After each, reads with a retention that hides only
/// discarded rows equal the model. No older row comes back, not even by half.
fn run(seed: u64) {
    let mut rng = TestRng::new(seed);
    let mut disk = FaultyDisk::new(seed);
    let mut model = Model::new();
    let mut now = i64::from(BASE + DAY);
    let mut removed_before = 0;
    for _ in 0..4 {
        let has_faults = rng.chance(80);
        if has_faults {
            disk.cut_power_after(1 + rng.below(120));
        }
        if has_faults && rng.chance(30) {
            disk.set_sync_failures(10);
        }
        let mut in_doubt: Vec<Vec<TestRow>> = Vec::new();
        set_clock(now);
        let retention = retention_by_metric(Some(1 + rng.below(3)));
        let opened = try_open(&disk).map(Arc::new);
        if let Ok(store) = &opened
            && let Ok(keeper) = keeper_of(&disk, store, &retention)
        {
            store.set_retention(Arc::clone(&retention), HOUR);
            for _ in 0..30 {
                match rng.below(8) {
                    0..4 => {
                        let rows = random_rows(&mut rng);
                        let before = store.manifest_bytes();
                        let flushed = flush(store, &retention, &rows);
                        if store.manifest_bytes() > before {
                            in_doubt.clear();
                        }
                        match flushed {
                            Ok(()) => apply(&mut model, &rows),
                            Err(_) => in_doubt.push(rows),
                        }
                    }
                    4 => {
                        let before = store.manifest_bytes();
                        let _ = if rng.chance(50) {
                            store.merge_all(0)
                        } else {
                            store.merge_step(&mut || Ok(())).map(|_| ())
                        };
                        if store.manifest_bytes() > before {
                            in_doubt.clear();
                        }
                    }
                    5 => {
                        let secs = rng.below(u64::from(DAY)) as i64;
                        now += secs;
                        set_clock(now);
                        keeper.look();
                        // A point of this time comes in.
                        let _ = retention.check_put(&key(1, 0), now as u32);
                        keeper.look();
                    }
                    _ => {
                        let before = store.manifest_bytes();
                        let stops = rng.chance(20);
                        keeper.apply(&|_| stops);
                        if store.manifest_bytes() > before {
                            in_doubt.clear();
                        }
                    }
                }
                let cutoff = retention.cutoffs().of_metric(&[0, 0, 2]);
                removed_before = removed_before.max(cutoff);
                if !has_faults {
                    let rows = read_rows(store, &SeriesSelection::All);
                    let rows = live(rows, &retention, removed_before);
                    let expected = live(expected_rows(&model), &retention, removed_before);
                    assert_eq!(rows, expected, "seed {seed}");
                }
            }
        }
        drop(opened);
        disk = if rng.chance(70) { disk.after_power_cut() } else { disk.after_kill() };
        let store = Arc::new(try_open(&disk).unwrap());
        let longest = retention_by_metric(Some(10_000));
        let keeper = keeper_of(&disk, &store, &longest).unwrap();
        let live = |rows| live(rows, &longest, removed_before);
        let rows = live(read_rows(&store, &SeriesSelection::All));
        if rows != live(expected_rows(&model)) {
            let found = in_doubt.iter().any(|rows_in_doubt| {
                let mut with = model.clone();
                apply(&mut with, rows_in_doubt);
                let equal = rows == live(expected_rows(&with));
                if equal {
                    model = with;
                }
                equal
            });
            assert!(found, "seed {seed}: {rows:?}\n{:?}", live(expected_rows(&model)));
        }
        let mut files = part_files(&disk);
        files.retain(|name| !name.starts_with("retention"));
        assert_eq!(files, live_files(&store), "seed {seed}");
        drop((keeper, store));
    }
}

/// `CRASH_SEEDS=first+count` runs other seeds.
#[test]
fn what_was_discarded_stays_hidden_wherever_it_stops() {
    let (first, count) = match std::env::var("CRASH_SEEDS") {
        Ok(text) => {
            let (first, count) = text.split_once('+').unwrap();
            (first.parse().unwrap(), count.parse().unwrap())
        }
        Err(_) => (0, 300),
    };
    for seed in first..first + count {
        run(seed);
    }
}

/// Opens the index of a store, with the rows of the store.
fn open_index(disk: &FaultyDisk, store: &PartStore) -> TableSeries {
    let (dir, schema) = (Arc::new(disk.clone()), TableSchema::opentsdb_default());
    let is_empty = store.snapshot().spans().is_empty();
    TableSeries::open(dir, store.table(), schema, is_empty).unwrap()
}

/// Cuts the power while series leave the index. Afterwards, the index has all remaining series or is rebuilt, and
/// accepts writes.
#[test]
fn series_leave_the_index_with_their_spans_wherever_it_stops() {
    let keys = |days: std::ops::Range<u32>| -> Vec<Vec<u8>> {
        days.map(|day| key(day as u8, BASE + day * DAY)).collect()
    };
    for cut in 0..60_u64 {
        set_clock(i64::from(BASE + 40 * DAY));
        let disk = FaultyDisk::new(cut);
        let store = Arc::new(try_open(&disk).unwrap());
        let series = Arc::new(open_index(&disk, &store));
        // Each day has its own series.
        let rows: Vec<TestRow> = (0..40).map(|day| row(day as u8, BASE + day * DAY)).collect();
        series.index.add_rows(keys(0..40).iter().map(Vec::as_slice));
        series.persist().unwrap();
        store.flush(&mut TestRows::new(&rows)).unwrap();
        let table =
            RetainedTable { store: Arc::clone(&store), series: Some(series), row_secs: HOUR };
        let (dir, retention) = (Arc::new(disk.clone()), retention(10));
        if cut > 0 {
            disk.cut_power_after(cut);
        }
        if let Ok(keeper) = RetentionKeeper::open(retention, dir, clock, vec![table.clone()]) {
            keeper.apply(&|_| false);
            if let Some(series) = &table.series {
                series.index.add_rows(keys(40..41).iter().map(Vec::as_slice));
                let _ = series.persist();
            }
        }
        drop((table, store));
        let disk = disk.after_power_cut();
        let store = try_open(&disk).unwrap();
        let series = open_index(&disk, &store);
        assert!(series.index.is_complete(), "cut {cut}");
        let missing = series.index.count_missing(keys(30..40).iter().map(Vec::as_slice));
        assert_eq!((missing, series.index.count_wrong()), (0, 0), "cut {cut}");
        assert!(series.index.size().series <= 41, "cut {cut}");
        if cut == 0 {
            assert_eq!(series.index.size().series, 11);
        }
        series.index.add_rows(keys(41..42).iter().map(Vec::as_slice));
        series.persist().unwrap();
        let again = open_index(&disk, &store);
        assert_eq!(again.index.count_missing(keys(41..42).iter().map(Vec::as_slice)), 0);
    }
}
