//! The wall clock, passed in as a function so that tests can replace it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns epoch milliseconds.
pub type ClockMs = fn() -> i64;

/// Returns the system's time in epoch milliseconds.
#[must_use]
pub fn system_clock_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
