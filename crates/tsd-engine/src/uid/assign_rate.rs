//! Limits how many new names get UIDs per second.
//!
//! A deployment that creates a million series at once would otherwise take the store's time from the points of all
//! others. Names wait; the limit never makes a name fail.

use std::time::Duration;

use tokio::time::Instant;

/// Burst: after a rest, the names of this much time may be assigned at once.
const BURST: Duration = Duration::from_secs(1);

/// A limit on the rate of assignments, with the state that enforces it.
#[derive(Debug)]
pub(super) struct AssignRate {
    /// Names per second; `None` means no limit.
    limit: Option<u32>,
    /// When the names admitted so far would end, if they came exactly at the limit.
    due: Option<Instant>,
}

impl AssignRate {
    /// A limit of this many names per second; 0 means no limit.
    pub(super) const fn new(limit: u32) -> Self {
        Self { limit: if limit == 0 { None } else { Some(limit) }, due: None }
    }

    /// Largest batch, at most `most` names, so that no name waits longer than a second for others of its batch.
    pub(super) fn largest_batch(&self, most: usize) -> usize {
        self.limit.map_or(most, |limit| most.min(usize::try_from(limit).unwrap_or(most)))
    }

    /// Admits the next names. Returns the time at which they may begin; `None` if they may begin now.
    pub(super) fn reserve(&mut self, names: usize, now: Instant) -> Option<Instant> {
        let limit = self.limit?;
        let time = Duration::from_secs_f64(names as f64 / f64::from(limit));
        let due = self.due.map_or(now, |due| due.max(now)) + time;
        self.due = Some(due);
        Some(due.checked_sub(BURST)?).filter(|begin| *begin > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_at_the_rate_after_a_burst() {
        let (mut rate, start) = (AssignRate::new(100), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        // Names, arrival, and begin: a second's worth of names begins at once, later names one after the other.
        for (names, now, begin) in [
            (60, 0, None),
            (40, 0, None),
            (10, 0, Some(100)),
            (10, 50, Some(200)),
            (50, 200, Some(700)),
            (1, 1_700, None),
            (100, 9_000, None),
            (100, 9_000, Some(10_000)),
        ] {
            assert_eq!(rate.reserve(names, at(now)), begin.map(at), "{names} at {now}");
        }
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut rate = AssignRate::new(0);
        assert_eq!(rate.reserve(usize::MAX, Instant::now()), None);
        assert_eq!(rate.reserve(1, Instant::now()), None);
        assert_eq!((rate.largest_batch(9), AssignRate::new(5).largest_batch(9)), (9, 5));
    }
}
