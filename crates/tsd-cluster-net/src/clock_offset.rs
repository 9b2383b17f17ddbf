//! How far the clocks of nodes differ, from the exchanges that measured them.

use std::time::Duration;

/// How far the clock of another node is ahead of this node's clock, measured by one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// Difference at the middle of the exchange, milliseconds.
    pub(crate) ahead_ms: i64,
    /// Uncertainty of that difference: half of the round trip, milliseconds.
    pub(crate) error_ms: i64,
}

/// Returns how far this node's clock is ahead of the median of the others, milliseconds; negative if it is
/// behind. Differences within the uncertainty of the exchanges count as agreement. For an even number of nodes,
/// every time between the middle two does as well.
pub(crate) fn ahead_of_median(others: &[ClockOffset]) -> i64 {
    let mut least: Vec<i64> = others.iter().map(|of| -of.ahead_ms - of.error_ms).collect();
    let mut most: Vec<i64> = others.iter().map(|of| -of.ahead_ms + of.error_ms).collect();
    least.sort_unstable();
    most.sort_unstable();
    let Some(last) = others.len().checked_sub(1) else { return 0 };
    let least = least.get(last / 2).copied().unwrap_or_default();
    let most = most.get(others.len() / 2).copied().unwrap_or_default();
    if least > 0 { least } else { most.min(0) }
}

/// True if the skew of a clock exceeds the limit.
pub(crate) fn is_skewed(ahead_ms: i64, max_skew: Duration) -> bool {
    u128::from(ahead_ms.unsigned_abs()) > max_skew.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(others: &[(i64, i64)], expected: i64) {
        let offset = |(ahead_ms, error_ms): &(i64, i64)| ClockOffset {
            ahead_ms: *ahead_ms,
            error_ms: *error_ms,
        };
        let others: Vec<ClockOffset> = others.iter().map(offset).collect();
        assert_eq!(ahead_of_median(&others), expected, "{others:?}");
    }

    #[test]
    fn one_clock_that_differs_is_not_the_median() {
        check(&[], 0);
        check(&[(700, 0)], -700);
        check(&[(-700, 0)], 700);
        check(&[(0, 0), (9_000, 0)], 0);
        check(&[(500, 0), (9_000, 0)], -500);
        check(&[(1, 0), (9_000, 0), (-2, 0)], -1);
    }

    #[test]
    fn a_slow_exchange_proves_little() {
        check(&[(700, 1_000)], 0);
        check(&[(700, 300)], -400);
        check(&[(-700, 300)], 400);
        check(&[(700, 0), (700, 1_000), (700, 0)], -700);
    }

    #[test]
    fn a_clock_may_be_off_by_the_limit() {
        let limit = Duration::from_millis(500);
        assert_eq!(
            [500, -500, 501, -501].map(|ms| is_skewed(ms, limit)),
            [false, false, true, true]
        );
    }
}
