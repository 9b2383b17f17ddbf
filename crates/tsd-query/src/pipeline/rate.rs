//! Rates of one series.
//!
//! As in OpenTSDB, a series starts with a virtual point (time 0, value 0), so even a single point
//! has a rate: the first entry of [`rates`]. The time of this virtual first rate is never part of a
//! result. Until its second point the series contributes this rate to its group.

use tsd_model::{PointColumns, Value};

use crate::{number::as_double, request::RateOptions};

/// Rates between successive points; the first is relative to the virtual point before the series.
pub(super) fn rates(points: &PointColumns, options: &RateOptions) -> PointColumns {
    let mut rates = PointColumns::default();
    rates.times_ms.reserve_exact(points.len());
    rates.bits.reserve_exact(points.len());
    let mut before = (0_i64, Value::Integer(0));
    for (i, time) in points.times_ms.iter().enumerate() {
        let Some(value) = points.value(i) else { break };
        if let Some(rate) = rate_between(before, (*time, value), options) {
            rates.push(*time, Value::Float(rate));
        }
        before = (*time, value);
    }
    rates
}

/// Rate per second between two points; `None` at a counter reset if resets are dropped.
fn rate_between(
    (t0, v0): (i64, Value),
    (t1, v1): (i64, Value),
    options: &RateOptions,
) -> Option<f64> {
    let seconds = (t1 - t0) as f64 / 1000.0;
    let (delta, wrapped) = if let (Value::Integer(v0), Value::Integer(v1)) = (v0, v1) {
        let wrapped = options.counter_max.wrapping_sub(v0).wrapping_add(v1);
        (v1.wrapping_sub(v0) as f64, wrapped as f64)
    } else {
        let (v0, v1) = (as_double(v0), as_double(v1));
        (v1 - v0, options.counter_max as f64 - v0 + v1)
    };
    if options.counter && delta < 0.0 {
        if options.drop_resets {
            return None;
        }
        let rate = wrapped / seconds;
        if options.reset_value > 0 && rate > options.reset_value as f64 {
            return Some(0.0);
        }
        return Some(rate);
    }
    Some(delta / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(points: &[(i64, Value)], options: RateOptions, expected: &[(i64, f64)]) {
        let mut columns = PointColumns::default();
        for (secs, value) in points {
            columns.push(secs * 1000, *value);
        }
        let got = rates(&columns, &options);
        let got: Vec<_> = (0..got.len())
            .filter_map(|i| match (got.times_ms.get(i), got.value(i)) {
                (Some(time), Some(Value::Float(rate))) => Some((time / 1000, rate)),
                _ => None,
            })
            .collect();
        assert_eq!(got, expected);
    }

    const PLAIN: RateOptions =
        RateOptions { counter: false, counter_max: i64::MAX, reset_value: 0, drop_resets: false };

    #[test]
    fn first_rate_is_relative_to_the_epoch() {
        let points = [(100, Value::Integer(50)), (110, Value::Integer(60))];
        check(&points, PLAIN, &[(100, 0.5), (110, 1.0)]);
    }

    #[test]
    fn counter_resets_wrap_or_are_dropped() {
        let points: Vec<_> =
            [(1, 40), (2, 50), (3, 40)].map(|(t, v)| (t, Value::Integer(v))).into();
        let counter = RateOptions { counter: true, counter_max: 70, ..PLAIN };
        check(&points, counter, &[(1, 40.0), (2, 10.0), (3, 60.0)]);
        check(
            &points,
            RateOptions { reset_value: 1, ..counter },
            &[(1, 40.0), (2, 10.0), (3, 0.0)],
        );
        check(&points, RateOptions { drop_resets: true, ..counter }, &[(1, 40.0), (2, 10.0)]);
        check(
            &points,
            RateOptions { drop_resets: true, ..PLAIN },
            &[(1, 40.0), (2, 10.0), (3, -10.0)],
        );
    }

    #[test]
    fn integer_differences_wrap_and_mixed_ones_are_doubles() {
        let points = [(1, Value::Integer(i64::MAX)), (2, Value::Integer(i64::MIN))];
        check(&points, PLAIN, &[(1, i64::MAX as f64), (2, 1.0)]);
        let points = [(1, Value::Integer(1)), (2, Value::Float(1.5))];
        check(&points, PLAIN, &[(1, 1.0), (2, 0.5)]);
    }
}
