//! Queries of rows with contents other than plain points, and of other tables.

use tsd_meta::AnnotationEdit;
use tsd_model::{
    HistogramCodecs, PointValue, RollupConfig, SeriesKey, SimpleHistogram, Tsuid, to_hex,
};
use tsd_query::{
    ExpQuery, GexpQuery, RawExpExpression, RawExpMetric, RawExpQuery, RawExpTime, RollupError,
};
use tsd_storage::{CellBatch, CellRef, StorageExt, Table};

use super::*;
use crate::{
    RollupTarget, Rollups, SampleContent,
    testing::{ManualClock, put_content, store_with},
};

const ROLLUPS: &str = r#"{"aggregationIds": {"sum": 0, "count": 1, "max": 2}, "intervals": [
    {"table": "tsdb", "preAggregationTable": "agg", "interval": "1m", "rowSpan": "1h",
     "defaultInterval": true},
    {"table": "rollup-1h", "preAggregationTable": "agg-1h", "interval": "1h", "rowSpan": "1n",
     "delaySla": "2h"},
    {"table": "rollup-10m", "preAggregationTable": "agg-10m", "interval": "10m", "rowSpan": "1d"}
]}"#;

fn rollup_store() -> std::sync::Arc<TestStore> {
    store_with(["agg", "rollup-1h", "agg-1h", "rollup-10m", "agg-10m"].map(Table::new))
}

fn rollup_settings(salt_width: usize) -> EngineConfig {
    let config = RollupConfig::from_json(ROLLUPS.as_bytes(), |_| true).unwrap();
    EngineConfig { rollups: Some(Rollups::new(config)), ..settings(salt_width, 2) }
}

/// Writes values: interval, aggregator id, series, seconds after `HOUR`.
async fn roll_up(engine: &EngineHandle, values: &[(usize, u8, &str, i64, i64)]) {
    let mut session = engine.ingest_session(NameText::Utf8);
    for (interval, aggregator_id, tags, offset, value) in values {
        let pre_aggregate = tags.contains("_aggregate=SUM");
        let (interval, aggregator_id) = (*interval, *aggregator_id);
        let place = RollupTarget::Slot { interval, aggregator_id, pre_aggregate };
        let content = SampleContent::Rollup { place, value: PointValue::Integer(*value) };
        put_content(&mut session, "m", tags, HOUR + offset, content, 0).unwrap();
    }
    assert_eq!(session.commit().await.stored as usize, values.len());
}

/// Tags as text, and points, of every result series.
async fn results(engine: &EngineHandle, query: Query) -> Vec<(String, Vec<(i64, f64)>)> {
    let result = execute(engine, query).await.unwrap();
    let series = result.sub_results.iter().flat_map(|sub| &sub.series);
    series
        .map(|series| {
            let tags: Vec<_> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
            (format!("{}{{{}}}", series.metric, tags.join(",")), values(series))
        })
        .collect()
}

fn single(points: &[(i64, f64)]) -> Vec<(String, Vec<(i64, f64)>)> {
    vec![("m{host=a}".to_owned(), points.to_vec())]
}

/// A query with a rollup usage.
fn query_with_usage(usage: &str, end: i64, m: &str) -> Query {
    let mut query = query(HOUR, HOUR + end, &[m]);
    query.sub_queries[0].rollup_usage = Some(tsd_query::RollupUsage::from_name(usage));
    query
}

#[tokio::test]
async fn downsampling_reads_the_longest_dividing_interval() {
    for salt_width in [0, 1] {
        let store = rollup_store();
        let engine = start(rollup_settings(salt_width), &store);
        let a = "host=a";
        roll_up(
            &engine,
            &[
                (1, 0, a, 0, 10),
                (1, 0, a, 3_600, 20),
                (1, 1, a, 3_600, 4),
                (1, 0, a, 7_200, 30),
                (1, 1, a, 7_200, 6),
                (2, 0, a, 600, 7),
            ],
        )
        .await;
        put_one(&engine, "m", a, HOUR + 1_200, 5).await.unwrap();
        let hours = |m| results(&engine, query(HOUR, HOUR + 10_000, &[m]));
        assert_eq!(
            hours("sum:1h-sum:m").await,
            single(&[(0, 10.0), (3_600, 20.0), (7_200, 30.0)]),
            "salt {salt_width}"
        );
        // The first hour has no count.
        assert_eq!(hours("sum:1h-avg:m").await, single(&[(3_600, 5.0), (7_200, 5.0)]));
        assert_eq!(hours("sum:2h-avg:m").await, single(&[(0, 5.0), (7_200, 5.0)]));
        assert_eq!(hours("sum:10m-sum:m").await, single(&[(600, 7.0)]));
        assert_eq!(hours("sum:7m-sum:m").await, single(&[(1_020, 5.0)]));
        assert_eq!(hours("sum:1h-max:m").await, []);
        assert_eq!(hours("sum:m").await, single(&[(1_200, 5.0)]));
        let dev = execute(&engine, query(HOUR, HOUR + 1, &["sum:1h-min:m"])).await.unwrap_err();
        let QueryFailure::Rejected(error) = dev else { panic!("{dev:?}") };
        assert_eq!(error, RollupError::NoCells("min".to_owned()).into());
    }
}

#[tokio::test]
async fn fallback_tables_are_read_only_if_there_are_no_series() {
    let store = rollup_store();
    let engine = start(rollup_settings(1), &store);
    put_one(&engine, "m", "host=a", HOUR + 1_200, 5).await.unwrap();
    let request = |usage| results(&engine, query_with_usage(usage, 10_000, "sum:1h-max:m"));
    assert_eq!(request("ROLLUP_NOFALLBACK").await, []);
    assert_eq!(request("ROLLUP_RAW").await, single(&[(0, 5.0)]));
    assert_eq!(request("ROLLUP_FALLBACK_RAW").await, single(&[(0, 5.0)]));
    // The interval is that of the last rollup tried.
    assert_eq!(request("ROLLUP_FALLBACK").await, single(&[(1_200, 5.0)]));
    roll_up(&engine, &[(2, 2, "host=a", 600, 7)]).await;
    assert_eq!(request("ROLLUP_FALLBACK").await, single(&[(0, 7.0)]));
}

#[tokio::test]
async fn pre_aggregates_are_selected_by_their_tag() {
    let store = rollup_store();
    let engine = start(rollup_settings(0), &store);
    roll_up(&engine, &[(1, 0, "host=a _aggregate=SUM", 0, 9)]).await;
    let request = query(HOUR, HOUR + 100, &["sum:1h-sum:m{_aggregate=SUM}"]);
    let series = results(&engine, request).await;
    assert_eq!(series, [("m{_aggregate=SUM,host=a}".to_owned(), vec![(0, 9.0)])]);
    let request = query(HOUR, HOUR + 100, &["sum:1h-sum:m{_aggregate=RAW}"]);
    assert!(execute(&engine, request).await.is_err(), "nothing was ever stored as RAW");
}

#[tokio::test]
async fn split_queries_read_recent_data_from_the_data_table() {
    let store = rollup_store();
    let mut settings = rollup_settings(1);
    settings.rollups.as_mut().unwrap().split_queries = true;
    // Two hours of lag: rollups up to hour 1.
    settings.clock = ManualClock::at_secs(HOUR + 3 * 3_600);
    let engine = start(settings, &store);
    roll_up(&engine, &[(1, 0, "host=a", 0, 10), (1, 0, "host=b", 0, 1)]).await;
    put_one(&engine, "m", "host=a", HOUR + 1, 5).await.unwrap();
    put_one(&engine, "m", "host=a", HOUR + 7_201, 6).await.unwrap();
    put_one(&engine, "m", "host=c", HOUR + 7_201, 7).await.unwrap();
    let edit = AnnotationEdit {
        tsuid: Some(Tsuid::parse_hex(&engine.config().schema, "000001000001000001").unwrap()),
        start_time: HOUR + 7_205,
        description: Some("later".to_owned()),
        ..AnnotationEdit::default()
    };
    engine.annotations().edit(edit, false).await.unwrap();
    let request = query(HOUR, HOUR + 10_000, &["sum:1h-sum:m{host=*}"]);
    let result = execute(&engine, request).await.unwrap();
    let series = &result.sub_results[0].series;
    assert_eq!(
        series.iter().map(|s| (s.tags[0].1.as_str(), values(s))).collect::<Vec<_>>(),
        [("a", vec![(0, 10.0), (7_200, 6.0)]), ("b", vec![(0, 1.0)]), ("c", vec![(7_200, 7.0)])]
    );
    let annotations = series[0].annotations.as_ref().unwrap();
    assert_eq!(annotations[0].description, "later");
    assert_eq!(series[1].annotations, None);
}

#[tokio::test]
async fn duplicate_rollup_cells_fail_the_query_unless_the_newest_wins() {
    for fix_duplicates in [false, true] {
        let store = rollup_store();
        let mut settings = rollup_settings(0);
        settings.rows.fix_duplicates = fix_duplicates;
        let engine = start(settings, &store);
        roll_up(&engine, &[(1, 0, "host=a", 0, 1)]).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        roll_up(&engine, &[(1, 0, "host=a", 0, 300)]).await;
        let request = query(HOUR, HOUR + 100, &["sum:1h-sum:m"]);
        if fix_duplicates {
            assert_eq!(results(&engine, request).await, single(&[(0, 300.0)]));
        } else {
            let error = execute(&engine, request).await.unwrap_err();
            let QueryFailure::Rejected(QueryError::Data(DataError::Conflict(conflict))) = error
            else {
                panic!("{error:?}")
            };
            assert!(matches!(conflict.error, RowError::RollupDuplicate { .. }), "{conflict:?}");
            assert_eq!((conflict.metric.as_str(), conflict.time_ms), ("m", HOUR * 1_000));
            assert_eq!(conflict.tags, [("host".to_owned(), "a".to_owned())]);
        }
    }
}

#[tokio::test]
async fn histogram_queries_return_percentiles_and_buckets() {
    for (salt_width, codec) in [(0, 42), (1, 42), (1, 7)] {
        let store = store();
        let mut settings = settings(salt_width, 2);
        settings.histograms = Some(HistogramCodecs::simple(codec));
        let engine = start(settings, &store);
        let mut session = engine.ingest_session(NameText::Utf8);
        for (host, offset, text) in [
            ("a", 0, "u=1:0,10=3:10,20=1"),
            ("b", 0, "o=2:0,10=1"),
            ("a", 10, "0,10=1"),
            ("a", 3_600, "10,20=5"),
        ] {
            let value = SimpleHistogram::parse(text).unwrap().encode(42).unwrap();
            let (tags, content) = (format!("host={host}"), SampleContent::Histogram(&value));
            put_content(&mut session, "m", &tags, HOUR + offset, content, 0).unwrap();
        }
        assert_eq!(session.commit().await.stored, 4);
        put_one(&engine, "m", "host=a", HOUR, 1).await.unwrap();
        let mut request = query(HOUR, HOUR + 5_000, &["sum:m"]);
        request.sub_queries[0].percentiles = vec![90.0, 50.0];
        request.sub_queries[0].show_histogram_buckets = true;
        let got = results(&engine, request).await;
        if codec == 7 {
            assert_eq!(got, [], "histograms of an unknown codec");
            continue;
        }
        let series = |name: &str, values: [f64; 3]| {
            let times = [0, 10, 3_600];
            (format!("m{name}{{}}"), times.into_iter().zip(values).collect::<Vec<_>>())
        };
        assert_eq!(
            got,
            [
                series("_pct_50.0", [5.0, 5.0, 15.0]),
                series("_pct_90.0", [15.0, 5.0, 15.0]),
                series("_UNDERFLOW", [1.0, 0.0, 0.0]),
                series("_0.0_10.0", [4.0, 1.0, 0.0]),
                series("_10.0_20.0", [1.0, 0.0, 5.0]),
                series("_OVERFLOW", [2.0, 0.0, 0.0]),
            ],
            "salt {salt_width}"
        );
        assert_eq!(results(&engine, query(HOUR, HOUR + 5, &["sum:m"])).await.len(), 1);
    }
}

async fn annotate(engine: &EngineHandle, tsuid: &str, start_time: i64, description: &str) {
    let schema = &engine.config().schema;
    let edit = AnnotationEdit {
        tsuid: (!tsuid.is_empty()).then(|| Tsuid::parse_hex(schema, tsuid).unwrap()),
        start_time,
        description: Some(description.to_owned()),
        ..AnnotationEdit::default()
    };
    engine.annotations().edit(edit, false).await.unwrap();
}

fn descriptions(series: &ResultSeries) -> Option<Vec<&str>> {
    let annotations = series.annotations.as_ref()?;
    Some(annotations.iter().map(|annotation| annotation.description.as_str()).collect())
}

#[tokio::test]
async fn annotations_are_returned_with_their_series() {
    for salt_width in [0, 1] {
        let store = store();
        let engine = start(settings(salt_width, 2), &store);
        for (host, offset) in [("a", 0), ("b", 10), ("c", 20), ("d", 0), ("d", 20_000)] {
            put_one(&engine, "m", &format!("host={host}"), HOUR + offset, 1).await.unwrap();
        }
        let (a, b, c) = ("000001000001000001", "000001000001000002", "000001000001000003");
        annotate(&engine, a, HOUR + 50, "a late").await;
        annotate(&engine, b, (HOUR + 20) * 1_000 + 1, "b early").await;
        annotate(&engine, b, HOUR + 3_000, "beyond the end").await;
        annotate(&engine, c, HOUR + 3_000, "only beyond the end").await;
        // Series with annotations only, because the rows read have no points.
        annotate(&engine, "000001000001000004", HOUR + 7_230, "d alone").await;
        annotate(&engine, "", HOUR + 1, "global").await;
        let request = query(HOUR, HOUR + 100, &["sum:m{host=*}"]);
        let mut with_globals = request.clone();
        with_globals.global_annotations = true;
        let result = execute(&engine, with_globals.clone()).await.unwrap();
        let series = &result.sub_results[0].series;
        assert_eq!(
            series.iter().map(descriptions).collect::<Vec<_>>(),
            [Some(vec!["a late"]), Some(vec!["b early"]), Some(vec![]), None],
            "salt {salt_width}"
        );
        assert_eq!(result.global_annotations.unwrap()[0].description, "global");
        // A group has the annotations of all its series, by start.
        let result = execute(&engine, query(HOUR, HOUR + 100, &["sum:m"])).await.unwrap();
        assert_eq!(descriptions(&result.sub_results[0].series[0]), Some(vec!["b early", "a late"]));
        assert!(result.global_annotations.is_none());
        with_globals.no_annotations = true;
        let result = execute(&engine, with_globals).await.unwrap();
        assert!(result.global_annotations.is_none());
        assert_eq!(descriptions(&result.sub_results[0].series[0]), None);
        // Functions of one series keep its annotations, functions of several do not.
        let (start, end) = (HOUR.to_string(), (HOUR + 100).to_string());
        let raw = RawQuery { start: Some(start), end: Some(end), ..RawQuery::default() };
        let texts = ["scale(sum:m{host=a},2)", "sum(sum:m{host=a},sum:m{host=a})"];
        let gexp = GexpQuery::new(raw, &texts, &QueryClock::utc(0)).unwrap();
        let result = engine.reads().query_gexp(gexp, QueryControl::default()).await.unwrap();
        let [scaled, sum] = result.series.as_slice() else { panic!("two series") };
        assert_eq!(scaled.series.annotations.as_ref().unwrap()[0].description, "a late");
        assert!(sum.is_combined && sum.series.annotations.is_none());
        // A group with only annotations has no name.
        for m in ["sum:m{host=d}", "none:m"] {
            let result = execute(&engine, query(HOUR + 7_200, HOUR + 7_300, &[m])).await.unwrap();
            let [series] = result.sub_results[0].series.as_slice() else { panic!("{m}") };
            assert_eq!((series.metric.as_str(), series.tags.len()), ("", 0), "{m}");
            assert_eq!((series.tsuids.len(), series.points.len()), (0, 0));
            assert_eq!(descriptions(series), Some(vec!["d alone"]));
        }
    }
}

#[tokio::test]
async fn delete_removes_whole_rows_if_so_configured() {
    let store = store();
    let mut whole_rows = settings(1, 2);
    whole_rows.query.delete_whole_rows = true;
    let engine = start(whole_rows, &store);
    for host in ["a", "b"] {
        for offset in [0, 3_500, 3_600, 7_200] {
            put_one(&engine, "m", &format!("host={host}"), HOUR + offset, 1).await.unwrap();
        }
    }
    let point_count = async |m: &str| {
        let series = results(&engine, query(HOUR, HOUR + 9_000, &[m])).await;
        series.iter().map(|(_, points)| points.len()).sum::<usize>()
    };
    let mut request = query(HOUR, HOUR + 100, &["sum:m{host=a}"]);
    request.delete = true;
    store.script(
        Operation::ScanBatch,
        vec![Fault::Error(StorageError::Backend("region gone".into())); 20],
    );
    assert!(execute(&engine, request.clone()).await.is_err());
    store.heal();
    assert_eq!(point_count("none:m").await, 8);
    assert_eq!(results(&engine, request.clone()).await, single(&[(0, 1.0)]));
    // The delete removes the row of the hour, with points outside the range.
    assert_eq!(point_count("none:m{host=a}").await, 2);
    assert_eq!(point_count("none:m{host=b}").await, 4);
    assert_eq!(results(&engine, request).await, []);
    // A failed delete fails the query.
    let mut request = query(HOUR, HOUR + 100, &["sum:m"]);
    request.delete = true;
    store.script(Operation::Delete, [Fault::Error(StorageError::Backend("disk full".into()))]);
    assert_eq!(execute(&engine, request).await.unwrap_err().to_string(), "disk full");
}

#[tokio::test]
async fn listed_series_are_fetched_by_key() {
    for salt_width in [0, 1] {
        let store = store();
        let engine = start(settings(salt_width, 4), &store);
        fill(&engine).await;
        let result = execute(&engine, query(HOUR, HOUR + 9_000, &["none:sys.cpu"])).await.unwrap();
        let all = &result.sub_results[0].series;
        let tsuids: Vec<String> = all.iter().map(|s| to_hex(&s.tsuids[0])).collect();
        // All scans fail from here on.
        store.script(
            Operation::ScanBatch,
            vec![Fault::Error(StorageError::Backend("scanned".into())); 100],
        );
        let mut by_tsuid = query(HOUR, HOUR + 9_000, &["none:sys.cpu"]);
        by_tsuid.sub_queries[0].source =
            tsd_query::SeriesSource::Tsuids(tsuids.iter().skip(1).cloned().collect());
        let result = execute(&engine, by_tsuid).await.unwrap();
        let got = &result.sub_results[0].series;
        assert_eq!(
            got.iter().map(values).collect::<Vec<_>>(),
            all[1..].iter().map(values).collect::<Vec<_>>()
        );
        assert_eq!(got[0].metric, "sys.cpu");
        let mut explicit =
            query(HOUR, HOUR + 9_000, &["none:sys.cpu{host=web1|web3,dc=east|west}"]);
        explicit.sub_queries[0].explicit_tags = true;
        let result = execute(&engine, explicit.clone()).await.unwrap();
        // web3 is in the west: two deviations from the first values, which the fuzzy filter leaves
        // out.
        assert_eq!(result.sub_results[0].series.len(), 1, "salt {salt_width}");
        let plan =
            engine.reads().explain(&explicit, &crate::MetricRights::default()).await.unwrap();
        assert!(plan[0].reads[0].by_key);
        let implicit = query(HOUR, HOUR + 9_000, &["none:sys.cpu{host=web1}"]);
        assert!(execute(&engine, implicit).await.is_err(), "others are scanned");
    }
}

#[tokio::test]
async fn tsuids_are_read_only_from_their_buckets() {
    let store = store();
    let engine = start(settings(1, 2), &store);
    fill(&engine).await;
    let mut request = query(HOUR, HOUR + 40_000_000, &["none:sys.cpu"]);
    let result = execute(&engine, query(HOUR, HOUR + 9_000, &["none:sys.cpu"])).await.unwrap();
    let tsuid = result.sub_results[0].series[2].tsuids[0].clone();
    request.sub_queries[0].source = tsd_query::SeriesSource::Tsuids(vec![to_hex(&tsuid)]);
    let plan = engine.reads().explain(&request, &crate::MetricRights::default()).await.unwrap();
    let read = &plan[0].reads[0];
    assert!(!read.by_key, "{} rows are too many", read.estimated_rows);
    let schema = &engine.config().schema;
    let bucket =
        SeriesKey::from_tsuid(schema, &Tsuid::try_new(schema, &tsuid).unwrap()).bucket().index();
    assert_eq!(read.ranges.iter().map(|range| range.bucket).collect::<Vec<_>>(), [Some(bucket)]);
    assert_eq!(
        execute(&engine, request).await.unwrap().sub_results[0].series[0].points.len(),
        1_080
    );
}

#[tokio::test]
async fn series_in_several_buckets_is_merged() {
    let store = store();
    let engine = start(settings(1, 2), &store);
    for offset in [0, 10, 3_600, 7_200] {
        put_one(&engine, "m", "host=a", HOUR + offset, offset).await.unwrap();
        put_one(&engine, "m", "host=b", HOUR + offset, 1).await.unwrap();
    }
    // Rows of the same series under another number of buckets: a row in between, and a row of the same hour.
    let mut cells = CellBatch::new();
    for (base, qualifier, value) in
        [(HOUR + 3_600, [0x00, 0xA0], 7), (HOUR + 10_800, [0, 0], 8), (HOUR, [0x00, 0xA0], 10)]
    {
        let base = u32::try_from(base).unwrap().to_be_bytes();
        let key = [&[3, 0, 0, 1][..], &base, &[0, 0, 1, 0, 0, 1]].concat();
        cells.begin_row(&key).unwrap();
        let cell = CellRef {
            family: tsd_model::Family::T,
            qualifier: &qualifier,
            value: &[value],
            timestamp_ms: None,
        };
        cells.push(cell).unwrap();
    }
    store.put(&engine.config().tables.data, cells).await.unwrap();
    let expected =
        vec![(0, 0.0), (10, 10.0), (3_600, 3_600.0), (3_610, 7.0), (7_200, 7_200.0), (10_800, 8.0)];
    for m in ["none:m{host=a}", "sum:1s-sum:m{host=a}"] {
        let series = results(&engine, query(HOUR, HOUR + 11_000, &[m])).await;
        assert_eq!(series, [("m{host=a}".to_owned(), expected.clone())], "{m}");
    }
    let both = results(&engine, query(HOUR, HOUR + 11_000, &["none:m"])).await;
    assert_eq!(both.iter().map(|(_, points)| points.len()).collect::<Vec<_>>(), [6, 4]);
    // A listed series is read only from its own bucket, unless configured otherwise.
    let mut named = query(HOUR, HOUR + 11_000, &["none:m"]);
    named.sub_queries[0].source =
        tsd_query::SeriesSource::Tsuids(vec!["000001000001000001".to_owned()]);
    assert_eq!(results(&engine, named.clone()).await[0].1.len(), 4);
    let mut settings = engine.config().clone();
    settings.query.series_keep_bucket = false;
    let everywhere = start(settings, &store);
    assert_eq!(results(&everywhere, named).await[0].1, expected);
}

#[tokio::test]
async fn fill_exceeding_memory_is_rejected_in_advance() {
    let store = store();
    let engine = start(settings(0, 2), &store);
    put_one(&engine, "m", "host=a", HOUR, 1).await.unwrap();
    let day = 86_400;
    for m in ["sum:1ms-avg-nan:m", "sum:1ms-avg-zero:m{host=*}"] {
        let error = execute(&engine, query(HOUR, HOUR + 365 * day, &[m])).await.unwrap_err();
        let QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. })) = error else {
            panic!("{error:?}")
        };
    }
    assert_eq!(results(&engine, query(HOUR, HOUR + 9, &["sum:1s-avg-nan:m"])).await[0].1.len(), 10);
}

#[tokio::test]
async fn expressions_use_all_points_that_were_read() {
    let store = store();
    let engine = start(settings(1, 2), &store);
    for (metric, factor) in [("a", 1), ("b", 10)] {
        for step in 0..10 {
            let time = HOUR + 60 * step;
            put_one(&engine, metric, "host=x", time, factor * step).await.unwrap();
        }
    }
    let (start, end) = (HOUR + 120, HOUR + 240);
    let raw = RawQuery {
        start: Some(start.to_string()),
        end: Some(end.to_string()),
        queries: Some(vec![parse_m_parameter("sum:b").unwrap()]),
        ..RawQuery::default()
    };
    let clock = QueryClock::utc(end * 1_000);
    // Other sub queries and repeated metrics do not change the inputs.
    let texts = ["sumSeries(sum:a,sum:b,sum:a)", "timeShift(sum:a,'60s')"];
    let gexp = GexpQuery::new(raw, &texts, &clock).unwrap();
    let result = engine.reads().query_gexp(gexp, QueryControl::default()).await.unwrap();
    let points = |i: usize| {
        let points = &result.series[i].series.points;
        let values = (0..points.len()).map(|at| match points.value(at).unwrap() {
            Value::Integer(v) => v as f64,
            Value::Float(v) => v,
        });
        let times = points.times_ms.iter().map(|time| time / 1_000 - HOUR);
        times.zip(values).collect::<Vec<_>>()
    };
    assert_eq!(points(0), [(120, 24.0), (180, 36.0), (240, 48.0)]);
    assert_eq!(points(1), [(120, 1.0), (180, 2.0), (240, 3.0)]);
    let metric = |id: &str| RawExpMetric {
        id: Some(id.to_owned()),
        metric: Some(id.to_owned()),
        ..RawExpMetric::default()
    };
    let expression = |i: usize| RawExpExpression {
        id: Some(format!("e{i}")),
        expr: Some("a + b".to_owned()),
        ..RawExpExpression::default()
    };
    let exp: ExpQuery = RawExpQuery {
        time: Some(RawExpTime {
            start: Some(start.to_string()),
            end: Some(end.to_string()),
            aggregator: Some("sum".to_owned()),
            ..RawExpTime::default()
        }),
        metrics: vec![metric("a"), metric("b")],
        expressions: (0..30).map(expression).collect(),
        ..RawExpQuery::default()
    }
    .validate(&clock)
    .unwrap();
    let (result, _guard) =
        engine.reads().query_exp(exp.clone(), QueryControl::default()).await.unwrap();
    let rows: Vec<(i64, f64)> =
        result.outputs[0].rows.iter().map(|(t, v)| (t / 1_000 - HOUR, v[0])).collect();
    assert_eq!(rows, [(120, 22.0), (180, 33.0), (240, 44.0)]);
    // Expressions reserve memory too. Without it, their inputs would fit.
    let mut settings = engine.config().clone();
    settings.query.max_memory_bytes = 6_000;
    let small = crate::testing::start(settings, &store);
    let result = small.reads().query_exp(exp, QueryControl::default()).await;
    let Err(error) = result.map(|_| ()) else { panic!("it needs more memory") };
    let QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. })) = error else {
        panic!("{error:?}")
    };
}

#[tokio::test]
async fn explain_does_not_read() {
    let store = rollup_store();
    let engine = start(rollup_settings(1), &store);
    put_one(&engine, "m", "host=a", HOUR, 1).await.unwrap();
    store.script(
        Operation::ScanBatch,
        vec![Fault::Error(StorageError::Backend("scanned".into())); 100],
    );
    let plan = engine
        .reads()
        .explain(
            &query_with_usage("ROLLUP_FALLBACK", 7_000, "sum:1h-avg:m{host=a}{host=wildcard(a*)}"),
            &crate::MetricRights::default(),
        )
        .await
        .unwrap();
    let [sub] = plan.as_slice() else { panic!("one sub query") };
    let sources: Vec<_> = sub.reads.iter().map(|r| (r.table.as_str(), r.cells.as_str())).collect();
    assert_eq!(
        sources,
        [
            ("rollup-1h", "sum and count of 1h"),
            ("rollup-10m", "sum and count of 10m"),
            ("tsdb", "points")
        ]
    );
    let raw = &sub.reads[2];
    assert_eq!(raw.ranges.len(), 20);
    assert_eq!(raw.ranges[3].start, "0300000150E22700");
    assert_eq!(raw.pushed_down, ["host (000001) is a (000001)"]);
    assert_eq!(raw.checked_afterwards, ["host (000001) wildcard(a*)"]);
    assert_eq!(raw.group_by, ["host (000001)"]);
    assert_eq!(raw.rows_secs, (HOUR, HOUR + 7_200));
    assert_eq!(raw.estimated_rows, 2);
    assert!(
        raw.text.contains("scan bucket 3 [0300000150E22700, 0300000150E24320)"),
        "{}",
        raw.text
    );
    let missing = engine
        .reads()
        .explain(&query(HOUR, HOUR + 1, &["sum:nope"]), &crate::MetricRights::default())
        .await;
    assert!(missing.is_err());
}
