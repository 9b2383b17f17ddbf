//! The integer forms of aggregators: wrapping sums, truncating divisions.

use super::{Aggregator, floats::deviation, percentile};

/// Aggregates integers in the given order; 0 without values.
///
/// May reorder `values`: order statistics sort in place.
#[must_use]
pub(crate) fn aggregate_integers(aggregator: Aggregator, values: &mut [i64]) -> i64 {
    let first = values.first().copied().unwrap_or(0);
    match aggregator {
        Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum => sum(values),
        Aggregator::Min | Aggregator::Mimmin => values.iter().copied().min().unwrap_or(0),
        Aggregator::Max | Aggregator::Mimmax => values.iter().copied().max().unwrap_or(0),
        Aggregator::Avg => sum(values).wrapping_div((values.len() as i64).max(1)),
        Aggregator::Mult => values.iter().fold(1, |product: i64, v| product.wrapping_mul(*v)),
        Aggregator::Dev => deviation(values.iter().map(|v| *v as f64)) as i64,
        Aggregator::Diff => values.last().copied().unwrap_or(0).wrapping_sub(first),
        Aggregator::Count => values.len() as i64,
        Aggregator::First | Aggregator::None => first,
        Aggregator::Last => values.last().copied().unwrap_or(0),
        Aggregator::SquareSum => {
            values.iter().fold(0, |total: i64, v| total.wrapping_add(v.wrapping_mul(*v)))
        }
        Aggregator::Median => {
            let middle = values.len() / 2;
            if values.is_empty() { 0 } else { *values.select_nth_unstable(middle).1 }
        }
        Aggregator::Percentile(which) => {
            let mut doubles: Vec<f64> = values.iter().map(|v| *v as f64).collect();
            doubles.sort_unstable_by(f64::total_cmp);
            percentile(&doubles, which.quantile(), which.estimation()) as i64
        }
    }
}

fn sum(values: &[i64]) -> i64 {
    values.iter().fold(0, |total: i64, v| total.wrapping_add(*v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, values: &[i64], expected: i64) {
        let aggregator = Aggregator::from_name(name).unwrap_or(Aggregator::None);
        assert_eq!(aggregate_integers(aggregator, &mut values.to_vec()), expected, "{name}");
    }

    #[test]
    fn sums_wrap_and_averages_truncate_toward_zero() {
        check("sum", &[i64::MAX, 1], i64::MIN);
        check("avg", &[1, 2], 1);
        check("avg", &[-1, -2], -1);
        check("mult", &[i64::MAX, 2], -2);
        check("squareSum", &[3, -4], 25);
    }

    #[test]
    fn order_matters_to_first_last_and_diff() {
        check("first", &[3, 9, 5], 3);
        check("last", &[3, 9, 5], 5);
        check("diff", &[3, 9, 5], 2);
        check("diff", &[3], 0);
        check("count", &[3, 9, 5], 3);
    }

    #[test]
    fn order_statistics() {
        check("median", &[5, 2, -1, 400, 3, -42], 3);
        check("min", &[5, 2, -1], -1);
        check("mimmax", &[5, 2, -1], 5);
        check("ep75r3", &[15, 20, 35, 40, 50], 40);
        check("p75", &[15, 20, 35, 40, 50], 45);
        check("dev", &[1, 300], 149);
        check("dev", &[7], 0);
    }
}
