//! How long to wait before the next attempt.

use std::time::Duration;

/// Multiples of the first pause, attempt by attempt; the last is kept.
const MULTIPLIERS: [u32; 13] = [1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200];

/// Pauses between attempts of one operation.
///
/// They grow by HBase's own table, and differ by a fifth either way: after the death of a server
/// its clients should not come back in step. By default they end at a few seconds, where HBase's own
/// client goes on to twenty: that is how long a region that is back may go unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// First pause.
    pub base: Duration,
    /// First pause when the server has too much to do.
    pub overloaded: Duration,
    /// Longest pause.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            overloaded: Duration::from_millis(500),
            max: Duration::from_secs(5),
        }
    }
}

impl Backoff {
    /// Pause before attempt `attempt + 2`; `random` is any number, for the difference.
    #[must_use]
    pub fn pause(&self, attempt: usize, overloaded: bool, random: u64) -> Duration {
        let base = if overloaded { self.overloaded.max(self.base) } else { self.base };
        let [.., last] = MULTIPLIERS;
        let multiplier = MULTIPLIERS.get(attempt).copied().unwrap_or(last);
        let pause = base.saturating_mul(multiplier).min(self.max);
        // 800 to 1200 thousandths.
        let share = 800 + u32::try_from(random % 401).unwrap_or_default();
        pause.saturating_mul(share) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded;

    /// Any number whose share is one: the middle of the range.
    const MIDDLE: u64 = 200;

    #[test]
    fn pauses_grow_by_hbases_table() {
        let backoff = Backoff { max: Duration::MAX, ..Backoff::default() };
        let multipliers = recorded::table("retry_backoff_multipliers");
        assert_eq!(multipliers.len(), MULTIPLIERS.len());
        for (attempt, multiplier) in multipliers.iter().enumerate() {
            let expected = Duration::from_millis(100 * multiplier.as_u64().unwrap());
            assert_eq!(backoff.pause(attempt, false, MIDDLE), expected);
        }
        assert_eq!(backoff.pause(1_000, false, MIDDLE), Duration::from_secs(20));
    }

    #[test]
    fn overload_waits_longer_and_nothing_waits_longer_than_the_bound() {
        let backoff = Backoff::default();
        assert_eq!(backoff.pause(0, true, MIDDLE), Duration::from_millis(500));
        assert_eq!(backoff.pause(12, true, MIDDLE), Duration::from_secs(5));
        let small = Backoff { overloaded: Duration::ZERO, ..backoff };
        assert_eq!(small.pause(0, true, MIDDLE), small.pause(0, false, MIDDLE));
    }

    #[test]
    fn pauses_differ_by_a_fifth_either_way() {
        let backoff = Backoff::default();
        let pauses: Vec<_> = (0..401).map(|random| backoff.pause(0, false, random)).collect();
        assert_eq!(pauses.first(), Some(&Duration::from_millis(80)));
        assert_eq!(pauses.last(), Some(&Duration::from_millis(120)));
    }
}
