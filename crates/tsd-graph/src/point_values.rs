//! Points as times and doubles.

use tsd_model::{PointColumns, ValueKinds};

/// The points from index `from` to `to`, exclusive: milliseconds and value.
pub(crate) fn values_between(
    points: &PointColumns,
    (from, to): (usize, usize),
) -> impl Iterator<Item = (i64, f64)> + Clone + '_ {
    let times = points.times_ms.get(from..to).unwrap_or_default();
    let bits = points.bits.get(from..to).unwrap_or_default();
    times.iter().zip(bits).enumerate().map(move |(at, (time_ms, bits))| {
        let is_integer = match &points.kinds {
            ValueKinds::AllIntegers => true,
            ValueKinds::AllFloats => false,
            ValueKinds::Mixed(flags) => flags.get(from + at).copied().unwrap_or(false),
        };
        let value = if is_integer { *bits as i64 as f64 } else { f64::from_bits(*bits) };
        (*time_ms, value)
    })
}

/// Index range (end exclusive) of the points between two times, both inclusive.
pub(crate) fn indexes_within(
    points: &PointColumns,
    (start_ms, end_ms): (i64, i64),
) -> (usize, usize) {
    let from = points.times_ms.partition_point(|time| *time < start_ms);
    let to = points.times_ms.partition_point(|time| *time <= end_ms);
    (from, to.max(from))
}

#[cfg(test)]
mod tests {
    use tsd_model::Value;

    use super::*;

    #[test]
    fn integers_and_doubles_become_doubles() {
        let mut points = PointColumns::default();
        points.push(1_000, Value::Integer(-3));
        points.push(2_000, Value::Float(0.5));
        points.push(3_000, Value::Integer(7));
        let all: Vec<(i64, f64)> = values_between(&points, (0, 3)).collect();
        assert_eq!(all, [(1_000, -3.0), (2_000, 0.5), (3_000, 7.0)]);
        assert_eq!(values_between(&points, (1, 2)).collect::<Vec<_>>(), [(2_000, 0.5)]);
        assert_eq!(indexes_within(&points, (1_001, 3_000)), (1, 3));
        assert_eq!(indexes_within(&points, (5_000, 6_000)), (3, 3));
        assert_eq!(indexes_within(&points, (3_500, 900)), (3, 3));
    }
}
