//! Percentile estimation as in Commons Math.

/// Estimation method: the rank of a percentile among `n` sorted values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Estimation {
    /// Position `q·(n+1)`.
    Legacy,
    /// Nearest even order statistic.
    R3,
    /// Position `1+(n−1)·q`.
    R7,
}

/// The `quantile` (0 to 1) of values in ascending order; NaN without values.
#[must_use]
pub fn percentile(sorted: &[f64], quantile: f64, estimation: Estimation) -> f64 {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return f64::NAN };
    let n = sorted.len() as f64;
    let position = match estimation {
        Estimation::Legacy => quantile * (n + 1.0),
        Estimation::R3 if quantile <= 0.5 / n => 0.0,
        Estimation::R3 => (n * quantile).round_ties_even(),
        Estimation::R7 => 1.0 + (n - 1.0) * quantile,
    };
    if sorted.len() == 1 || position < 1.0 {
        return *first;
    }
    if position >= n {
        return *last;
    }
    let below = position.floor();
    match (sorted.get(below as usize - 1), sorted.get(below as usize)) {
        (Some(lower), Some(upper)) => lower + (position - below) * (upper - lower),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimation_methods_differ_between_ranks() {
        let values = [15.0, 20.0, 35.0, 40.0, 50.0];
        let check = |quantile, estimation, expected: f64| {
            let got = percentile(&values, quantile, estimation);
            assert!((got - expected).abs() < 1e-9, "{quantile} {estimation:?}: {got}");
        };
        check(0.75, Estimation::Legacy, 45.0);
        check(0.75, Estimation::R3, 40.0);
        check(0.90, Estimation::R3, 40.0);
        check(0.90, Estimation::R7, 46.0);
        check(0.999, Estimation::Legacy, 50.0);
        check(0.1, Estimation::Legacy, 15.0);
    }

    #[test]
    fn single_value_is_every_percentile_and_no_values_are_nan() {
        assert!((percentile(&[7.0], 0.999, Estimation::R7) - 7.0).abs() < f64::EPSILON);
        assert!(percentile(&[], 0.5, Estimation::Legacy).is_nan());
    }
}
