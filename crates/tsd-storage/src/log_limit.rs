//! Limits the rate of a log message that can repeat for every request.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Admits one message per interval and counts those suppressed in between.
#[derive(Debug)]
pub struct LogLimit {
    interval: Duration,
    state: Mutex<LimitState>,
}

#[derive(Debug, Default)]
struct LimitState {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// At most one message per `interval`.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::new(LimitState { last: None, suppressed: 0 }) }
    }

    /// Returns the number of messages suppressed since the last admitted one if this message is to
    /// be logged, and `None` if it is suppressed.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_messages_are_counted_by_the_next_admitted_one() {
        let limit = LogLimit::new(Duration::from_secs(10));
        let start = Instant::now();
        let admitted =
            [0, 1, 9, 10, 11, 25].map(|s| limit.admit_at(start + Duration::from_secs(s)));
        assert_eq!(admitted, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
