//! Cost of the operators per point: downsampling a day of ten-second points, and aggregating
//! groups.
//!
//! `cargo bench -p tsd-query --bench operators -- --sample-count 20`

#![expect(clippy::unwrap_used, reason = "a bench stops at the first error")]

use bytes::Bytes;
use divan::{Bencher, counter::ItemsCount};
use tsd_model::{PointColumns, Value};
use tsd_query::{
    AggregateInput, Aggregator, Clock, RawQuery, ScanWindow, SeriesPipeline, aggregate,
    parse_m_parameter,
};

/// 2013-01-01, an hour boundary.
const T_MS: i64 = 1_356_998_400_000;
const DAY_POINTS: i64 = 8_640;

fn main() {
    divan::main();
}

fn pipeline(m: &str) -> SeriesPipeline {
    let raw = RawQuery {
        start: Some(T_MS.to_string()),
        end: Some((T_MS + 86_399_000).to_string()),
        queries: Some(vec![parse_m_parameter(m).unwrap()]),
        ..RawQuery::default()
    };
    let query = raw.validate(&Clock::utc(0)).unwrap();
    let sub = query.sub_queries.first().unwrap();
    let interval = sub.downsample.as_ref().map_or(0, tsd_query::DownsampleSpec::interval_ms);
    let window = ScanWindow::raw(query.start_ms, query.end_ms, interval);
    SeriesPipeline::new(sub, &window, &query.zone)
}

/// A day of one series, one row per hour.
fn day(value: impl Fn(i64) -> Value, shift_ms: i64) -> Vec<PointColumns> {
    let mut rows = Vec::new();
    for hour in 0..24 {
        let mut row = PointColumns::default();
        for i in 0..DAY_POINTS / 24 {
            let n = hour * DAY_POINTS / 24 + i;
            row.push(T_MS + n * 10_000 + shift_ms, value(n));
        }
        rows.push(row);
    }
    rows
}

fn walk(n: i64) -> Value {
    Value::Float((n * 7_919 % 1_000) as f64 / 100.0)
}

#[divan::bench(args = ["5m-avg", "5m-sum", "5m-max", "5m-count", "5m-dev", "5m-p99", "1h-avg"])]
fn downsample_floats(bencher: Bencher, spec: &str) {
    downsample(bencher, spec, &day(walk, 0));
}

#[divan::bench(args = ["5m-avg", "5m-max", "10s-avg"])]
fn downsample_integers(bencher: Bencher, spec: &str) {
    downsample(bencher, spec, &day(|n| Value::Integer(n % 2_000), 0));
}

fn downsample(bencher: Bencher, spec: &str, rows: &[PointColumns]) {
    let pipeline = pipeline(&format!("sum:{spec}:m"));
    bencher.counter(ItemsCount::new(DAY_POINTS as u64)).bench(|| {
        let mut builder = pipeline.start();
        for row in rows {
            builder.push(&pipeline, row);
        }
        let span = builder.finish(&pipeline, Bytes::new()).unwrap().unwrap();
        assert!(span.points.len() >= 24);
        span
    });
}

#[divan::bench(args = ["sum", "avg", "max", "dev", "p99", "count"])]
fn aggregate_100_series_with_equal_times(bencher: Bencher, name: &str) {
    let series: Vec<PointColumns> = (0..100).map(|_| joined(&day(walk, 0))).collect();
    group(bencher, name, &series, DAY_POINTS as usize);
}

#[divan::bench(args = ["sum", "zimsum"])]
fn aggregate_20_series_with_different_times(bencher: Bencher, name: &str) {
    let series: Vec<PointColumns> = (0..20).map(|i| joined(&day(walk, i * 13))).collect();
    group(bencher, name, &series, 20 * DAY_POINTS as usize);
}

fn joined(rows: &[PointColumns]) -> PointColumns {
    let mut all = PointColumns::default();
    for row in rows {
        for (i, time) in row.times_ms.iter().enumerate() {
            all.push(*time, row.value(i).unwrap());
        }
    }
    all
}

/// Items are points of the series, resampled onto the group's times.
fn group(bencher: Bencher, name: &str, series: &[PointColumns], expected: usize) {
    let series: Vec<&PointColumns> = series.iter().collect();
    let aggregator = Aggregator::from_name(name).unwrap();
    bencher.counter(ItemsCount::new(series.len() * expected)).bench(|| {
        let points = aggregate(&AggregateInput {
            aggregator,
            is_rate: false,
            series: &series,
            from_ms: T_MS,
            to_ms: T_MS + 86_400_000,
        });
        let points = points.unwrap();
        assert_eq!(points.len(), expected);
        points
    });
}
