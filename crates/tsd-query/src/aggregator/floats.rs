//! The floating-point forms of aggregators; most treat NaN as a missing value.

use super::{Aggregator, Estimation, percentile};

/// Aggregates doubles in the given order.
///
/// May reorder `values`: order statistics sort in place.
#[must_use]
pub(crate) fn aggregate_floats(aggregator: Aggregator, values: &mut [f64]) -> f64 {
    match aggregator {
        Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum => {
            let (total, n) = sum(values.iter().copied());
            if n == 0 { f64::NAN } else { total }
        }
        Aggregator::SquareSum => {
            let (total, n) = sum(values.iter().map(|v| v * v));
            if n == 0 { f64::NAN } else { total }
        }
        Aggregator::Avg => {
            let (total, n) = sum(values.iter().copied());
            if n == 0 { f64::NAN } else { total / n as f64 }
        }
        Aggregator::Min | Aggregator::Mimmin => extreme(values, |v, best| v < best),
        Aggregator::Max | Aggregator::Mimmax => extreme(values, |v, best| v > best),
        Aggregator::Mult => values.iter().fold(1.0, |product, v| product * v),
        Aggregator::Dev => deviation(values.iter().copied()),
        Aggregator::Diff => difference(values),
        Aggregator::Count => values.iter().filter(|v| !v.is_nan()).count() as f64,
        Aggregator::First | Aggregator::None => values.first().copied().unwrap_or(f64::NAN),
        Aggregator::Last => values.last().copied().unwrap_or(f64::NAN),
        Aggregator::Median => {
            let sorted = sort(values);
            sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
        }
        Aggregator::Percentile(which) => {
            percentile(sort(values), which.quantile(), Estimation::Legacy)
        }
    }
}

fn sum(values: impl Iterator<Item = f64>) -> (f64, usize) {
    values.filter(|v| !v.is_nan()).fold((0.0, 0), |(total, n), v| (total + v, n + 1))
}

/// The extreme value, or the first of equal extremes; NaN without values.
fn extreme(values: &[f64], beats: impl Fn(f64, f64) -> bool) -> f64 {
    let mut best = f64::NAN;
    for v in values {
        if best.is_nan() || beats(*v, best) {
            best = *v;
        }
    }
    best
}

pub(super) fn deviation(values: impl Iterator<Item = f64>) -> f64 {
    let mut present = values.filter(|v| !v.is_nan());
    let Some(mut mean) = present.next() else { return f64::NAN };
    let mut m2 = 0.0;
    let mut n = 1.0;
    for x in present {
        n += 1.0;
        let next_mean = mean + (x - mean) / n;
        m2 += (x - mean) * (x - next_mean);
        mean = next_mean;
    }
    (m2 / n).sqrt()
}

/// Last value minus the first value that is not NaN; 0 if no value follows it.
fn difference(values: &[f64]) -> f64 {
    let Some(at) = values.iter().position(|v| !v.is_nan()) else { return f64::NAN };
    match values.get(at..) {
        Some([first, .., last]) => last - first,
        _ => 0.0,
    }
}

/// Moves NaN to the end, sorts the rest and returns it.
fn sort(values: &mut [f64]) -> &[f64] {
    let mut present = 0;
    for i in 0..values.len() {
        if values.get(i).is_some_and(|v| !v.is_nan()) {
            values.swap(i, present);
            present += 1;
        }
    }
    let (present, _) = values.split_at_mut(present);
    present.sort_unstable_by(f64::total_cmp);
    present
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f64 = f64::NAN;

    #[track_caller]
    fn check(name: &str, values: &[f64], expected: f64) {
        let aggregator = Aggregator::from_name(name).unwrap_or(Aggregator::None);
        let got = aggregate_floats(aggregator, &mut values.to_vec());
        assert!(
            got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()),
            "{name} of {values:?}: {got}"
        );
    }

    #[test]
    fn most_aggregators_ignore_nan() {
        check("sum", &[NAN, 1.0, 2.0], 3.0);
        check("avg", &[NAN, 1.0, 2.0], 1.5);
        check("min", &[NAN, 2.0, 1.0], 1.0);
        check("max", &[NAN, 1.0, 2.0], 2.0);
        check("dev", &[NAN, 1.0, NAN, 3.0], 1.0);
        check("count", &[NAN, 1.0, 2.0], 2.0);
        check("median", &[NAN, 3.0, 1.0, 2.0], 2.0);
        check("squareSum", &[3.0, NAN, 4.0], 25.0);
    }

    #[test]
    fn only_nan_values() {
        for name in ["sum", "avg", "min", "max", "dev", "median", "p99", "squareSum", "diff"] {
            check(name, &[NAN, NAN], NAN);
        }
        check("count", &[NAN, NAN], 0.0);
    }

    #[test]
    fn nan_counts_for_positions_and_products() {
        check("mult", &[2.0, NAN], NAN);
        check("first", &[NAN, 1.0], NAN);
        check("last", &[1.0, NAN], NAN);
        check("diff", &[1.0, NAN], NAN);
        check("diff", &[NAN, 10.0], 0.0);
        check("diff", &[NAN, 10.0, 13.0], 3.0);
    }

    #[test]
    fn doubles_always_use_legacy_estimation() {
        check("ep75r3", &[15.0, 20.0, 35.0, 40.0, 50.0], 45.0);
        check("dev", &[5.0], 0.0);
    }
}
