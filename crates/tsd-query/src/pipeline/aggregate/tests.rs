#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::aggregator::{Interpolation, aggregate_floats, aggregate_integers};

type Point = (i64, Value);

fn columns(points: &[(i64, Value)]) -> PointColumns {
    let mut columns = PointColumns::default();
    for (time, value) in points {
        columns.push(*time, *value);
    }
    columns
}

/// Reference implementation: one time after the other.
fn aggregate_by_time(input: &AggregateInput<'_>) -> Result<Vec<(i64, Value)>, QueryError> {
    let skipped = usize::from(input.is_rate);
    let mut times: Vec<i64> =
        input.series.iter().flat_map(|s| s.times_ms.iter().skip(skipped).copied()).collect();
    times.retain(|time| (input.from_ms..=input.to_ms).contains(time));
    times.sort_unstable();
    times.dedup();
    let double = |value| match value {
        Value::Integer(v) => v as f64,
        Value::Float(v) => v,
    };
    let mut result = Vec::new();
    for x in times {
        let mut is_float = input.is_rate;
        let mut active: Vec<(i64, Value, Option<Point>)> = Vec::new();
        for s in input.series {
            let point = |i: usize| (s.times_ms[i], s.value(i).unwrap());
            let Some(last) = s.times_ms.last() else { continue };
            if x > *last || input.is_rate && s.len() < 2 {
                continue;
            }
            let next = s.times_ms.iter().position(|time| *time > x);
            let current = next.unwrap_or(s.len()).checked_sub(1);
            let current = current.or_else(|| input.is_rate.then_some(0));
            let indexes = [current, next].into_iter().flatten();
            is_float |= indexes.clone().any(|i| !s.is_integer(i));
            if let Some(current) = current {
                let (time, value) = point(current);
                active.push((time, value, next.map(point)));
            }
        }
        let interpolation = input.aggregator.interpolation();
        if is_float {
            let mut values: Vec<f64> = active
                .iter()
                .map(|(x0, y0, next)| match next {
                    _ if *x0 == x || input.is_rate => double(*y0),
                    None => double(*y0),
                    Some((x1, y1)) => match interpolation {
                        Interpolation::Linear => {
                            let (y0, y1) = (double(*y0), double(*y1));
                            y0 + ((x - x0) as f64 * (y1 - y0)) / (x1 - x0) as f64
                        }
                        Interpolation::Zero => 0.0,
                        Interpolation::Max => f64::MAX,
                        Interpolation::Min => f64::MIN,
                        Interpolation::Previous => double(*y0),
                    },
                })
                .collect();
            let value = aggregate_floats(input.aggregator, &mut values);
            if value.is_infinite() {
                return Err(DataError::Infinite { negative: value < 0.0 }.into());
            }
            result.push((x, Value::Float(value)));
        } else {
            let int = |value| match value {
                Value::Integer(v) => v,
                Value::Float(_) => unreachable!("integers only"),
            };
            let mut values: Vec<i64> = active
                .iter()
                .map(|(x0, y0, next)| match next {
                    _ if *x0 == x => int(*y0),
                    None => int(*y0),
                    Some((x1, y1)) => match interpolation {
                        Interpolation::Linear => {
                            let rise = int(*y1).wrapping_sub(int(*y0));
                            int(*y0).wrapping_add((x - x0).wrapping_mul(rise) / (x1 - x0))
                        }
                        Interpolation::Zero => 0,
                        Interpolation::Max => i64::MAX,
                        Interpolation::Min => i64::MIN,
                        Interpolation::Previous => int(*y0),
                    },
                })
                .collect();
            result.push((x, Value::Integer(aggregate_integers(input.aggregator, &mut values))));
        }
    }
    Ok(result)
}

/// Values as bits, so that NaN equals NaN.
fn bits(points: &[(i64, Value)]) -> Vec<(i64, bool, u64)> {
    points
        .iter()
        .map(|(time, value)| match value {
            Value::Integer(v) => (*time, true, *v as u64),
            Value::Float(v) if v.is_nan() => (*time, false, f64::NAN.to_bits()),
            Value::Float(v) => (*time, false, v.to_bits()),
        })
        .collect()
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (-1000_i64..1000).prop_map(Value::Integer),
        1 => any::<i64>().prop_map(Value::Integer),
        3 => (-1e6..1e6).prop_map(Value::Float),
        1 => Just(Value::Float(f64::NAN)),
        1 => Just(Value::Float(-0.0)),
    ]
}

/// Series on a coarse grid of times, so that some times are shared.
fn series() -> impl Strategy<Value = PointColumns> {
    let mixed = proptest::collection::btree_map((0_i64..60).prop_map(|t| t * 500), value(), 0..20);
    let integers = proptest::collection::btree_map(
        (0_i64..60).prop_map(|t| t * 500),
        any::<i32>().prop_map(|v| Value::Integer(v.into())),
        0..20,
    );
    let double = prop_oneof![
        6 => -1e6..1e6,
        1 => Just(f64::NAN),
        1 => Just(-0.0),
    ];
    let floats = proptest::collection::btree_map(
        (0_i64..60).prop_map(|t| t * 500),
        double.prop_map(Value::Float),
        0..20,
    );
    prop_oneof![mixed, integers, floats]
        .prop_map(|points| columns(&points.into_iter().collect::<Vec<_>>()))
}

fn aggregator() -> impl Strategy<Value = Aggregator> {
    proptest::sample::select(Aggregator::names().collect::<Vec<_>>())
        .prop_map(|name| Aggregator::from_name(name).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn aggregation_by_blocks_equals_aggregation_by_time(
        series in proptest::collection::vec(series(), 0..6),
        aggregator in aggregator(),
        from_ms in -5_i64..20_000, length in 0_i64..40_000,
    ) {
        let series: Vec<_> = series.iter().collect();
        let input =
            AggregateInput { aggregator, is_rate: false, series: &series, from_ms, to_ms: from_ms + length };
        let got = aggregate(&input).map(|columns| {
            let points: Vec<_> =
                (0..columns.len()).map(|i| (columns.times_ms[i], columns.value(i).unwrap())).collect();
            bits(&points)
        });
        let expected = aggregate_by_time(&input).map(|points| bits(&points));
        prop_assert_eq!(got.map_err(|_| ()), expected.map_err(|_| ()));
    }

    #[test]
    fn time_chunks_add_up_to_the_whole_range(
        series in proptest::collection::vec(series(), 1..4),
        aggregator in aggregator(),
        cuts in proptest::collection::btree_set(0_i64..30_000, 0..5),
    ) {
        let series: Vec<_> = series.iter().collect();
        let over = |from_ms, to_ms| {
            let input = AggregateInput { aggregator, is_rate: false, series: &series, from_ms, to_ms };
            aggregate(&input).map(|columns| {
                let points: Vec<_> =
                    (0..columns.len()).map(|i| (columns.times_ms[i], columns.value(i).unwrap())).collect();
                bits(&points)
            })
        };
        let Ok(whole) = over(0, 30_000) else { return Ok(()) };
        let mut from = 0;
        let mut joined = Vec::new();
        for cut in cuts {
            joined.extend(over(from, cut).unwrap());
            from = cut + 1;
        }
        joined.extend(over(from, 30_000).unwrap());
        prop_assert_eq!(joined, whole);
    }

    #[test]
    fn rates_are_carried_forward_and_start_early(
        series in proptest::collection::vec(
            proptest::collection::btree_map((1_i64..60).prop_map(|t| t * 500), -1e6..1e6, 0..12),
            0..5,
        ),
        aggregator in aggregator(),
    ) {
        let series: Vec<_> = series
            .into_iter()
            .map(|points| points.into_iter().map(|(t, v)| (t, Value::Float(v))).collect::<Vec<_>>())
            .map(|points| columns(&points))
            .collect();
        let series: Vec<_> = series.iter().collect();
        let input =
            AggregateInput { aggregator, is_rate: true, series: &series, from_ms: 0, to_ms: 25_000 };
        let got = aggregate(&input).unwrap();
        let got: Vec<_> = (0..got.len()).map(|i| (got.times_ms[i], got.value(i).unwrap())).collect();
        prop_assert_eq!(bits(&got), bits(&aggregate_by_time(&input).unwrap()));
    }
}

#[test]
fn times_of_many_series_are_united() {
    let series: Vec<_> = (0..200_i64)
        .map(|i| columns(&[(i, Value::Integer(1)), (1000 + i * 7, Value::Integer(1))]))
        .collect();
    let series: Vec<_> = series.iter().collect();
    let input = AggregateInput {
        aggregator: Aggregator::Zimsum,
        is_rate: false,
        series: &series,
        from_ms: 0,
        to_ms: 2000,
    };
    let got = aggregate(&input).unwrap();
    let expected = aggregate_by_time(&input).unwrap();
    let got: Vec<_> = (0..got.len()).map(|i| (got.times_ms[i], got.value(i).unwrap())).collect();
    assert_eq!(got, expected);
}

#[test]
fn infinity_is_an_error() {
    let series = columns(&[(1, Value::Float(f64::MAX))]);
    let error_of = |series: &[&PointColumns]| {
        let input = AggregateInput {
            aggregator: Aggregator::Sum,
            is_rate: false,
            series,
            from_ms: 0,
            to_ms: 10,
        };
        aggregate(&input).unwrap_err()
    };
    assert_eq!(error_of(&[&series, &series]), DataError::Infinite { negative: false }.into());
    let series = columns(&[(1, Value::Float(1.0)), (2, Value::Float(f64::NEG_INFINITY))]);
    assert_eq!(error_of(&[&series]), DataError::Infinite { negative: true }.into());
}

#[test]
fn failed_check_ends_aggregation() {
    let series = columns(&[(1, Value::Integer(1)), (2, Value::Integer(1))]);
    let many = vec![&series; 1_000];
    let input = AggregateInput {
        aggregator: Aggregator::Sum,
        is_rate: false,
        series: &many,
        from_ms: 0,
        to_ms: 10,
    };
    let mut remaining = 4;
    let stopped = aggregate_with(&input, &mut || {
        remaining -= 1;
        if remaining > 0 { Ok(()) } else { Err(QueryError::Ended) }
    });
    assert_eq!(stopped.unwrap_err(), QueryError::Ended);
}
