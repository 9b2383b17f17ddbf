//! How many new names get UIDs in a second.
//!
//! A deployment that names a million new series at once would otherwise take the store's time from the points of
//! all others. Names wait for their turn; none fails for that.

use std::time::Duration;

use tokio::time::Instant;

/// So much time's names may be assigned at once after a rest.
const BURST: Duration = Duration::from_secs(1);

/// A limit on the rate of assignments, and when the next ones are due.
#[derive(Debug)]
pub(super) struct AssignRate {
    /// Names in a second; `None`: no limit.
    limit: Option<u32>,
    /// When all names that have begun are due, if they came at the rate of the limit.
    due: Option<Instant>,
}

impl AssignRate {
    /// A limit of so many names in a second; 0: none.
    pub(super) const fn new(limit: u32) -> Self {
        Self { limit: if limit == 0 { None } else { Some(limit) }, due: None }
    }

    /// Most names of a batch, so that none waits for others for more than a second.
    pub(super) fn largest_batch(&self, most: usize) -> usize {
        self.limit.map_or(most, |limit| most.min(usize::try_from(limit).unwrap_or(most)))
    }

    /// Takes the next names in. Returns until when they wait, if they do.
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
        // Names, when they come, when they begin: a second's names at once, later ones one after the other.
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
