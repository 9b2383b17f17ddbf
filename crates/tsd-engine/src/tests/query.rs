//! Queries of points that an engine has stored.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod admission;
mod coordination;
mod daemon;
mod deletes;
mod layouts;
mod lifecycle;
mod log_origin;
mod row_contents;
mod series_index;
mod series_reads;
mod shared_executions;
mod shared_series_index;
mod sparse_series;
mod summaries;

use std::time::{Duration, Instant};

use tsd_model::{RowError, TableSchema, UidKind, Value};
use tsd_query::{
    Clock as QueryClock, DataError, LimitError, Query, QueryError, RawQuery, parse_m_parameter,
};
use tsd_storage::{Fault, Operation, StorageError};

use crate::{
    EngineConfig, EngineHandle, NameText, QueryControl, QueryFailure, QueryResult, ResultSeries,
    testing::{TestStore, config, dump, put, put_one, start, store},
};

const HOUR: i64 = 1_356_998_400;

fn query(start: i64, end: i64, m: &[&str]) -> Query {
    let raw = RawQuery {
        start: Some(start.to_string()),
        end: Some(end.to_string()),
        queries: Some(m.iter().map(|m| parse_m_parameter(m).unwrap()).collect()),
        ..RawQuery::default()
    };
    raw.validate(&QueryClock::utc(end * 1_000)).unwrap()
}

async fn execute(engine: &EngineHandle, query: Query) -> Result<QueryResult, QueryFailure> {
    engine.reads().query(query, QueryControl::default()).await
}

fn values(series: &ResultSeries) -> Vec<(i64, f64)> {
    let points = &series.points;
    (0..points.len())
        .map(|i| {
            let value = match points.value(i).unwrap() {
                Value::Integer(v) => v as f64,
                Value::Float(v) => v,
            };
            (points.times_ms[i] / 1_000 - HOUR, value)
        })
        .collect()
}

/// Writes four hosts in two data centres, with a point every 10 s for three hours. A value is the number of the host
/// times the step.
async fn fill(engine: &EngineHandle) {
    let mut session = engine.ingest_session(NameText::Utf8);
    for step in 0..1_080_i64 {
        for host in 1..=4_i64 {
            let tags = format!("host=web{host} dc={}", if host < 3 { "east" } else { "west" });
            put(&mut session, "sys.cpu", &tags, HOUR + 10 * step, host * step, 0).unwrap();
        }
    }
    assert_eq!(session.commit().await.stored, 4_320);
}

fn settings(salt_width: usize, threads: usize) -> EngineConfig {
    let mut settings = config();
    settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
    settings.query.threads = threads;
    settings
}

#[tokio::test]
async fn results_are_independent_of_salting_and_threads() {
    for (salt_width, threads) in [(0, 1), (0, 4), (1, 1), (1, 4)] {
        let store = store();
        let mut settings = settings(salt_width, threads);
        // Rows compacted between the sub queries would count as fewer cells.
        settings.compaction.on_read = false;
        let engine = start(settings, &store);
        fill(&engine).await;
        let request = query(
            HOUR + 60,
            HOUR + 10_700,
            &["sum:1h-avg:sys.cpu{dc=*}", "max:sys.cpu{host=web1|web4}", "none:1h-max:sys.cpu"],
        );
        let result = execute(&engine, request).await.unwrap();
        let [by_dc, max, none] = result.sub_results.as_slice() else { panic!("three results") };
        assert_eq!(
            by_dc.series.iter().map(|s| (s.tags.clone(), values(s))).collect::<Vec<_>>(),
            [("east", 3.0), ("west", 7.0)].map(|(dc, hosts)| {
                let average = |hour: f64| (hour * 360.0 + 179.5) * hosts;
                (
                    vec![("dc".to_owned(), dc.to_owned())],
                    vec![(3_600, average(1.0)), (7_200, average(2.0))],
                )
            }),
            "salt {salt_width}, {threads} threads"
        );
        assert_eq!(by_dc.series[0].metric, "sys.cpu");
        assert_eq!(by_dc.series[0].aggregate_tags, ["host"]);
        assert_eq!(by_dc.series[0].tsuids.len(), 2);
        let web = max.series.iter().map(|s| s.tags.clone()).collect::<Vec<_>>();
        assert_eq!(web.len(), 2, "{web:?}");
        let points = values(&max.series[1]);
        assert_eq!(
            (points.len(), points[0], points[1_064]),
            (1_065, (60, 24.0), (10_700, 4_280.0))
        );
        assert_eq!(none.series.len(), 4);
        assert_eq!((by_dc.stats.cells(), by_dc.stats.rows()), (4_320, 12));
    }
}

#[tokio::test]
async fn filters_by_name_and_tsuid_select_series() {
    let store = store();
    let engine = start(settings(1, 2), &store);
    fill(&engine).await;
    let count = async |m: &str| {
        let result = execute(&engine, query(HOUR, HOUR + 100, &[m])).await.unwrap();
        result.sub_results[0].series.iter().flat_map(|s| s.tsuids.clone()).count()
    };
    assert_eq!(count("sum:sys.cpu").await, 4);
    assert_eq!(count("sum:sys.cpu{}{host=wildcard(web*)}").await, 4);
    assert_eq!(count("sum:sys.cpu{}{host=regexp(web[12])}").await, 2);
    assert_eq!(count("sum:sys.cpu{}{host=not_literal_or(web1)}").await, 3);
    assert_eq!(count("sum:sys.cpu{dc=west}{host=iliteral_or(WEB3|WEB1)}").await, 1);
    let mut by_tsuid = query(HOUR, HOUR + 100, &["sum:sys.cpu"]);
    let result =
        execute(&engine, query(HOUR, HOUR + 100, &["sum:sys.cpu{host=web2}"])).await.unwrap();
    let tsuid = tsd_model::to_hex(&result.sub_results[0].series[0].tsuids[0]);
    by_tsuid.sub_queries[0].source = tsd_query::SeriesSource::Tsuids(vec![tsuid]);
    let found = execute(&engine, by_tsuid).await.unwrap().sub_results.remove(0);
    assert_eq!(found.series.len(), 1);
    assert_eq!(values(&found.series[0])[1], (10, 2.0));
    assert_eq!(found.stats.rows(), 1, "the store filters the rows of other series");
}

#[tokio::test]
async fn filters_with_tsuids_are_checked() {
    let store = store();
    let engine = start(settings(0, 2), &store);
    fill(&engine).await;
    let all =
        execute(&engine, query(HOUR, HOUR + 100, &["none:sys.cpu{host=web*}"])).await.unwrap();
    let series = &all.sub_results[0].series;
    let tsuids: Vec<String> =
        series.iter().flat_map(|s| &s.tsuids).map(|tsuid| tsd_model::to_hex(tsuid)).collect();
    assert!(tsuids.len() > 2);
    for (filter, expected) in [
        ("{host=web2}", 1),
        ("{}{host=not_literal_or(web2)}", tsuids.len() - 1),
        // A star accepts series without the key, like a filter that accepts absence.
        ("{nokey=*}", tsuids.len()),
        ("{}{nokey=not_literal_or(x)}", tsuids.len()),
        ("{nokey=x}", 0),
    ] {
        let mut request = query(HOUR, HOUR + 100, &[&format!("none:sys.cpu{filter}")]);
        request.sub_queries[0].source = tsd_query::SeriesSource::Tsuids(tsuids.clone());
        let found = execute(&engine, request).await.unwrap();
        assert_eq!(found.sub_results[0].series.len(), expected, "{filter}");
    }
}

#[tokio::test]
async fn unknown_names_are_rejected_and_empty_ranges_return_nothing() {
    let store = store();
    let engine = start(settings(0, 2), &store);
    fill(&engine).await;
    for (m, kind) in [
        ("sum:nope", UidKind::Metric),
        ("sum:sys.cpu{nope=*}", UidKind::Tagk),
        ("sum:sys.cpu{host=nope}", UidKind::Tagv),
    ] {
        match execute(&engine, query(HOUR, HOUR + 1, &[m])).await {
            Err(QueryFailure::Rejected(error)) => {
                assert_eq!(error, QueryError::no_such_name(kind, "nope"));
            }
            other => panic!("{other:?}"),
        }
    }
    let result =
        execute(&engine, query(HOUR - 90_000, HOUR - 80_000, &["sum:sys.cpu"])).await.unwrap();
    assert!(result.sub_results[0].series.is_empty());
}

#[tokio::test]
async fn failed_scan_fails_the_query() {
    for salt_width in [0, 1] {
        let store = store();
        let engine = start(settings(salt_width, 4), &store);
        fill(&engine).await;
        store.script(
            Operation::ScanBatch,
            [Fault::Pass, Fault::Error(StorageError::Backend("region gone".into()))],
        );
        let request = query(HOUR, HOUR + 10_000, &["sum:sys.cpu"]);
        let error = execute(&engine, request.clone()).await.unwrap_err();
        assert_eq!(error.to_string(), "region gone");
        assert_eq!(execute(&engine, request).await.unwrap().sub_results[0].series.len(), 1);
    }
}

#[tokio::test]
async fn limit_on_data_points_ends_a_query() {
    let store = store();
    let mut settings = settings(0, 1);
    settings.query.max_data_points = 100;
    settings.query.scan_batch_rows = 1;
    let engine = start(settings, &store);
    fill(&engine).await;
    match execute(&engine, query(HOUR, HOUR + 10_000, &["sum:sys.cpu"])).await {
        Err(QueryFailure::Rejected(error)) => {
            assert_eq!(error, LimitError::DataPoints { limit: 100 }.into());
        }
        other => panic!("{other:?}"),
    }
}

fn delay_batches(store: &TestStore, batches: usize) {
    store.script(Operation::ScanBatch, vec![Fault::Delay(Duration::from_mins(1)); batches]);
}

#[tokio::test]
async fn deadline_or_cancellation_ends_a_hanging_query() {
    let store = store();
    let engine = start(settings(0, 1), &store);
    fill(&engine).await;
    delay_batches(&store, 8);
    let request = query(HOUR, HOUR + 100, &["sum:sys.cpu"]);
    let control = QueryControl {
        deadline: Some(Instant::now() + Duration::from_millis(20)),
        ..QueryControl::default()
    };
    match engine.reads().query(request.clone(), control).await {
        Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Time { .. }))) => {}
        other => panic!("{other:?}"),
    }
    let control = QueryControl::default();
    let (result, ()) =
        tokio::join!(engine.reads().query(request.clone(), control.clone()), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            control.cancel.cancel();
        });
    assert!(matches!(result, Err(QueryFailure::Cancelled)));
    store.heal();
    assert!(execute(&engine, request).await.is_ok());
}

#[tokio::test]
async fn queries_are_queued_and_excess_ones_rejected() {
    let store = store();
    let mut settings = settings(0, 1);
    (settings.query.max_running, settings.query.max_waiting) = (1, 1);
    let engine = start(settings, &store);
    fill(&engine).await;
    store.script(Operation::ScanBatch, [Fault::Delay(Duration::from_millis(100))]);
    let request = query(HOUR, HOUR + 100, &["sum:sys.cpu"]);
    let (first, second, third) = tokio::join!(
        execute(&engine, request.clone()),
        execute(&engine, request.clone()),
        execute(&engine, request.clone()),
    );
    assert!(first.is_ok() && second.is_ok());
    assert!(matches!(third, Err(QueryFailure::Busy)));
    // A dropped query releases its permits.
    delay_batches(&store, 1);
    let dropped =
        tokio::time::timeout(Duration::from_millis(20), execute(&engine, request.clone())).await;
    assert!(dropped.is_err());
    store.heal();
    assert!(execute(&engine, request).await.is_ok());
}

#[tokio::test]
async fn only_old_fragmented_rows_are_compacted_on_read() {
    for on_read in [true, false] {
        let store = store();
        let mut settings = settings(1, 2);
        settings.compaction.on_read = on_read;
        settings.clock = crate::testing::ManualClock::at_secs(HOUR + 3_600 + 3_601 - 1);
        let engine = start(settings, &store);
        for offset in [0, 10, 3_600, 3_610] {
            put_one(&engine, "m", "host=a", HOUR + offset, 1).await.unwrap();
        }
        let request = query(HOUR, HOUR + 7_200, &["sum:m"]);
        let before = execute(&engine, request.clone()).await.unwrap();
        engine.compactions_idle().await;
        let cells = dump(&store, &EngineConfig::default().tables.data).await.len();
        assert_eq!(cells, if on_read { 3 } else { 4 });
        let after = execute(&engine, request).await.unwrap();
        assert_eq!(
            values(&before.sub_results[0].series[0]),
            values(&after.sub_results[0].series[0])
        );
    }
}

#[tokio::test]
async fn duplicate_points_fail_the_query_unless_the_newest_wins() {
    for fix_duplicates in [false, true] {
        let store = store();
        let mut settings = settings(0, 1);
        settings.rows.fix_duplicates = fix_duplicates;
        let engine = start(settings, &store);
        put_one(&engine, "m", "host=a", HOUR, 1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        put_one(&engine, "m", "host=a", HOUR, 300).await.unwrap();
        match execute(&engine, query(HOUR, HOUR + 1, &["sum:m"])).await {
            Ok(result) => {
                assert!(fix_duplicates);
                assert_eq!(values(&result.sub_results[0].series[0]), [(0, 300.0)]);
            }
            Err(QueryFailure::Rejected(QueryError::Data(DataError::Conflict(conflict)))) => {
                assert!(!fix_duplicates);
                assert!(matches!(conflict.error, RowError::Duplicate { .. }));
                assert_eq!((conflict.metric.as_str(), conflict.time_ms), ("m", 1_356_998_400_000));
                assert_eq!(conflict.tags, [("host".to_owned(), "a".to_owned())]);
                let points: Vec<String> = conflict.points.iter().map(ToString::to_string).collect();
                assert!(points[0].starts_with("0001=012C"), "{points:?}");
                assert!(points[1].starts_with("0000=01"), "{points:?}");
                // Only the queries of the series fail.
                put_one(&engine, "m", "host=b", HOUR, 7).await.unwrap();
                let other = execute(&engine, query(HOUR, HOUR + 1, &["sum:m{host=b}"])).await;
                let other = other.unwrap();
                assert_eq!(values(&other.sub_results[0].series[0]), [(0, 7.0)]);
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}
