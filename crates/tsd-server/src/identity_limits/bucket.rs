//! An allowance that refills at a constant rate.

use std::time::Duration;

use tokio::time::Instant;

/// Rate and size of an allowance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Refill a second.
    pub(super) rate: f64,
    /// Most that may be taken at once after a rest.
    pub(super) burst: f64,
}

/// What was taken and is not refilled yet. The rate may change between two calls.
#[derive(Debug)]
pub(super) struct Bucket {
    taken: f64,
    at: Instant,
    /// Rate of the last call.
    rate: f64,
}

impl Bucket {
    pub(super) const fn new(now: Instant) -> Self {
        Self { taken: 0.0, at: now, rate: 0.0 }
    }

    /// Takes `count`, also more than is left: the bucket then owes the rest. Returns the time until it owes nothing.
    pub(super) fn take_on_credit(
        &mut self,
        now: Instant,
        allowance: Allowance,
        count: u64,
    ) -> Duration {
        self.refill(now, allowance.rate);
        self.taken += count as f64;
        self.owed(allowance)
    }

    /// Takes `count` like [`Self::take_on_credit`], unless the bucket owes something; fails with the time until it
    /// owes nothing.
    pub(super) fn take_unless_owing(
        &mut self,
        now: Instant,
        allowance: Allowance,
        count: u64,
    ) -> Result<(), Duration> {
        match self.take_on_credit(now, allowance, 0) {
            Duration::ZERO => {
                self.taken += count as f64;
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// Takes one; fails with the time until one is left.
    pub(super) fn take_one(&mut self, now: Instant, allowance: Allowance) -> Result<(), Duration> {
        match self.take_on_credit(now, allowance, 1) {
            Duration::ZERO => Ok(()),
            wait => {
                self.put_back_one();
                Err(wait)
            }
        }
    }

    /// Returns one that was taken and not used.
    pub(super) fn put_back_one(&mut self) {
        self.taken = (self.taken - 1.0).max(0.0);
    }

    /// Returns true if the bucket is full again, so that it is like a new one.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.taken <= self.rate * now.saturating_duration_since(self.at).as_secs_f64()
    }

    fn refill(&mut self, now: Instant, rate: f64) {
        let refilled = rate * now.saturating_duration_since(self.at).as_secs_f64();
        self.taken = (self.taken - refilled).max(0.0);
        self.at = now;
        self.rate = rate;
    }

    fn owed(&self, allowance: Allowance) -> Duration {
        // A refill in many steps must not leave a rest by rounding.
        let owed = self.taken - allowance.burst - 1e-6;
        if owed <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(owed / allowance.rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Allowance = Allowance { rate: 10.0, burst: 20.0 };

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn what_exceeds_the_burst_is_owed_and_refilled() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        assert_eq!(bucket.take_on_credit(start, TEN, 20), Duration::ZERO);
        let owed = bucket.take_on_credit(start, TEN, 30);
        assert_eq!(owed.as_millis(), 2_999, "30 at 10 a second, less the rounding");
        assert!(bucket.take_unless_owing(after(start, 2_000), TEN, 1).is_err());
        assert_eq!(bucket.take_unless_owing(after(start, 3_000), TEN, 1_000), Ok(()));
        assert!(bucket.take_unless_owing(after(start, 3_000), TEN, 1).is_err());
    }

    #[test]
    fn single_ones_never_exceed_the_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let taken = (0..100).filter(|_| bucket.take_one(start, TEN).is_ok()).count();
        assert_eq!(taken, 20);
        bucket.put_back_one();
        assert!(bucket.take_one(start, TEN).is_ok());
        assert!(bucket.take_one(start, TEN).is_err());
        assert!(!bucket.is_full(after(start, 1_900)));
        assert!(bucket.is_full(after(start, 2_000)));
        // One every tenth of a second.
        let taken =
            (1..=1_000).filter(|ms| bucket.take_one(after(start, *ms), TEN).is_ok()).count();
        assert_eq!(taken, 10);
    }

    #[test]
    fn a_changed_rate_counts_at_once() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        bucket.take_on_credit(start, TEN, 1_020);
        let faster = Allowance { rate: 1_000.0, burst: 20.0 };
        assert!(bucket.take_unless_owing(after(start, 1_000), faster, 1).is_ok());
    }
}
