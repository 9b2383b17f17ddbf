//! Pauses after failed logins.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// The pause after consecutive failures: one second, doubled up to a minute, 20 % longer or shorter at random.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoginBackoff {
    pause: Duration,
    until: Option<Instant>,
}

/// Whether a failure cost other machines something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureCost {
    /// Only files were read: the pause stays short, so that a repair is noticed soon.
    Local,
    /// A KDC was asked, or was not found.
    Network,
}

impl LoginBackoff {
    /// Begins a pause. `random` is any number, for the jitter.
    pub(super) fn failed(&mut self, now: Instant, cost: FailureCost, random: u64) {
        self.pause = match cost {
            FailureCost::Local => FIRST_PAUSE,
            FailureCost::Network => (self.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE),
        };
        let percent = 80 + u32::try_from(random % 41).unwrap_or_default();
        self.until = Some(now + self.pause * percent / 100);
    }

    /// True during a pause.
    pub(super) fn is_pausing(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// True if the last pause ended longer ago than the longest pause, so that the failures are forgotten.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until + MAX_PAUSE < now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number without jitter: the middle of the range.
    const MIDDLE: u64 = 20;

    #[track_caller]
    fn check_pause(backoff: &LoginBackoff, now: Instant, millis: u64) {
        assert!(backoff.is_pausing(now + Duration::from_millis(millis - 1)), "{backoff:?}");
        assert!(!backoff.is_pausing(now + Duration::from_millis(millis)), "{backoff:?}");
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let now = Instant::now();
        let mut backoff = LoginBackoff::default();
        assert!(!backoff.is_pausing(now) && backoff.is_over(now));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            backoff.failed(now, FailureCost::Network, MIDDLE);
            check_pause(&backoff, now, seconds * 1000);
        }
        assert!(!backoff.is_over(now + MAX_PAUSE * 2));
        assert!(backoff.is_over(now + MAX_PAUSE * 2 + Duration::from_millis(1)));
    }

    #[test]
    fn local_failures_pause_for_a_second() {
        let now = Instant::now();
        let mut backoff = LoginBackoff::default();
        for _ in 0..5 {
            backoff.failed(now, FailureCost::Local, MIDDLE);
            check_pause(&backoff, now, 1000);
        }
    }

    #[test]
    fn jitter_is_a_fifth_either_way() {
        let now = Instant::now();
        for (random, millis) in [(0, 800), (40, 1200), (41, 800)] {
            let mut backoff = LoginBackoff::default();
            backoff.failed(now, FailureCost::Network, random);
            check_pause(&backoff, now, millis);
        }
    }
}
