//! Retries: whether a failed attempt is repeated, and the backoff before the next one.

use std::time::Duration;

/// Multiples of the first pause, by attempt; later attempts use the last.
const MULTIPLIERS: [u32; 13] = [1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200];

/// Pauses between the attempts of one operation.
///
/// They grow by HBase's own table, with a jitter of 20 % either way, so that the clients of a crashed
/// server do not retry simultaneously. The default maximum is a few seconds, whereas HBase's client
/// allows twenty: a region is retried at most that long after it becomes available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// First pause.
    pub base: Duration,
    /// First pause if the server is overloaded.
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

/// Bound on retries in the unit of HBase's clients, `hbase.client.retries.number`.
///
/// HBase's own client waits up to twenty seconds between two attempts; this client waits less. A
/// number that was chosen for those pauses therefore stands for their sum. This client makes at least
/// this many attempts, and continues until its own pauses have lasted as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimit {
    retries: usize,
}

impl RetryLimit {
    /// First pause of HBase's client, `hbase.client.pause`.
    const HBASE_PAUSE: Duration = Duration::from_millis(100);

    /// Allows this many retries, with the pauses of HBase's client.
    #[must_use]
    pub const fn new(retries: usize) -> Self {
        Self { retries }
    }

    /// Returns the sum of the pauses of HBase's client.
    #[must_use]
    pub fn pauses(self) -> Duration {
        let [.., last] = MULTIPLIERS;
        let listed: u32 = MULTIPLIERS.iter().take(self.retries).sum();
        let further = u32::try_from(self.retries.saturating_sub(MULTIPLIERS.len()));
        let further = further.unwrap_or(u32::MAX).saturating_mul(last);
        Self::HBASE_PAUSE.saturating_mul(listed.saturating_add(further))
    }

    /// True if no further retry is allowed after `failed` failed attempts. `paused` is the sum of the
    /// pauses between them and of the next pause.
    pub(crate) fn is_reached(self, failed: usize, paused: Duration) -> bool {
        failed > self.retries && paused > self.pauses()
    }
}

impl Backoff {
    /// Returns the pause after `attempt + 1` failed attempts. `random` is any number, for the jitter.
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

    /// Returns the pause of throttled actions of one region that were told to wait this long.
    ///
    /// The time is for all of them at once. Several actions are sent again in smaller calls, of which
    /// the first may be admitted sooner.
    pub(crate) fn throttled(&self, wait: Duration, actions: usize) -> Duration {
        if actions > 1 { wait.min(self.max) } else { wait }
    }
}

/// Whether and when a failed attempt is repeated. Later variants delay more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Retry {
    /// Without a pause.
    Immediately,
    /// After a backoff.
    Backoff {
        /// True for the longer backoff.
        overloaded: bool,
    },
    /// After exactly this time.
    After(Duration),
    /// Without a pause, in smaller calls.
    Split,
    /// Not at all.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded;

    /// A number without jitter: the middle of the range.
    const MIDDLE: u64 = 200;

    #[test]
    fn pauses_grow_by_the_table_of_hbase() {
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
    fn overload_pauses_are_longer_and_no_pause_exceeds_the_maximum() {
        let backoff = Backoff::default();
        assert_eq!(backoff.pause(0, true, MIDDLE), Duration::from_millis(500));
        assert_eq!(backoff.pause(12, true, MIDDLE), Duration::from_secs(5));
        let small = Backoff { overloaded: Duration::ZERO, ..backoff };
        assert_eq!(small.pause(0, true, MIDDLE), small.pause(0, false, MIDDLE));
    }

    #[test]
    fn jitter_is_a_fifth_either_way() {
        let backoff = Backoff::default();
        let pauses: Vec<_> = (0..401).map(|random| backoff.pause(0, false, random)).collect();
        assert_eq!(pauses.first(), Some(&Duration::from_millis(80)));
        assert_eq!(pauses.last(), Some(&Duration::from_millis(120)));
    }
}
