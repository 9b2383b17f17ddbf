//! Retention drops expired rows and no others, whatever the clock does and wherever it stops.

mod power_cuts;

use std::{cell::Cell, sync::Arc};

use tsd_files::{DiskSpace, FaultyDisk, StoreDir};
use tsd_model::{Family, TableSchema};
use tsd_storage::{
    HealthImpact, MetricPattern, RepairAction, Retention, RetentionRule, RetentionRules,
    StoreComponent, Table, Verifier, VerifyRun,
};

use super::{
    model::{live_files, read_rows},
    scenario::{TestRow, TestRows, config, key, layout, part_files, try_open},
};
use crate::{
    PartError, PartStore, SeriesSelection,
    retention::{LiveRows, RetainedTable, RetentionKeeper, verify_record},
    series::TableSeries,
    storage::PartVerifier,
};

const BASE: u32 = 1_356_998_400;
const HOUR: u32 = 3_600;
const DAY: u32 = 86_400;
const YEAR: i64 = 365 * 86_400;

thread_local! {
    static CLOCK_SECS: Cell<i64> = const { Cell::new(0) };
}

fn clock() -> i64 {
    CLOCK_SECS.get() * 1_000
}

fn set_clock(secs: i64) {
    CLOCK_SECS.set(secs);
}

fn retention(days: u64) -> Arc<Retention> {
    let rules = RetentionRules { rules: Vec::new(), default_secs: Some(days * u64::from(DAY)) };
    Arc::new(Retention::new(&TableSchema::opentsdb_default(), rules))
}

fn keeper_of(
    disk: &FaultyDisk,
    store: &Arc<PartStore>,
    retention: &Arc<Retention>,
) -> Result<RetentionKeeper, tsd_storage::StorageError> {
    let table = RetainedTable { store: Arc::clone(store), series: None, row_secs: HOUR };
    RetentionKeeper::open(Arc::clone(retention), Arc::new(disk.clone()), clock, vec![table])
}

fn row(series: u8, base: u32) -> TestRow {
    let cells = vec![(Family::T, vec![0, 0], vec![1], 1)];
    TestRow { key: key(series, base), delete_row: false, deletes: Vec::new(), cells }
}

fn flush(store: &PartStore, retention: &Retention, rows: &[TestRow]) -> Result<(), PartError> {
    let mut rows = TestRows::new(rows);
    store.flush(&mut LiveRows::new(&mut rows, layout(), retention.floor()))
}

fn spans(store: &PartStore) -> Vec<u32> {
    store.snapshot().spans().keys().copied().collect()
}

/// Applies the retention at the time of the clock.
fn apply_now(keeper: &RetentionKeeper) {
    assert!(keeper.apply(&|_| false));
}

/// Puts a point at this time, and applies the retention.
fn apply_put(keeper: &RetentionKeeper, retention: &Retention, secs: i64) {
    keeper.look();
    retention.check_put(&key(1, 0), secs as u32).unwrap();
    apply_now(keeper);
}

fn days(count: u32) -> Vec<TestRow> {
    (0..count).map(|day| row(1, BASE + day * DAY)).collect()
}

#[test]
fn expired_spans_are_dropped_and_a_part_keeps_its_others() {
    set_clock(i64::from(BASE + 10 * DAY));
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    // One file with ten spans, one file with an old span, and a key without a time.
    store.flush(&mut TestRows::new(&days(10))).unwrap();
    store.flush(&mut TestRows::new(&[row(2, BASE)])).unwrap();
    let odd = TestRow { key: vec![1, 2], ..row(1, 0) };
    store.flush(&mut TestRows::new(&[odd])).unwrap();
    let retention = retention(3);
    let keeper = keeper_of(&disk, &store, &retention).unwrap();
    let old_reader = store.snapshot();
    assert!(keeper.apply(&|_| false));
    let left: Vec<u32> = [0].into_iter().chain((7..10).map(|day| BASE + day * DAY)).collect();
    assert_eq!(spans(&store), left);
    assert_eq!(live_files(&store).len(), 2);
    let gauges = store.gauges();
    assert!(gauges.contains(&("tsd_parts_retention_dropped_spans_total", 7.0)), "{gauges:?}");
    // A reader keeps the spans of its snapshot.
    assert_eq!(old_reader.spans().len(), 11);
    drop(old_reader);
    let mut files = part_files(&disk);
    files.retain(|name| !name.starts_with("retention"));
    assert_eq!(files, live_files(&store));
    // Late expired rows are no longer written.
    flush(&store, &retention, &days(10)).unwrap();
    assert_eq!(spans(&store), left);
    let before = store.stats().flushes;
    flush(&store, &retention, &days(7)).unwrap();
    assert_eq!(store.stats().flushes, before);
}

#[test]
fn many_files_are_dropped_by_several_edits() {
    set_clock(i64::from(BASE + 200 * DAY));
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    for day in 0..200 {
        store.flush(&mut TestRows::new(&[row(1, BASE + day * DAY)])).unwrap();
    }
    let keeper = keeper_of(&disk, &store, &retention(2)).unwrap();
    let edits = Cell::new(0);
    keeper.apply(&|_| {
        edits.set(edits.get() + 1);
        false
    });
    assert_eq!((edits.get(), spans(&store).len()), (3, 2));
    let gauges = store.gauges();
    assert!(gauges.contains(&("tsd_parts_retention_dropped_spans_total", 198.0)), "{gauges:?}");
}

#[test]
fn a_clock_set_forward_by_years_drops_a_day_at_most() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    let start = i64::from(BASE + 100 * DAY);
    set_clock(start);
    store.flush(&mut TestRows::new(&days(100))).unwrap();
    let thirty = retention(30);
    let keeper = keeper_of(&disk, &store, &thirty).unwrap();
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 30);
    assert!(keeper.health().is_empty());
    // Before the clock jumps, a point comes in.
    apply_put(&keeper, &thirty, start);
    set_clock(start + 10 * YEAR);
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 29, "a day after the newest point");
    let health = keeper.health();
    assert_eq!(
        (health[0].component, health[0].impact),
        (StoreComponent::Retention, HealthImpact::Degraded)
    );
    assert!(health[0].reason.contains("hours ahead"), "{health:?}");
    // The allowances of several restarts do not add up.
    for _ in 0..50 {
        let disk = disk.after_kill();
        let store = Arc::new(try_open(&disk).unwrap());
        let keeper = keeper_of(&disk, &store, &retention(30)).unwrap();
        apply_now(&keeper);
        assert_eq!(spans(&store).len(), 29);
        assert_eq!(keeper.health().len(), 1);
    }
    // If the clock is set back, dropped rows stay hidden, and retention continues.
    set_clock(start + 60);
    apply_now(&keeper);
    assert!(keeper.health().is_empty());
    assert_eq!(thirty.cutoffs().oldest(), BASE + 71 * DAY);
    set_clock(start + 3 * i64::from(DAY));
    apply_put(&keeper, &thirty, start + 3 * i64::from(DAY));
    assert_eq!(spans(&store).len(), 27);
    set_clock(0);
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 27);
    assert_eq!(thirty.cutoffs().oldest(), BASE + 73 * DAY);
}

#[test]
fn points_after_the_clock_do_not_count_as_the_newest() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    let start = i64::from(BASE + 100 * DAY);
    set_clock(start);
    store.flush(&mut TestRows::new(&days(100))).unwrap();
    let thirty = retention(30);
    let keeper = keeper_of(&disk, &store, &thirty).unwrap();
    apply_put(&keeper, &thirty, start + YEAR);
    set_clock(start + 10 * YEAR);
    apply_now(&keeper);
    assert_eq!((spans(&store).len(), keeper.health().len()), (30, 1));
}

#[test]
fn a_first_start_with_a_wrong_clock_takes_the_time_of_the_newest_span() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    store.flush(&mut TestRows::new(&days(100))).unwrap();
    set_clock(i64::from(BASE) + 20 * YEAR);
    let keeper = keeper_of(&disk, &store, &retention(30)).unwrap();
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 30);
    assert_eq!(keeper.health().len(), 1);
}

#[test]
fn after_a_long_stop_retention_follows_the_next_point() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    let start = i64::from(BASE + 100 * DAY);
    set_clock(start);
    store.flush(&mut TestRows::new(&days(100))).unwrap();
    drop(keeper_of(&disk, &store, &retention(30)).unwrap());
    // The daemon was stopped for twenty days.
    let now = start + i64::from(20 * DAY);
    set_clock(now);
    let thirty = retention(30);
    let keeper = keeper_of(&disk, &store, &thirty).unwrap();
    apply_now(&keeper);
    assert_eq!((spans(&store).len(), keeper.health().len()), (30, 1));
    apply_put(&keeper, &thirty, now);
    assert_eq!((spans(&store).len(), keeper.health().len()), (10, 0));
}

#[test]
fn an_operator_may_say_that_the_clock_is_right() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    let start = i64::from(BASE + 100 * DAY);
    set_clock(start);
    store.flush(&mut TestRows::new(&days(100))).unwrap();
    drop(keeper_of(&disk, &store, &retention(30)).unwrap());
    // The daemon was stopped for twenty days.
    set_clock(start + i64::from(20 * DAY));
    let right = retention(30);
    right.accept_clock();
    let keeper = keeper_of(&disk, &store, &right).unwrap();
    apply_now(&keeper);
    assert_eq!((spans(&store).len(), keeper.health().len()), (10, 0));
}

#[test]
fn a_damaged_record_is_replaced_and_the_retention_may_be_removed() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    set_clock(i64::from(BASE + 10 * DAY));
    store.flush(&mut TestRows::new(&days(10))).unwrap();
    let keeper = keeper_of(&disk, &store, &retention(3)).unwrap();
    apply_now(&keeper);
    // Discarded rows stay hidden without a retention, and with a longer one.
    for rules in [None, Some(1_000 * u64::from(DAY))] {
        let rules = RetentionRules { rules: Vec::new(), default_secs: rules };
        let kept = Arc::new(Retention::new(&TableSchema::opentsdb_default(), rules));
        let keeper = keeper_of(&disk, &store, &kept).unwrap();
        apply_now(&keeper);
        assert_eq!(kept.cutoffs().oldest(), BASE + 7 * DAY);
        assert_eq!(spans(&store).len(), 3);
    }
    disk.flip("retention", 30, 1);
    let again = retention(4);
    let keeper = keeper_of(&disk, &store, &again).unwrap();
    assert_eq!(again.cutoffs().oldest(), BASE + 7 * DAY);
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 3);
    let text = disk.read("retention", 0, 100).unwrap();
    assert!(String::from_utf8(text).unwrap().contains(&format!("floor {}", BASE + 7 * DAY)));
}

#[test]
fn a_damaged_or_missing_record_is_found_and_written_anew() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    let findings = |verify: &dyn Fn(&VerifyRun)| {
        let run = VerifyRun::new(false);
        verify(&run);
        run.findings().into_iter().map(|finding| (finding.what, finding.action)).collect::<Vec<_>>()
    };
    let closed = || findings(&|run| verify_record(&disk, run).unwrap());
    assert_eq!(closed(), [], "nothing is recorded");
    set_clock(i64::from(BASE + 10 * DAY));
    store.flush(&mut TestRows::new(&days(10))).unwrap();
    let keeper = Arc::new(keeper_of(&disk, &store, &retention(3)).unwrap());
    let verifier = PartVerifier::new(std::collections::BTreeMap::new(), Some(Arc::clone(&keeper)));
    let open = || findings(&|run| verifier.verify(run).unwrap());
    let written = disk.read("retention", 0, 100).unwrap();
    assert_eq!((open(), closed()), (vec![], vec![]));
    let wrong = "its checksum is wrong".to_owned();
    disk.flip("retention", 30, 1);
    assert_eq!(closed(), [(wrong.clone(), None)]);
    assert_eq!(open(), [(wrong, Some(RepairAction::RewriteRetention))]);
    verifier.repair(&RepairAction::RewriteRetention).unwrap();
    assert_eq!(open(), []);
    disk.remove("retention").unwrap();
    assert_eq!(open().len(), 1);
    verifier.repair(&RepairAction::RewriteRetention).unwrap();
    assert_eq!(disk.read("retention", 0, 100).unwrap(), written);
}

#[test]
fn quarantined_spans_leave_quarantine_when_they_expire() {
    let disk = FaultyDisk::new(1);
    let store = try_open(&disk).unwrap();
    set_clock(i64::from(BASE + 10 * DAY));
    store.flush(&mut TestRows::new(&days(10))).unwrap();
    store.flush(&mut TestRows::new(&[row(2, BASE)])).unwrap();
    drop(store);
    for name in part_files(&disk) {
        disk.edit(&name, |bytes| bytes.truncate(bytes.len() - 1));
    }
    let store = Arc::new(try_open(&disk).unwrap());
    assert_eq!(store.quarantined().len(), 2);
    assert_eq!(store.snapshot().lost().len(), 10);
    let retention = retention(3);
    let keeper = keeper_of(&disk, &store, &retention).unwrap();
    // No span shows the time, so the clock counts.
    apply_now(&keeper);
    let left = store.quarantined();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].spans, (7..10).map(|day| BASE + day * DAY).collect::<Vec<_>>());
    set_clock(i64::from(BASE + 14 * DAY));
    apply_put(&keeper, &retention, i64::from(BASE + 14 * DAY));
    assert!(store.quarantined().is_empty() && store.snapshot().lost().is_empty());
    assert!(store.health().is_empty());
    drop((keeper, store));
    let files: Vec<String> = disk.all_contents().into_keys().collect();
    assert!(!files.iter().any(|name| name.contains(".part")), "{files:?}");
    let store = try_open(&disk).unwrap();
    assert!(store.quarantined().is_empty());
}

#[test]
fn a_snapshot_keeps_the_files_of_dropped_spans_until_it_has_linked_them() {
    let disk = FaultyDisk::new(1);
    let store = try_open(&disk).unwrap();
    // One file with live and quarantined sections, and one file with live sections only.
    store.flush(&mut TestRows::new(&days(3))).unwrap();
    store.flush(&mut TestRows::new(&[row(2, BASE)])).unwrap();
    let files = live_files(&store);
    assert!(store.quarantine_section(1, 0, "test").unwrap());
    assert_eq!(live_files(&store), files);
    let pinned = store.pin_files();
    let dropped = store.drop_expired(BASE + 10 * DAY).unwrap();
    assert_eq!((dropped.spans, dropped.quarantined), (3, 1));
    assert!(spans(&store).is_empty() && store.quarantined().is_empty());
    assert_eq!(part_files(&disk), files, "a snapshot links them");
    drop(pinned);
    assert!(part_files(&disk).is_empty());
}

#[test]
fn spans_are_dropped_on_a_full_disk() {
    let disk = FaultyDisk::new(1);
    set_clock(i64::from(BASE + 10 * DAY));
    let space = DiskSpace::with_probe("/data", 8 << 20, || Ok(4 << 20));
    let store = Arc::new(try_open(&disk).unwrap());
    store.flush(&mut TestRows::new(&days(10))).unwrap();
    drop(store);
    let full = PartStore::open(Arc::new(disk.clone()), config(space)).unwrap();
    let store = Arc::new(full);
    let refused = store.flush(&mut TestRows::new(&[row(1, BASE + 9 * DAY)]));
    assert!(matches!(refused, Err(PartError::DiskFull)), "{refused:?}");
    let three = retention(3);
    let keeper = keeper_of(&disk, &store, &three).unwrap();
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 3);
    // On a full disk, no span is dropped, and health reports it until there is space.
    set_clock(i64::from(BASE + 11 * DAY));
    disk.set_free_bytes(Some(0));
    apply_put(&keeper, &three, i64::from(BASE + 11 * DAY));
    assert_eq!(spans(&store).len(), 3);
    assert!(keeper.health()[0].reason.contains("retention"), "{:?}", keeper.health());
    disk.set_free_bytes(None);
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 2);
    assert!(keeper.health().is_empty());
}

/// Metric 1 is `long`; metric 2 is `short` and kept for a day.
#[test]
fn an_index_that_cannot_be_written_is_reclaimed_later_and_named_until_then() {
    set_clock(i64::from(BASE + 40 * DAY));
    let open = |index: &FaultyDisk| {
        let store = Arc::new(try_open(&FaultyDisk::new(1)).unwrap());
        let (dir, schema) = (Arc::new(index.clone()), TableSchema::opentsdb_default());
        let series = TableSeries::open(dir, store.table(), schema, true).unwrap();
        // Each day has its own series.
        let rows: Vec<TestRow> = (0..40).map(|day| row(day as u8, BASE + day * DAY)).collect();
        series.index.add_rows(rows.iter().map(|row| &row.key[..]));
        series.persist().unwrap();
        store.flush(&mut TestRows::new(&rows)).unwrap();
        RetainedTable { store, series: Some(Arc::new(series)), row_secs: HOUR }
    };
    let indexes = [FaultyDisk::new(1), FaultyDisk::new(2)];
    let tables = indexes.each_ref().map(open);
    let dir = Arc::new(FaultyDisk::new(3));
    let keeper = RetentionKeeper::open(retention(10), dir, clock, tables.to_vec()).unwrap();
    indexes[0].set_free_bytes(Some(0));
    // The index of the second table is written.
    for _ in 0..2 {
        assert!(keeper.apply(&|_| false));
        let health = keeper.health();
        assert_eq!(health.len(), 1, "{health:?}");
        assert!(health[0].reason.contains("removing series of table tsdb"), "{health:?}");
    }
    indexes[0].set_free_bytes(None);
    assert!(keeper.apply(&|_| false));
    assert_eq!(keeper.health(), []);
    for (index, table) in indexes.iter().zip(&tables) {
        let (dir, schema) = (Arc::new(index.clone()), TableSchema::opentsdb_default());
        let stored = TableSeries::open(dir, table.store.table(), schema, false).unwrap();
        assert_eq!((stored.index.size().series, stored.index.is_complete()), (10, true));
    }
}

fn retention_by_metric(default_days: Option<u64>) -> Arc<Retention> {
    let day = Some(u64::from(DAY));
    let rules = vec![RetentionRule { pattern: MetricPattern::new("sh*"), keep_secs: day }];
    let default_secs = default_days.map(|days| days * u64::from(DAY));
    let rules = RetentionRules { rules, default_secs };
    let retention = Retention::new(&TableSchema::opentsdb_default(), rules);
    retention.learn(&[0, 0, 1], b"long");
    retention.learn(&[0, 0, 2], b"short");
    Arc::new(retention)
}

fn key_of(metric: u8, series: u8, base: u32) -> Vec<u8> {
    let mut key = key(series, base);
    key[2] = metric;
    key
}

/// Runs all due merges; returns their number.
fn merge_steps(store: &PartStore) -> u64 {
    let before = store.stats().merges;
    while store.merge_step(&mut || Ok(())).unwrap() {}
    store.stats().merges - before
}

#[test]
fn merges_remove_the_series_of_metrics_with_a_shorter_retention() {
    set_clock(i64::from(BASE + 10 * DAY));
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    for day in 0..10 {
        let base = BASE + day * DAY;
        let mut rows = vec![TestRow { key: key_of(2, 1, base), ..row(1, base) }];
        // Three days have only the short metric, in two sections each.
        if day >= 3 {
            rows.insert(0, row(1, base));
        }
        store.flush(&mut TestRows::new(&rows)).unwrap();
        rows[0].key = key_of(rows[0].key[2], 3, base);
        store.flush(&mut TestRows::new(&rows[..1])).unwrap();
    }
    assert_eq!(merge_steps(&store), 0);
    let retention = retention_by_metric(None);
    store.set_retention(Arc::clone(&retention), HOUR);
    let keeper = keeper_of(&disk, &store, &retention).unwrap();
    apply_now(&keeper);
    assert_eq!(spans(&store).len(), 10, "whole spans are kept for ever");
    assert_eq!(merge_steps(&store), 9);
    assert_eq!(merge_steps(&store), 0, "what was looked at once is not again");
    assert_eq!(spans(&store), (3..10).map(|day| BASE + day * DAY).collect::<Vec<_>>());
    let has = |metric: u8| {
        let rows = read_rows(&store, &SeriesSelection::All);
        rows.keys().filter(|key| key[2] == metric).count()
    };
    assert_eq!((has(1), has(2)), (14, 1));
    // A late row, for example from a memtable.
    let late = TestRow { key: key_of(2, 9, BASE + 5 * DAY), ..row(1, BASE) };
    store.flush(&mut TestRows::new(&[late])).unwrap();
    assert_eq!(merge_steps(&store), 1);
    assert_eq!((has(1), has(2)), (14, 1));
    // A metric with an unknown name has the longest retention.
    let unknown = TestRow { key: key_of(3, 9, BASE + 5 * DAY), ..row(1, BASE) };
    store.flush(&mut TestRows::new(&[unknown])).unwrap();
    assert_eq!((merge_steps(&store), has(3)), (0, 1));
    retention.learn(&[0, 0, 3], b"shy");
    assert_eq!((merge_steps(&store), has(3)), (1, 0));
    // A span with a loss stays unchanged.
    let late = TestRow { key: key_of(2, 9, BASE + 6 * DAY), ..row(1, BASE) };
    store.flush(&mut TestRows::new(&[late])).unwrap();
    let newest = live_files(&store).pop().unwrap();
    let damage = PartError::Damaged {
        file: disk.path().join(newest).display().to_string().into(),
        offset: 0,
        what: "test",
    };
    assert!(store.quarantine(&damage).unwrap());
    assert_eq!(merge_steps(&store), 0);
}

#[test]
fn tables_of_the_store_are_named_to_the_retention() {
    let disk = FaultyDisk::new(1);
    let store = Arc::new(try_open(&disk).unwrap());
    let retention = retention(3);
    set_clock(i64::from(BASE));
    keeper_of(&disk, &store, &retention).unwrap();
    assert_eq!(retention.row_secs(&Table::new("tsdb")), Some(HOUR));
    assert_eq!(retention.row_secs(&Table::new("tsdb-uid")), None);
}
