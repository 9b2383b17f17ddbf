#![expect(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tsd_model::{TS_META_QUALIFIER, TableSchema};
use tsd_storage::{CellBatch, CellRef, Fault, Operation, Storage};

use super::*;
use crate::testing::{TestStore, config, put_one, start, store};

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

/// Writes what a daemon that tracks series does. Values `a`, `x`, `b`, `c`, `y` are 1 to 5.
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

fn asked(metric: &str, tags: &str) -> Lookup {
    let word = |word: &str| Some(word.to_owned()).filter(|word| !word.is_empty());
    let tags = tags
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(tagk, tagv)| (word(tagk), word(tagv)))
        .collect();
    Lookup { metric: word(metric), tags, ..Lookup::default() }
}

async fn found(engine: &EngineHandle, lookup: Lookup) -> Vec<String> {
    let (answer, _guard) = engine.lookup(lookup, QueryControl::default()).await.unwrap();
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
async fn the_meta_table_lists_series_once() {
    for salt_width in [0, 1] {
        let (store, engine) = filled(salt_width).await;
        assert!(found(&engine, asked("m", "")).await.is_empty(), "no series was tracked");
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
            assert_eq!(found(&engine, asked(metric, tags)).await, expected, "{metric}{{{tags}}}");
        }
        assert_eq!(found(&engine, Lookup { limit: 2, ..asked("", "") }).await, [A, B]);
        assert_eq!(found(&engine, Lookup { limit: 0, ..asked("", "") }).await, [A, B, C, N]);
    }
}

#[tokio::test]
async fn the_data_table_lists_series_once_whatever_their_hours() {
    for salt_width in [0, 1] {
        let (_store, engine) = filled(salt_width).await;
        let list = async |metric, tags, limit| {
            let lookup = Lookup { use_meta: false, limit, ..asked(metric, tags) };
            let mut found = found(&engine, lookup).await;
            found.sort();
            found
        };
        assert_eq!(list("", "", 0).await, [A, B, C, N]);
        assert_eq!(list("m", "=x", 0).await, [A, B]);
        assert_eq!(list("m", "host=a host=b", 0).await, [A, B]);
        // A share of a bucket is at least one.
        let limited = list("m", "host=a", 1).await;
        assert_eq!(limited, [A]);
        assert_eq!(list("", "", 1).await.len(), if salt_width == 0 { 1 } else { 4 });
    }
}

#[tokio::test]
async fn what_nobody_knows_is_not_found() {
    let (store, engine) = filled(0).await;
    track(&store).await;
    let refused = async |lookup| match engine.lookup(lookup, QueryControl::default()).await {
        Err(QueryFailure::Refused(error)) => (error.class.status(), error.message),
        other => panic!("{other:?}"),
    };
    let unknown = (404, "Unable to resolve one or more UIDs".to_owned());
    for (metric, tags) in [("zz", ""), ("m", "zz="), ("m", "host=a|b"), ("", "=zz")] {
        assert_eq!(refused(asked(metric, tags)).await, unknown);
    }
    for tags in ["=", "*=", "*=*"] {
        assert_eq!(refused(asked("m", tags)).await, (400, "Unable to parse query".to_owned()));
    }
    engine.delete_uid(UidKind::Tagv, "y").await.unwrap();
    engine.drop_caches();
    let unknown = (404, "Unable to resolve one or more TSUIDs".to_owned());
    assert_eq!(refused(asked("m", "")).await, unknown);
}

#[tokio::test]
async fn more_series_than_memory_allows_are_refused() {
    let store = store();
    let mut settings = config();
    settings.query.max_memory_bytes = 1_100;
    let engine = start(settings, &store);
    for host in ["a", "b", "c"] {
        put_one(&engine, "m", &format!("host={host}"), HOUR, 1).await.unwrap();
    }
    let all = Lookup { use_meta: false, limit: 0, ..asked("m", "") };
    match engine.lookup(all.clone(), QueryControl::default()).await {
        Err(QueryFailure::Refused(error)) => assert_eq!(error.class.status(), 413),
        other => panic!("{other:?}"),
    }
    assert_eq!(found(&engine, Lookup { limit: 2, ..all }).await.len(), 2);
}

#[tokio::test]
async fn a_look_up_is_a_query_that_can_be_seen_and_cancelled() {
    let (store, engine) = filled(0).await;
    store.script(Operation::ScanBatch, vec![Fault::Delay(Duration::from_mins(1)); 8]);
    let all = Lookup { use_meta: false, limit: 0, ..asked("m", "") };
    let asking = tokio::spawn({
        let engine = engine.clone();
        async move { engine.lookup(all, QueryControl::default()).await }
    });
    let id = loop {
        if let Some(run) = engine.queries().running.first() {
            break run.id;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    assert!(engine.cancel_query(id));
    assert!(matches!(asking.await.unwrap(), Err(QueryFailure::Stopped)));
    assert!(engine.queries().running.is_empty());
}
