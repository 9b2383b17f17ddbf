//! Wall-clock time, injected so that tests can set it.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

/// Source of the current time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Epoch milliseconds.
    fn now_ms(&self) -> i64;

    /// Epoch seconds.
    fn now_secs(&self) -> i64 {
        self.now_ms().div_euclid(1_000)
    }
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }
}
