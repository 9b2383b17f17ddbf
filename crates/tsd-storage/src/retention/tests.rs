#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::{CellBatch, CellRef, Delete, Get, MemoryStorage, Scan, Storage, StorageExt};

const HOUR: u32 = 3_600;
const DAY: u32 = 24 * HOUR;

fn rule(pattern: &str, keep_secs: Option<u64>) -> RetentionRule {
    RetentionRule { pattern: MetricPattern::new(pattern), keep_secs }
}

fn retention(default_days: Option<u64>, rules: Vec<RetentionRule>) -> Retention {
    let default_secs = default_days.map(|days| days * u64::from(DAY));
    let rules = RetentionRules { rules, default_secs };
    let retention = Retention::new(&TableSchema::opentsdb_default(), rules);
    retention.add_table(Table::new("tsdb"), HOUR);
    retention
}

fn key(metric: u8, base: u32) -> Vec<u8> {
    [&[0, 0, metric][..], &base.to_be_bytes(), &[0, 0, 1, 0, 0, 1]].concat()
}

#[test]
fn cut_offs_are_hours_and_never_before_the_floor() {
    let retention = retention(Some(1), Vec::new());
    assert_eq!(retention.cutoffs().of_metric(&[0, 0, 1]), 0);
    retention.advance(10 * DAY + 100, 0);
    assert_eq!(retention.cutoffs().of_metric(&[0, 0, 1]), 9 * DAY);
    retention.advance(10 * DAY + 100, 9 * DAY);
    retention.advance(5 * DAY, 0);
    assert_eq!(retention.cutoffs().of_metric(&[0, 0, 1]), 9 * DAY);
    assert_eq!(retention.check_put(&key(1, 0), 9 * DAY), Ok(()));
    assert_eq!(retention.check_put(&key(1, 0), 9 * DAY - 1), Err(9 * DAY));
    assert_eq!(retention.refused(), 1);
}

#[test]
fn the_first_rule_that_matches_applies_and_names_may_come_later() {
    let week = Some(7 * u64::from(DAY));
    let rules = vec![rule("a.b", None), rule("a.*", week), rule("long", Some(1_000_000_000))];
    let retention = retention(Some(30), rules);
    retention.advance(1_000 * DAY, 0);
    let cutoff = |metric: u8| retention.cutoffs().of_metric(&[0, 0, metric]);
    // An unknown metric has the longest retention.
    assert_eq!(cutoff(1), 0);
    for (metric, name) in [(1, "a.b"), (2, "a.c"), (3, "b"), (4, "long")] {
        retention.learn(&[0, 0, metric], name.as_bytes());
    }
    assert_eq!([cutoff(1), cutoff(2), cutoff(3), cutoff(4)], [0, 993 * DAY, 970 * DAY, 0]);
    assert_eq!(retention.rules().longest_secs(), None);
    assert_eq!(retention.rules().shortest_secs(), week);
    let later = retention.cutoffs().later_metrics();
    assert_eq!(later, [([0, 0, 2].into(), 993 * DAY), ([0, 0, 3].into(), 970 * DAY)]);
    retention.set_rules(vec![rule("b", Some(u64::from(DAY)))]);
    assert_eq!([cutoff(1), cutoff(2), cutoff(3)], [970 * DAY, 970 * DAY, 999 * DAY]);
    // Renamed.
    retention.learn(&[0, 0, 3], b"c");
    assert_eq!(cutoff(3), 970 * DAY);
}

#[test]
fn a_longer_row_is_expired_when_all_of_its_time_is() {
    let retention = retention(Some(1), Vec::new());
    retention.advance(10 * DAY, 0);
    let cutoffs = retention.cutoffs();
    let expired = |row_secs, base| retention.is_expired(&cutoffs, row_secs, &key(1, base));
    assert!(expired(HOUR, 9 * DAY - HOUR) && !expired(HOUR, 9 * DAY));
    assert!(expired(DAY, 8 * DAY) && !expired(DAY, 8 * DAY + HOUR));
    assert!(!retention.is_expired(&cutoffs, HOUR, b"short"));
}

async fn rows_of(store: &RetainedStorage<MemoryStorage>, scan: Scan) -> Vec<Vec<u8>> {
    let table = Table::new("tsdb");
    let mut scanner = store.scan(&table, scan);
    let mut keys = Vec::new();
    while let Some(rows) = scanner.next_rows().await.unwrap() {
        assert!(!rows.is_empty());
        keys.extend(rows.into_iter().map(|row| row.key.to_vec()));
    }
    keys
}

#[tokio::test]
async fn reads_of_every_kind_lack_expired_rows() {
    let (table, small) = (Table::new("tsdb"), Table::new("uid"));
    let inner = Arc::new(MemoryStorage::new([table.clone(), small.clone()]));
    let rules = vec![rule("short", Some(u64::from(DAY)))];
    let retention = Arc::new(retention(Some(3), rules));
    retention.learn(&[0, 0, 2], b"short");
    retention.learn(&[0, 0, 1], b"other");
    let store = RetainedStorage::new(Arc::clone(&retention), inner);
    let cell = || CellRef {
        family: tsd_model::Family::T,
        qualifier: &[0, 0],
        value: &[1],
        timestamp_ms: None,
    };
    let mut all = vec![b"short".to_vec()];
    for metric in 1..=3 {
        all.extend((0..10).map(|day| key(metric, day * DAY)));
    }
    all.sort();
    for key in &all {
        for table in [&table, &small] {
            store.put(table, CellBatch::single(key, cell()).unwrap()).await.unwrap();
        }
    }
    assert_eq!(rows_of(&store, Scan::default()).await, all);
    retention.advance(10 * DAY, 0);
    let is_live = |key: &&Vec<u8>| {
        let first = |metric: u8| if metric == 2 { 9 * DAY } else { 7 * DAY };
        key.len() < 13 || key[3..7] >= first(key[2]).to_be_bytes()[..]
    };
    let live: Vec<Vec<u8>> = all.iter().filter(is_live).cloned().collect();
    assert_eq!(live.len(), 1 + 3 + 1 + 3);
    assert_eq!(rows_of(&store, Scan::default()).await, live);
    // A limit counts the returned rows.
    let limited = Scan { limit: Some(2), ..Scan::default() };
    assert_eq!(rows_of(&store, limited).await, live[..2]);
    for metric in 1..=3_u8 {
        let range = Scan {
            start: vec![0, 0, metric].into(),
            stop: vec![0, 0, metric + 1].into(),
            ..Scan::default()
        };
        let expected: Vec<_> =
            live.iter().filter(|key| key[..3] == [0, 0, metric]).cloned().collect();
        assert_eq!(rows_of(&store, range).await, expected);
        let old = Scan {
            start: key(metric, 0).into(),
            stop: key(metric, 5 * DAY).into(),
            ..Scan::default()
        };
        assert!(rows_of(&store, old).await.is_empty());
    }
    let gets = all.iter().map(|key| Get::row(key.clone().into())).collect();
    let found = store.multi_get(&table, gets).await.unwrap();
    for (key, row) in all.iter().zip(found) {
        assert_eq!(row.is_some(), is_live(&key));
        let one = store.get(&table, Get::row(key.clone().into())).await.unwrap();
        assert_eq!(one.is_some(), is_live(&key));
        // Tables without points keep everything.
        assert!(store.get(&small, Get::row(key.clone().into())).await.unwrap().is_some());
    }
    store.delete(&table, Delete::Row(key(1, 0).into())).await.unwrap();
}

#[test]
fn the_newest_put_is_not_after_the_clock() {
    let retention = retention(Some(1), Vec::new());
    retention.check_put(&key(1, 0), DAY).unwrap();
    assert_eq!(retention.newest_put(10 * DAY), 0, "the clock was not read before");
    for time in [9 * DAY, 11 * DAY, 8 * DAY] {
        retention.check_put(&key(1, 0), time).unwrap();
    }
    assert_eq!(retention.newest_put(10 * DAY), 9 * DAY);
}
