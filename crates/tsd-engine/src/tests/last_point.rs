//! Tests of the last points of series.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tsd_model::{Family, TS_COUNTER_QUALIFIER, TableSchema, UidKind, Value};
use tsd_query::{LimitError, QueryError, SeriesError};
use tsd_storage::{CellBatch, CellRef, Fault, Operation, StorageError, StorageExt};

use crate::{
    EngineConfig, EngineHandle, LastQuery, LastSeries, QueryControl, QueryFailure,
    testing::{ManualClock, TestStore, config, put_one, start, store},
};

const NOW: i64 = 1_356_998_400;

fn settings(salt_width: usize) -> EngineConfig {
    let mut settings = config();
    settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
    settings.clock = ManualClock::at_secs(NOW + 1_800);
    settings
}

/// Points of two series of `m`: an hour and four hours ago.
async fn filled(salt_width: usize) -> (Arc<TestStore>, EngineHandle) {
    let store = store();
    let engine = start(settings(salt_width), &store);
    put_one(&engine, "m", "host=a dc=x", NOW - 3_600, 1).await.unwrap();
    put_one(&engine, "m", "host=a dc=x", NOW - 3_520, 2).await.unwrap();
    put_one(&engine, "m", "host=b dc=x", NOW - 4 * 3_600, 3).await.unwrap();
    (store, engine)
}

fn by_names(tags: &[(&str, &str)]) -> LastSeries {
    let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    LastSeries::Metric { metric: "m".to_owned(), tags }
}

fn tsuid(host: u8) -> Vec<u8> {
    vec![0, 0, 1, 0, 0, 1, 0, 0, host, 0, 0, 2, 0, 0, 2]
}

async fn last(
    engine: &EngineHandle,
    series: &[LastSeries],
    back_scan_hours: u32,
) -> Vec<(i64, Value)> {
    let query = LastQuery { series: series.to_vec(), back_scan_hours, resolve: false };
    let (points, _guard) =
        engine.reads().last_points(query, QueryControl::default()).await.unwrap();
    points.into_iter().map(|p| (p.timestamp_ms / 1_000 - NOW, p.value)).collect()
}

async fn rejected(engine: &EngineHandle, series: LastSeries, back_scan_hours: u32) -> QueryError {
    let query = LastQuery { series: vec![series], back_scan_hours, resolve: true };
    match engine.reads().last_points(query, QueryControl::default()).await {
        Err(QueryFailure::Rejected(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Writes the counter cell of a series as a daemon that tracks series does.
async fn count(store: &TestStore, tsuid: &[u8], at_secs: i64) {
    let batch = CellBatch::single(
        tsuid,
        CellRef {
            family: Family::Name,
            qualifier: TS_COUNTER_QUALIFIER.as_bytes(),
            value: &1_i64.to_be_bytes(),
            timestamp_ms: Some(at_secs * 1_000),
        },
    );
    store.put(&EngineConfig::default().tables.meta, batch.unwrap()).await.unwrap();
}

#[tokio::test]
async fn back_scan_reads_the_requested_hours() {
    for salt_width in [0, 1] {
        let (_store, engine) = filled(salt_width).await;
        let a = by_names(&[("dc", "x"), ("host", "a")]);
        let b = by_names(&[("host", "b"), ("dc", "x")]);
        // 80 s into its hour a point's qualifier begins with the byte that marks append
        // columns.
        let newest = (-3_520, Value::Integer(2));
        assert_eq!(last(&engine, std::slice::from_ref(&a), 1).await, [newest]);
        assert_eq!(last(&engine, &[b.clone(), a.clone()], 3).await, [newest]);
        let both = [(-14_400, Value::Integer(3)), newest];
        assert_eq!(last(&engine, &[b.clone(), a], 4).await, both);
        assert_eq!(last(&engine, &[LastSeries::Tsuid(tsuid(3)), b], 5_000).await, [both[0]; 2]);
        assert_eq!(last(&engine, &[by_names(&[("host", "a")])], 9).await, [], "no such series");
    }
}

#[tokio::test]
async fn counters_of_the_meta_table_give_the_hour() {
    let (store, engine) = filled(1).await;
    let everything = [by_names(&[])];
    assert_eq!(last(&engine, &everything, 0).await, [], "no series was tracked");
    count(&store, &tsuid(1), NOW - 3_000).await;
    count(&store, &tsuid(3), NOW - 4 * 3_600).await;
    let (a, b) = ((-3_520, Value::Integer(2)), (-14_400, Value::Integer(3)));
    assert_eq!(last(&engine, &everything, 0).await, [a, b]);
    assert_eq!(last(&engine, &[by_names(&[("host", "b")])], 0).await, [b]);
    assert_eq!(last(&engine, &[LastSeries::Tsuid(tsuid(1))], 0).await, [a]);
    count(&store, &tsuid(1), NOW).await;
    assert_eq!(last(&engine, &everything, 0).await, [b], "the hour has no point");
}

#[tokio::test]
async fn untracked_series_are_read_in_the_current_hour() {
    let (_store, engine) = filled(0).await;
    let a = [LastSeries::Tsuid(tsuid(1))];
    assert_eq!(last(&engine, &a, 0).await, []);
    put_one(&engine, "m", "host=a dc=x", NOW + 5, 7).await.unwrap();
    assert_eq!(last(&engine, &a, 0).await, [(5, Value::Integer(7))]);
}

#[tokio::test]
async fn names_are_returned_if_requested() {
    let (_store, engine) = filled(0).await;
    let series = vec![LastSeries::Tsuid(tsuid(3)), LastSeries::Tsuid(tsuid(1))];
    let query = LastQuery { series, back_scan_hours: 24, resolve: true };
    let (points, _guard) =
        engine.reads().last_points(query, QueryControl::default()).await.unwrap();
    let shown: Vec<_> = points
        .into_iter()
        .map(|point| {
            let (metric, tags) = point.names.unwrap();
            let tags: Vec<_> = tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("{metric} {}", tags.join(" "))
        })
        .collect();
    assert_eq!(shown, ["m host=b dc=x", "m host=a dc=x"]);
}

#[tokio::test]
async fn unknown_and_incomplete_series_are_rejected() {
    let (_store, engine) = filled(0).await;
    let unknown = LastSeries::Metric { metric: "n".to_owned(), tags: Vec::new() };
    for (series, back_scan_hours, expected) in [
        (by_names(&[]), 1, SeriesError::MissingTags.into()),
        (unknown, 0, QueryError::no_such_name(UidKind::Metric, "n")),
        (by_names(&[("host", "z")]), 1, QueryError::no_such_name(UidKind::Tagv, "z")),
        (LastSeries::Tsuid(vec![0, 0, 1]), 0, SeriesError::TsuidIncomplete.into()),
    ] {
        assert_eq!(rejected(&engine, series, back_scan_hours).await, expected);
    }
}

#[tokio::test]
async fn failed_reads_and_timeouts_fail_the_request() {
    let store = store();
    let mut settings = settings(0);
    // Long enough that the first query does not reach it on a busy machine.
    settings.query.timeout = Some(Duration::from_secs(1));
    let engine = start(settings, &store);
    put_one(&engine, "m", "host=a dc=x", NOW, 1).await.unwrap();
    store.script(Operation::MultiGet, [Fault::Error(StorageError::Backend("gone".into()))]);
    let query = LastQuery {
        series: vec![by_names(&[("host", "a"), ("dc", "x")])],
        back_scan_hours: 1,
        resolve: false,
    };
    let error =
        engine.reads().last_points(query.clone(), QueryControl::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "gone");
    store.script(Operation::MultiGet, [Fault::Delay(Duration::from_mins(1))]);
    match engine.reads().last_points(query, QueryControl::default()).await {
        Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Time { limit, .. }))) => {
            assert_eq!(limit, Duration::from_secs(1));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_for_newest_points_and_the_names_of_its_result_are_reserved() {
    let store = store();
    let mut settings = settings(0);
    settings.query.max_memory_bytes = 8_000 + 1_024;
    let engine = start(settings, &store);
    let long = "v".repeat(1_000);
    put_one(&engine, "m", &format!("host={long}"), NOW, 1).await.unwrap();
    let series = |count| vec![LastSeries::Tsuid(tsuid(1).get(..9).unwrap().to_vec()); count];
    let ask = async |series, resolve| {
        let query = LastQuery { series, back_scan_hours: 1, resolve };
        match engine.reads().last_points(query, QueryControl::default()).await {
            Ok((points, _)) => points.len(),
            Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. }))) => 0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(series(10), false).await, 10);
    assert_eq!(ask(series(3), true).await, 3);
    assert_eq!(ask(series(10), true).await, 0, "the names");
    let tags: Vec<_> = (0..200).map(|n| (format!("k{n}"), "v".to_owned())).collect();
    let named = LastSeries::Metric { metric: "m".to_owned(), tags };
    assert_eq!(ask(vec![named], false).await, 0, "the request");
}
