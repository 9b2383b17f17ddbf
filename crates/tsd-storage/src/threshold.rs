//! Compares a level with a threshold, with hysteresis, for health problems.
//!
//! Without hysteresis, a level near its threshold would begin and end the problem with each reading.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Longest time that a problem continues between the two levels.
const MAX_BETWEEN: Duration = Duration::from_mins(1);

/// Tells whether a level is too low, until it rises clearly above the threshold.
#[derive(Debug, Default)]
pub struct Threshold(Mutex<LastLevel>);

#[derive(Debug, Default)]
struct LastLevel {
    is_low: bool,
    /// Time since which a low level has been between the two levels.
    between_since: Option<Instant>,
}

impl Threshold {
    /// True from a level below `enter` on, until a level of at least `leave`, or a minute after the last level
    /// below `enter`.
    pub fn is_low(&self, level: u64, enter: u64, leave: u64, now: Instant) -> bool {
        let mut state = self.0.lock();
        let is_between = state.is_low && (enter..leave).contains(&level);
        state.between_since = if is_between { state.between_since.or(Some(now)) } else { None };
        let waited = state.between_since.map(|since| now.saturating_duration_since(since));
        state.is_low = level < enter || waited.is_some_and(|waited| waited < MAX_BETWEEN);
        state.is_low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 37.
    #[test]
    fn a_level_at_the_edge_of_a_threshold_is_one_problem() {
        let (threshold, start) = (Threshold::default(), Instant::now());
        let mut seconds = 0;
        let mut check = |level, expected| {
            seconds += 1;
            let now = start + Duration::from_secs(seconds);
            assert_eq!(threshold.is_low(level, 100, 110, now), expected, "{seconds}: {level}");
        };
        check(105, false);
        check(100, false);
        for _ in 0..100 {
            check(99, true);
            check(101, true);
        }
        check(109, true);
        check(110, false);
        check(105, false);
        check(99, true);
        for _ in 0..60 {
            check(105, true);
        }
        check(105, false);
    }
}
