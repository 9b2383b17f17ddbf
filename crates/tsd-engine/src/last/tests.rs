#![expect(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tsd_model::TableSchema;
use tsd_storage::{CellBatch, CellRef, Fault, Operation, Storage, StorageError};

use super::*;
use crate::{
    EngineConfig,
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

async fn ask(
    engine: &EngineHandle,
    series: &[LastSeries],
    back_scan_hours: u32,
) -> Vec<(i64, Value)> {
    let query = LastQuery { series: series.to_vec(), back_scan_hours, resolve: false };
    let (points, _guard) = engine.last_points(query, QueryControl::default()).await.unwrap();
    points.into_iter().map(|p| (p.timestamp_ms / 1_000 - NOW, p.value)).collect()
}

async fn refused(engine: &EngineHandle, series: LastSeries, back_scan_hours: u32) -> QueryError {
    let query = LastQuery { series: vec![series], back_scan_hours, resolve: true };
    match engine.last_points(query, QueryControl::default()).await {
        Err(QueryFailure::Refused(error)) => error,
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
async fn rows_are_searched_backwards_as_far_as_asked() {
    for salt_width in [0, 1] {
        let (_store, engine) = filled(salt_width).await;
        let a = by_names(&[("dc", "x"), ("host", "a")]);
        let b = by_names(&[("host", "b"), ("dc", "x")]);
        // 80 s into its hour a point's qualifier begins with the byte that marks append columns.
        let newest = (-3_520, Value::Integer(2));
        assert_eq!(ask(&engine, std::slice::from_ref(&a), 1).await, [newest]);
        assert_eq!(ask(&engine, &[b.clone(), a.clone()], 3).await, [newest]);
        let both = [(-14_400, Value::Integer(3)), newest];
        assert_eq!(ask(&engine, &[b.clone(), a], 4).await, both);
        assert_eq!(ask(&engine, &[LastSeries::Tsuid(tsuid(3)), b], 5_000).await, [both[0]; 2]);
        assert_eq!(ask(&engine, &[by_names(&[("host", "a")])], 9).await, [], "no such series");
    }
}

#[tokio::test]
async fn counters_of_the_meta_table_name_the_hour() {
    let (store, engine) = filled(1).await;
    let everything = [by_names(&[])];
    assert_eq!(ask(&engine, &everything, 0).await, [], "no series was tracked");
    count(&store, &tsuid(1), NOW - 3_000).await;
    count(&store, &tsuid(3), NOW - 4 * 3_600).await;
    let (a, b) = ((-3_520, Value::Integer(2)), (-14_400, Value::Integer(3)));
    assert_eq!(ask(&engine, &everything, 0).await, [a, b]);
    assert_eq!(ask(&engine, &[by_names(&[("host", "b")])], 0).await, [b]);
    assert_eq!(ask(&engine, &[LastSeries::Tsuid(tsuid(1))], 0).await, [a]);
    count(&store, &tsuid(1), NOW).await;
    assert_eq!(ask(&engine, &everything, 0).await, [b], "the hour holds no point");
}

#[tokio::test]
async fn a_series_nobody_tracked_is_looked_for_in_the_current_hour() {
    let (_store, engine) = filled(0).await;
    let a = [LastSeries::Tsuid(tsuid(1))];
    assert_eq!(ask(&engine, &a, 0).await, []);
    put_one(&engine, "m", "host=a dc=x", NOW + 5, 7).await.unwrap();
    assert_eq!(ask(&engine, &a, 0).await, [(5, Value::Integer(7))]);
}

#[tokio::test]
async fn names_come_where_they_are_asked_for() {
    let (_store, engine) = filled(0).await;
    let series = vec![LastSeries::Tsuid(tsuid(3)), LastSeries::Tsuid(tsuid(1))];
    let query = LastQuery { series, back_scan_hours: 24, resolve: true };
    let (points, _guard) = engine.last_points(query, QueryControl::default()).await.unwrap();
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
async fn refusals_are_opentsdbs() {
    let (_store, engine) = filled(0).await;
    let unknown = LastSeries::Metric { metric: "n".to_owned(), tags: Vec::new() };
    for (series, back_scan_hours, message) in [
        (by_names(&[]), 1, "Tags cannot be null or empty when getting a TSUID"),
        (unknown, 0, "No such name for 'metrics': 'n'"),
        (by_names(&[("host", "z")]), 1, "No such name for 'tagv': 'z'"),
        (
            LastSeries::Tsuid(vec![0, 0, 1]),
            0,
            "TSUID must not be null and must have a metric and at least one tag pair",
        ),
    ] {
        let error = refused(&engine, series, back_scan_hours).await;
        assert_eq!((error.class.status(), error.message.as_str()), (400, message));
    }
}

#[tokio::test]
async fn a_failed_read_fails_the_request_and_time_ends_it() {
    let store = store();
    let mut settings = settings(0);
    settings.query.timeout = Some(Duration::from_millis(20));
    let engine = start(settings, &store);
    put_one(&engine, "m", "host=a dc=x", NOW, 1).await.unwrap();
    store.script(Operation::MultiGet, [Fault::Error(StorageError::Backend("gone".into()))]);
    let query = LastQuery {
        series: vec![by_names(&[("host", "a"), ("dc", "x")])],
        back_scan_hours: 1,
        resolve: false,
    };
    let error = engine.last_points(query.clone(), QueryControl::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "gone");
    store.script(Operation::MultiGet, [Fault::Delay(Duration::from_mins(1))]);
    match engine.last_points(query, QueryControl::default()).await {
        Err(QueryFailure::Refused(error)) => {
            assert_eq!(error.class.status(), 413);
            assert!(error.message.contains("Time limit: 20 ms"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
}
