//! Limits the rate of log messages that can repeat for every request.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    mem::{Discriminant, discriminant},
    time::{Duration, Instant},
};

use crate::StorageError;

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

    /// Returns the number of messages suppressed since the last admitted message if this message is
    /// admitted, and `None` if it is suppressed.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

/// A [`LogLimit`] for each kind of error: a new cause is logged at once.
#[derive(Debug)]
pub struct ErrorLogLimit {
    interval: Duration,
    limits: Mutex<HashMap<Discriminant<StorageError>, LogLimit>>,
}

impl ErrorLogLimit {
    /// At most one message per kind of error and `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { interval, limits: Mutex::default() }
    }

    /// As [`LogLimit::admit`], for a message about this error.
    pub fn admit(&self, error: &StorageError) -> Option<u64> {
        let mut limits = self.limits.lock();
        let new = || LogLimit::new(self.interval);
        limits.entry(discriminant(error)).or_insert_with(new).admit()
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

    #[test]
    fn each_kind_of_error_has_its_own_limit() {
        let limit = ErrorLogLimit::new(Duration::from_hours(1));
        let errors = [
            StorageError::DiskFull,
            StorageError::DiskFull,
            StorageError::Timeout("a"),
            StorageError::Timeout("b"),
        ];
        assert_eq!(errors.map(|error| limit.admit(&error)), [Some(0), None, Some(0), None]);
    }
}
