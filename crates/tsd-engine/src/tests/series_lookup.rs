//! Look-ups of series that an engine has stored.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tsd_model::{BaseTime, Family, TS_META_QUALIFIER, TableSchema, UidKind};
use tsd_query::{LimitError, LookupStep, MissingName, QueryError, SeriesError};
use tsd_read::testing::lookup_of_rows;
use tsd_storage::{CellBatch, CellRef, Column, Delete, Fault, Operation, StorageExt};

use crate::{
    EngineHandle, Lookup, QueryControl, QueryFailure,
    testing::{TestStore, config, put_one, start, store},
    uid::UidTable,
};

const HOUR: i64 = 1_356_998_400;

/// Four series, one of them with points in two hours.
async fn filled(salt_width: usize) -> (Arc<TestStore>, EngineHandle) {
    let store = store();
    let mut settings = config();
    settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
    let engine = start(settings, &store);
    for (metric, tags, at) in [
        ("m", "host=a dc=x", HOUR),
        ("m", "host=a dc=x", HOUR + 3_600),
        ("m", "host=b dc=x", HOUR),
        ("m", "host=c dc=y", HOUR),
        ("n", "host=a", HOUR),
    ] {
        put_one(&engine, metric, tags, at, 1).await.unwrap();
    }
    (store, engine)
}

/// Writes the meta rows that series tracking creates. Values `a`, `x`, `b`, `c`, `y` are 1 to
/// 5.
async fn track(store: &TestStore) {
    let meta = crate::EngineConfig::default().tables.meta;
    for tsuid in [
        &[0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2][..],
        &[0, 0, 1, 0, 0, 1, 0, 0, 3, 0, 0, 2, 0, 0, 2],
        &[0, 0, 1, 0, 0, 1, 0, 0, 4, 0, 0, 2, 0, 0, 5],
        &[0, 0, 2, 0, 0, 1, 0, 0, 1],
        b"no key",
    ] {
        let cell = CellRef {
            family: Family::Name,
            qualifier: TS_META_QUALIFIER.as_bytes(),
            value: b"{}",
            timestamp_ms: None,
        };
        store.put(&meta, CellBatch::single(tsuid, cell).unwrap()).await.unwrap();
    }
}

fn lookup_of(metric: &str, tags: &str) -> Lookup {
    let word = |word: &str| Some(word.to_owned()).filter(|word| !word.is_empty());
    let tags = tags
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(tagk, tagv)| (word(tagk), word(tagv)))
        .collect();
    Lookup { metric: word(metric), tags, use_meta: Some(true), ..Lookup::default() }
}

async fn found(engine: &EngineHandle, lookup: Lookup) -> Vec<String> {
    let (answer, _guard) = engine.reads().lookup(lookup, QueryControl::default()).await.unwrap();
    answer
        .series
        .iter()
        .map(|series| {
            assert_eq!(series.tsuid.len(), 3 + 6 * series.tags.len());
            let tags: Vec<_> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("{}{{{}}}", series.metric, tags.join(","))
        })
        .collect()
}

const A: &str = "m{host=a,dc=x}";
const B: &str = "m{host=b,dc=x}";
const C: &str = "m{host=c,dc=y}";
const N: &str = "n{host=a}";

#[tokio::test]
async fn meta_table_lists_each_series_once() {
    for salt_width in [0, 1] {
        let (store, engine) = filled(salt_width).await;
        assert!(found(&engine, lookup_of("m", "")).await.is_empty(), "no series was tracked");
        track(&store).await;
        for (metric, tags, expected) in [
            ("", "", &[A, B, C, N][..]),
            ("*", "", &[A, B, C, N]),
            ("m", "", &[A, B, C]),
            ("m", "host=a", &[A]),
            ("", "host=a", &[A, N]),
            ("m", "host=a host=c", &[A, C]),
            ("m", "host=a host=c dc=x", &[A]),
            ("", "dc=", &[A, B, C]),
            ("", "dc=x dc=*", &[A, B, C]),
            ("", "dc=* dc=x", &[A, B, C]),
            ("m", "*=x", &[A, B]),
            ("", "=y =b", &[B, C]),
            ("", "=a dc=", &[A]),
            ("n", "dc=x", &[]),
        ] {
            assert_eq!(
                found(&engine, lookup_of(metric, tags)).await,
                expected,
                "{metric}{{{tags}}}"
            );
        }
        assert_eq!(found(&engine, Lookup { limit: 2, ..lookup_of("", "") }).await, [A, B]);
        assert_eq!(found(&engine, Lookup { limit: 0, ..lookup_of("", "") }).await, [A, B, C, N]);
    }
}

#[tokio::test]
async fn data_table_lists_each_series_once() {
    for salt_width in [0, 1] {
        let (_store, engine) = filled(salt_width).await;
        let list = async |metric, tags, limit| {
            let lookup = Lookup { use_meta: Some(false), limit, ..lookup_of(metric, tags) };
            let mut found = found(&engine, lookup).await;
            found.sort();
            found
        };
        assert_eq!(list("", "", 0).await, [A, B, C, N]);
        assert_eq!(list("m", "=x", 0).await, [A, B]);
        assert_eq!(list("m", "host=a host=b", 0).await, [A, B]);
        assert_eq!(list("m", "host=a", 1).await, [A]);
        for limit in 1..=5 {
            assert_eq!(list("", "", limit).await.len(), limit.min(4), "limit {limit}");
        }
    }
}

#[tokio::test]
async fn unknown_names_and_uids_are_not_found() {
    let (store, engine) = filled(0).await;
    track(&store).await;
    let rejected = async |lookup| match engine.reads().lookup(lookup, QueryControl::default()).await
    {
        Err(QueryFailure::Rejected(QueryError::Series(error))) => error,
        other => panic!("{other:?}"),
    };
    for (metric, tags, kind, name) in [
        ("zz", "", UidKind::Metric, "zz"),
        ("m", "zz=", UidKind::Tagk, "zz"),
        ("m", "host=a|b", UidKind::Tagv, "a|b"),
        ("", "=zz", UidKind::Tagv, "zz"),
    ] {
        let missing = MissingName::Name { kind, name: name.to_owned() };
        let unknown = SeriesError::NotFound { lookup: LookupStep::Names, missing };
        assert_eq!(rejected(lookup_of(metric, tags)).await, unknown);
    }
    for tags in ["=", "*=", "*=*"] {
        assert_eq!(rejected(lookup_of("m", tags)).await, SeriesError::EmptyLookupTag);
    }
    let uid = engine.uids().uid_of(UidKind::Tagv, "y").await.unwrap();
    let Column { row, family, qualifier } = UidTable::reverse(UidKind::Tagv, uid);
    let delete = Delete::Columns { row, columns: vec![(family, qualifier)] };
    store.delete(&engine.config().tables.uid, delete).await.unwrap();
    engine.drop_caches();
    let missing = MissingName::Uid { kind: UidKind::Tagv, uid: uid.as_bytes().to_vec() };
    let unknown = SeriesError::NotFound { lookup: LookupStep::Tsuids, missing };
    assert_eq!(rejected(lookup_of("m", "")).await, unknown);
    let skips = Lookup { skips_unnamed: true, ..lookup_of("m", "") };
    let (listed, _guard) =
        engine.reads().lookup(skips.clone(), QueryControl::default()).await.unwrap();
    let unnamed: Vec<_> = listed.unnamed.iter().map(|series| &series.uid).collect();
    assert_eq!(unnamed, [&(UidKind::Tagv, uid.as_bytes().to_vec())]);
    assert_eq!(found(&engine, skips).await, [A, B]);
}

#[tokio::test]
async fn look_up_over_the_memory_limit_is_rejected() {
    let store = store();
    let mut settings = config();
    settings.query.max_memory_bytes = 700 + 1_024;
    let engine = start(settings, &store);
    for host in ["a", "b", "c"] {
        put_one(&engine, "m", &format!("host={host}"), HOUR, 1).await.unwrap();
    }
    let all = Lookup { use_meta: Some(false), limit: 0, ..lookup_of("m", "") };
    match engine.reads().lookup(all.clone(), QueryControl::default()).await {
        Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. }))) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(found(&engine, Lookup { limit: 2, ..all }).await.len(), 2);
}

#[tokio::test]
async fn tags_of_a_look_up_and_names_of_its_result_are_reserved() {
    let store = store();
    let mut settings = config();
    settings.query.max_memory_bytes = 3_500 + 1_024;
    let engine = start(settings, &store);
    let long = "v".repeat(1_000);
    for host in 0..3 {
        put_one(&engine, "m", &format!("host={host}{long}"), HOUR, 1).await.unwrap();
    }
    let of = |limit| Lookup { use_meta: Some(false), limit, ..lookup_of("m", "") };
    let too_large =
        async |lookup| match engine.reads().lookup(lookup, QueryControl::default()).await {
            Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. }))) => {}
            other => panic!("{other:?}"),
        };
    assert_eq!(found(&engine, of(2)).await.len(), 2);
    too_large(of(3)).await;
    let tags = vec![(Some("host".to_owned()), Some("a".to_owned())); 30];
    too_large(Lookup { tags, ..of(1) }).await;
}

#[tokio::test]
async fn look_up_is_listed_and_can_be_cancelled() {
    let (store, engine) = filled(0).await;
    store.script(Operation::ScanBatch, vec![Fault::Delay(Duration::from_mins(1)); 8]);
    let all = Lookup { use_meta: Some(false), limit: 0, ..lookup_of("m", "") };
    let request = tokio::spawn({
        let engine = engine.clone();
        async move { engine.reads().lookup(all, QueryControl::default()).await }
    });
    let id = loop {
        if let Some(run) = engine.reads().queries().await.running.first() {
            break run.id;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    assert!(engine.reads().cancel_query(id));
    assert!(matches!(request.await.unwrap(), Err(QueryFailure::CancelledByOperator)));
    assert!(engine.reads().queries().await.running.is_empty());
}

#[tokio::test]
async fn pages_are_disjoint_and_complete() {
    for salt_width in [0, 1] {
        let (store, engine) = filled(salt_width).await;
        track(&store).await;
        for use_meta in [Some(true), Some(false)] {
            let page = async |start_index, limit| {
                let lookup = Lookup { start_index, limit, use_meta, ..lookup_of("", "") };
                found(&engine, lookup).await
            };
            let all = page(0, 0).await;
            assert_eq!(all.len(), 4);
            let mut pages = Vec::new();
            for start_index in 0..6 {
                pages.extend(page(start_index, 1).await);
            }
            assert_eq!(pages, all, "{use_meta:?}");
            assert_eq!(page(1, 0).await, all.get(1..).unwrap());
            assert_eq!(page(3, 5).await, all.get(3..).unwrap());
            assert!(page(usize::MAX, 2).await.is_empty());
        }
    }
}

#[tokio::test]
async fn a_range_of_time_selects_series_by_their_rows() {
    for salt_width in [0, 1] {
        let (store, engine) = filled(salt_width).await;
        track(&store).await;
        let list = async |metric, from, to| {
            let hour = |secs: i64| BaseTime::containing(u32::try_from(secs).unwrap());
            let range = Some((hour(from), hour(to)));
            // The meta table does not know when series have rows.
            let mut found = found(&engine, Lookup { range, ..lookup_of(metric, "") }).await;
            found.sort();
            found
        };
        assert_eq!(list("m", HOUR + 3_600, HOUR + 7_200).await, [A]);
        assert_eq!(list("", HOUR + 3_599, HOUR + 3_599).await, [A, B, C, N]);
        assert_eq!(list("m", 0, i64::from(u32::MAX)).await, [A, B, C]);
        assert!(list("", HOUR + 7_200, HOUR + 9_000).await.is_empty());
        assert!(list("m", 0, HOUR - 1).await.is_empty());
    }
}

#[tokio::test]
async fn series_that_nothing_tracks_are_found_without_being_asked_where() {
    let store = store();
    let mut settings = config();
    settings.multi_writer = true;
    let engine = start(settings, &store);
    put_one(&engine, "m", "host=a dc=x", HOUR, 1).await.unwrap();
    let anywhere = Lookup { use_meta: None, ..lookup_of("m", "") };
    assert_eq!(found(&engine, anywhere.clone()).await, [A]);
    assert!(found(&engine, lookup_of("m", "")).await.is_empty());
    // Series that another daemon tracks are listed as they are.
    put_one(&engine, "m", "host=b dc=x", HOUR, 1).await.unwrap();
    track(&store).await;
    put_one(&engine, "m", "host=c dc=y", HOUR, 1).await.unwrap();
    assert_eq!(found(&engine, anywhere).await, [A, B, C]);
}

#[tokio::test]
async fn scan_of_too_many_rows_is_refused() {
    let (_store, engine) = filled(0).await;
    let all = Lookup { use_meta: Some(false), limit: 0, ..lookup_of("m", "") };
    let within = async |max_rows| {
        let found = lookup_of_rows(engine.reads(), all.clone(), max_rows).await;
        found.map(|(found, _guard)| found.series.len())
    };
    assert!(matches!(within(4).await, Ok(3)));
    match within(3).await {
        Err(QueryFailure::Rejected(QueryError::Limit(error))) => {
            assert_eq!(error, LimitError::LookupRows { limit: 3 });
        }
        other => panic!("{other:?}"),
    }
}
