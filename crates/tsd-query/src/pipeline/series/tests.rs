#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tsd_model::Value;

use super::*;
use crate::{
    pipeline::span_list::OrderedSpans,
    plan::ScanWindow,
    request::{RawQuery, parse_m_parameter},
    time::Clock,
};

/// 2013-01-01, an hour boundary.
const T_MS: i64 = 1_356_998_400_000;

fn pipeline(m: &str, zone: &str) -> SeriesPipeline {
    let raw = RawQuery {
        start: Some(format!("{T_MS}")),
        end: Some(format!("{}", T_MS + 86_400_000)),
        timezone: Some(zone.to_owned()),
        queries: Some(vec![parse_m_parameter(m).unwrap()]),
        ..RawQuery::default()
    };
    let query = raw.validate(&Clock::utc(0)).unwrap();
    let sub = &query.sub_queries[0];
    let interval = sub.downsample.as_ref().map_or(0, crate::request::DownsampleSpec::interval_ms);
    let window = ScanWindow::raw(query.start_ms, query.end_ms, interval);
    SeriesPipeline::new(sub, &window, &query.zone)
}

fn columns<'a>(points: impl IntoIterator<Item = (&'a i64, &'a Value)>) -> PointColumns {
    let mut columns = PointColumns::default();
    for (time, value) in points {
        columns.push(T_MS + time * 1000, *value);
    }
    columns
}

/// Times, kinds and values, with one NaN for all.
fn shape(span: Option<Span>) -> Option<Vec<(i64, bool, u64)>> {
    let points = span?.points;
    let shape = (0..points.len()).map(|i| {
        let bits = match points.value(i).unwrap() {
            Value::Float(v) if v.is_nan() => f64::NAN.to_bits(),
            _ => points.bits[i],
        };
        (points.times_ms[i], points.is_integer(i), bits)
    });
    Some(shape.collect())
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i16>().prop_map(|v| Value::Integer(v.into())),
        (-1e6..1e6).prop_map(Value::Float),
    ]
}

const SHAPES: &[&str] = &[
    "sum:m",
    "sum:1m-avg:m",
    "sum:10m-sum:rate:m",
    "sum:7m-dev:m",
    "sum:3h-median-nan:m",
    "sum:90m-first-zero:m",
    "sum:1000s-diff:m{value=gt(3)}",
    "sum:1dc-sum:m",
    "sum:7hc-count:m",
    "sum:1hc-max-nan:m",
    "sum:0all-avg:m",
    "sum:rate{counter,100}:m",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn series_is_independent_of_row_boundaries(
        points in proptest::collection::btree_map(0_i64..90_000, value(), 1..60),
        cuts in proptest::collection::btree_set(0_i64..90_000, 0..5),
        m in proptest::sample::select(SHAPES),
        zone in proptest::sample::select(vec!["UTC", "Asia/Kabul", "America/New_York"]),
    ) {
        let pipeline = pipeline(m, zone);
        let mut whole = pipeline.start();
        whole.push(&pipeline, &columns(&points));
        let whole = shape(whole.finish(&pipeline, Bytes::new()).unwrap());

        let mut bounds: Vec<i64> = cuts.into_iter().collect();
        bounds.push(i64::MAX);
        let mut from = i64::MIN;
        let parts: Vec<PointColumns> = bounds
            .into_iter()
            .map(|to| {
                let part = columns(points.range(from..to));
                from = to;
                part
            })
            .collect();

        // All rows into one builder.
        let mut rows = pipeline.start();
        for part in &parts {
            rows.push(&pipeline, part);
        }
        prop_assert_eq!(shape(rows.finish(&pipeline, Bytes::new()).unwrap()), whole.clone());

        // A builder that had another series before, into a list.
        let mut reused = pipeline.start();
        let mut list = SpanList::default();
        for tsuid in [b"a", b"b"] {
            for part in &parts {
                reused.push(&pipeline, part);
            }
            reused.finish_into(&pipeline, [b"", tsuid], &mut list).unwrap();
        }
        let (ordered, _) = OrderedSpans::new(vec![list], &mut || Ok(())).unwrap();
        let OrderedSpans { mut spans, ids } = ordered;
        prop_assert_eq!(ids.len(), whole.iter().count() * 2);
        for id in ids {
            let points = spans.short(id).map(|short| short.copy_range(0, short.len()));
            let points = points.or_else(|| spans.take_long(id)).unwrap();
            let span = Span { tsuid: Bytes::new(), points };
            prop_assert_eq!(shape(Some(span)), whole.clone());
        }

        // One builder per part, appended from the left.
        let builders: Vec<SeriesBuilder> = parts
            .iter()
            .enumerate()
            .map(|(i, part)| {
                let mut builder =
                    pipeline.start_range(i > 0);
                builder.push(&pipeline, part);
                builder
            })
            .collect();
        let mut builders = builders.into_iter();
        let mut joined = builders.next().unwrap();
        let rest: Vec<_> = builders.collect();
        for later in rest.clone() {
            joined.append(&pipeline, later);
        }
        prop_assert_eq!(shape(joined.finish(&pipeline, Bytes::new()).unwrap()), whole.clone());

        // And from the right, where continuations are appended to each other first.
        let mut later: Option<SeriesBuilder> = None;
        for mut part in rest.into_iter().rev() {
            if let Some(later) = later {
                part.append(&pipeline, later);
            }
            later = Some(part);
        }
        let mut first = pipeline.start();
        first.push(&pipeline, &parts[0]);
        if let Some(later) = later {
            first.append(&pipeline, later);
        }
        prop_assert_eq!(shape(first.finish(&pipeline, Bytes::new()).unwrap()), whole);
    }

    #[test]
    fn continuation_without_earlier_part_is_a_series(
        points in proptest::collection::btree_map(0_i64..90_000, value(), 1..60),
        m in proptest::sample::select(SHAPES),
    ) {
        let pipeline = pipeline(m, "UTC");
        let finish = |mut builder: SeriesBuilder| {
            builder.push(&pipeline, &columns(&points));
            shape(builder.finish(&pipeline, Bytes::new()).unwrap())
        };
        prop_assert_eq!(finish(pipeline.start_range(true)), finish(pipeline.start()));
    }
}

#[test]
fn series_outside_the_rows_read_is_dropped() {
    let pipeline = pipeline("sum:m", "UTC");
    let mut builder = pipeline.start();
    assert_eq!(builder.clone().finish(&pipeline, Bytes::new()), Ok(None));
    let after = BTreeMap::from([(200_000, Value::Integer(1))]);
    builder.push(&pipeline, &columns(&after));
    assert_eq!(builder.finish(&pipeline, Bytes::new()), Ok(None));
}

#[test]
fn series_without_accepted_values_is_dropped() {
    let pipeline = pipeline("sum:m{value=gt(5)}", "UTC");
    let mut builder = pipeline.start();
    builder.push(&pipeline, &columns(&BTreeMap::from([(10, Value::Integer(1))])));
    assert_eq!(builder.finish(&pipeline, Bytes::new()), Ok(None));
}

#[test]
fn fill_with_too_many_points_is_rejected() {
    let pipeline = pipeline("sum:1ms-sum-nan:m", "UTC").with_max_fill_points(1000);
    let mut builder = pipeline.start();
    builder.push(&pipeline, &columns(&BTreeMap::from([(10, Value::Integer(1))])));
    let error = builder.finish(&pipeline, Bytes::new()).unwrap_err();
    assert_eq!(error, crate::error::LimitError::DataPoints { limit: 1_000 }.into());
}

/// An hour of Kabul begins in the middle of one of UTC, so the grid begins half an hour before the scan.
#[test]
fn rates_see_the_time_of_the_grid_before_the_scan() {
    let rates = |m: &str, values: &[i64]| {
        let pipeline = pipeline(m, "Asia/Kabul");
        let times = [1_900, 5_500, 9_100, 12_700];
        let values: Vec<Value> = values.iter().map(|value| Value::Integer(*value)).collect();
        let mut builder = pipeline.start();
        builder.push(&pipeline, &columns(times.iter().zip(&values)));
        let points = builder.finish(&pipeline, Bytes::new()).unwrap().unwrap().points;
        let rate = |i| f64::from_bits(points.bits[i]);
        (0..4).map(|i| ((points.times_ms[i] - T_MS) / 1_000, rate(i))).collect::<Vec<_>>()
    };
    let of_zeros = rates("sum:1hc-avg-zero:rate{dropcounter}:m", &[7_200, 0, 3_600, 3_600]);
    assert_eq!(of_zeros, [(1_800, 2.0), (9_000, 1.0), (12_600, 0.0), (19_800, 0.0)]);
    let of_nan = rates("sum:1hc-avg-nan:rate{dropcounter}:m", &[-5, -3, -1, 4]);
    assert!(of_nan[0].0 == 1_800 && of_nan[0].1.is_nan(), "{of_nan:?}");
    assert_eq!(of_nan[1..3], [(5_400, 2.0 / 3_600.0), (9_000, 2.0 / 3_600.0)]);
    let without_rates = rates("sum:1hc-avg-zero:m", &[1, 2, 3, 4]);
    assert_eq!(without_rates, [(1_800, 1.0), (5_400, 2.0), (9_000, 3.0), (12_600, 4.0)]);
}

/// Extreme specifications that are accepted.
const EXTREMES: &[&str] = &[
    "1ms-sum",
    "9223372036854775807ms-avg-none",
    "292471208y-sum",
    "1msc-count",
    "2147483647sc-sum",
    "2147483647dc-sum",
    "15250284wc-sum",
    "3558399nc-sum-nan",
    "292471208yc-sum-zero",
    "7dc-first",
    "5nc-last",
    "0all-sum",
];

proptest! {
    #[test]
    fn extreme_specifications_ranges_and_times_are_handled(
        start in 0_i64..10_000_000_000_000,
        length in prop_oneof![0_i64..100_000_000, 0_i64..10_000_000_000_000],
        times in proptest::collection::btree_set(0_i64..4_300_000_000_000, 0..20),
        spec in proptest::sample::select(EXTREMES),
        rate: bool,
        zone in proptest::sample::select(vec!["UTC", "America/Sao_Paulo", "Pacific/Apia"]),
    ) {
        let rate = if rate { "rate:" } else { "" };
        let raw = RawQuery {
            start: Some(format!("{start}ms")),
            end: Some(format!("{}ms", (start + length).min(9_999_999_999_999))),
            timezone: Some(zone.to_owned()),
            queries: Some(vec![parse_m_parameter(&format!("sum:{spec}:{rate}m")).unwrap()]),
            ..RawQuery::default()
        };
        let query = raw.validate(&Clock::utc(0)).unwrap();
        let sub = &query.sub_queries[0];
        let interval = sub.downsample.as_ref().unwrap().interval_ms();
        let window = ScanWindow::raw(query.start_ms, query.end_ms, interval);
        let pipeline = SeriesPipeline::new(sub, &window, &query.zone).with_max_fill_points(10_000);
        let mut columns = PointColumns::default();
        for time in times {
            columns.push(time, Value::Integer(1));
        }
        let mut builder = pipeline.start();
        builder.push(&pipeline, &columns);
        if let Ok(Some(span)) = builder.finish(&pipeline, Bytes::new()) {
            prop_assert!(span.points.times_ms.is_sorted());
        }
    }
}
