#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::{
    request::{RawQuery, parse_m_parameter},
    time::Clock,
};

/// 2013-01-01, an hour boundary.
const T_MS: i64 = 1_356_998_400_000;
const HOUR_MS: i64 = 3_600_000;

const CONFIG: &str = r#"{
    "aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
    "intervals": [
        {"table": "raw", "preAggregationTable": "raw-agg", "interval": "1m", "rowSpan": "1h",
         "defaultInterval": true},
        {"table": "10m", "preAggregationTable": "10m-agg", "interval": "10m", "rowSpan": "6h"},
        {"table": "1h", "preAggregationTable": "1h-agg", "interval": "1h", "rowSpan": "1d",
         "delaySla": "2h"}
    ]}"#;

fn config() -> RollupConfig {
    RollupConfig::from_json(CONFIG.as_bytes(), |name| Aggregator::from_name(name).is_some())
        .unwrap()
}

fn choose_with(
    m: &str,
    range: (i64, i64),
    settings: &RollupSettings<'_>,
) -> Result<ReadStrategy, QueryError> {
    let raw = RawQuery {
        start: Some("1".into()),
        end: Some("2".into()),
        queries: Some(vec![parse_m_parameter(m).unwrap()]),
        ..RawQuery::default()
    };
    let sub = raw.validate(&Clock::utc(0)).unwrap().sub_queries.remove(0);
    choose_reads(&sub, range, settings)
}

fn describe(attempt: &ReadAttempt) -> String {
    let interval = attempt.sub.downsample.as_ref().map_or(0, DownsampleSpec::interval_ms) / 1000;
    let function = attempt.sub.downsample.as_ref().map_or("", |spec| spec.function.name());
    let source = match &attempt.source {
        ReadSource::Points { table } => table.clone().unwrap_or_else(|| "data".to_owned()),
        ReadSource::Rollup { table, cells: RollupCells::One(id), .. } => format!("{table} id {id}"),
        ReadSource::Rollup { table, .. } => format!("{table} averages"),
    };
    format!("{source} {interval}s-{function}")
}

#[track_caller]
fn check(m: &str, expected: &[&str]) {
    let config = config();
    let settings = RollupSettings { config: Some(&config), ..RollupSettings::default() };
    let ReadStrategy::FirstWithSeries(attempts) =
        choose_with(m, (T_MS, T_MS + HOUR_MS), &settings).unwrap()
    else {
        panic!("no split was asked for");
    };
    assert_eq!(attempts.iter().map(describe).collect::<Vec<_>>(), expected, "{m}");
}

#[test]
fn the_longest_interval_that_divides_is_best() {
    check("sum:2h-sum:m", &["1h id 0 7200s-sum"]);
    check("sum:30m-mimmax:m", &["10m id 3 1800s-max"]);
    check("sum:45m-sum:m", &["data 2700s-sum"]);
    check("sum:1m-sum:m", &["data 60s-sum"]);
    check("sum:m", &["data 0s-"]);
    check("sum:0all-sum:m", &["data 0s-sum"]);
    check("sum:1h-count:m", &["1h id 1 3600s-sum"]);
    check("sum:1h-avg:m", &["1h averages 3600s-sum"]);
}

#[test]
fn usage_decides_what_follows_an_empty_rollup() {
    check("sum:1h-zimsum:rollup_raw:m", &["data 3600s-zimsum"]);
    check("sum:1h-zimsum:rollup_fallback_raw:m", &["1h id 0 3600s-sum", "data 3600s-sum"]);
    check(
        "sum:2h-zimsum:rollup_fallback:m",
        &["1h id 0 7200s-sum", "10m id 0 7200s-sum", "data 600s-sum"],
    );
}

#[test]
fn pre_aggregates_have_tables_of_their_own() {
    check("sum:1h-sum:pre-agg:m", &["1h-agg id 0 3600s-sum"]);
    check("sum:1h-sum:m{}{_aggregate=SUM}", &["1h-agg id 0 3600s-sum"]);
    check("sum:1h-sum:m{}{_aggregate=RAW}", &["1h id 0 3600s-sum"]);
    check("sum:pre-agg:m", &["raw-agg 0s-"]);
    let off = RollupSettings::default();
    let error = choose_with("sum:pre-agg:m", (0, 1), &off).unwrap_err();
    assert_eq!(error.class.status(), 400);
}

#[test]
fn functions_without_cells_are_refused() {
    let config = config();
    let settings = RollupSettings { config: Some(&config), ..RollupSettings::default() };
    for (m, name) in [("sum:1h-dev:m", "dev"), ("sum:1h-p99:m", "p99")] {
        let error = choose_with(m, (0, 1), &settings).unwrap_err();
        assert_eq!(error.message, format!("No ID found mapping to aggregator: {name}"));
    }
}

#[test]
fn rows_follow_the_span_of_the_table() {
    let config = config();
    let settings = RollupSettings { config: Some(&config), ..RollupSettings::default() };
    let window = |m: &str| {
        let range = (T_MS + 30 * HOUR_MS, T_MS + 31 * HOUR_MS);
        let Ok(ReadStrategy::FirstWithSeries(attempts)) = choose_with(m, range, &settings) else {
            panic!("{m}");
        };
        let window = attempts[0].window;
        ((window.scan_start_secs - T_MS / 1000) / 3600, (window.scan_end_secs - T_MS / 1000) / 3600)
    };
    assert_eq!(window("sum:1h-sum:m"), (24, 48));
    assert_eq!(window("sum:1h-sum:rate:m"), (0, 48));
    assert_eq!(window("sum:30m-sum:m"), (30, 36));
}

#[test]
fn recent_data_is_split_off() {
    let config = config();
    let now_ms = T_MS + 10 * HOUR_MS;
    let settings =
        RollupSettings { config: Some(&config), split_queries: true, now_ms, ..Default::default() };
    let split_ms = now_ms - 2 * HOUR_MS;
    let choose = |range| choose_with("sum:1h-sum:m", range, &settings).unwrap();
    let ReadStrategy::Split { rollup, raw } = choose((T_MS, now_ms)) else { panic!("not split") };
    assert_eq!((rollup.window.start_ms, rollup.window.end_ms), (T_MS, split_ms));
    assert_eq!((raw.window.start_ms, raw.window.end_ms), (split_ms, now_ms));
    assert_eq!(describe(&raw), "data 3600s-sum");
    let one = |range| match choose(range) {
        ReadStrategy::FirstWithSeries(attempts) => describe(&attempts[0]),
        ReadStrategy::Split { .. } => "split".to_owned(),
    };
    assert_eq!(one((T_MS, split_ms)), "1h id 0 3600s-sum");
    assert_eq!(one((split_ms, now_ms)), "data 3600s-sum");
}
