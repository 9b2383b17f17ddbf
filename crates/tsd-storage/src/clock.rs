//! The wall clock, passed in as a function so that tests may stand in for it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns epoch milliseconds.
pub type ClockMs = fn() -> i64;

/// The system's clock.
#[must_use]
pub fn system_clock_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
