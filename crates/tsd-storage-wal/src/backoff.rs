//! Pauses between the attempts of a failing flush.

use std::time::Duration;

const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Exponential backoff.
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self(MIN_PAUSE)
    }

    /// Returns the pause before the next attempt and doubles the following pause.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(MAX_PAUSE);
        pause
    }

    pub(crate) const fn reset(&mut self) {
        self.0 = MIN_PAUSE;
    }
}
