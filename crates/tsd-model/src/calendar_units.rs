//! Lengths of hours and UTC days.

use crate::base_time::BaseTime;

/// Milliseconds of an hour.
pub const HOUR_MS: i64 = BaseTime::SPAN_SECONDS as i64 * 1_000;

/// Seconds of a UTC day.
pub const DAY_SECS: u32 = 24 * BaseTime::SPAN_SECONDS;

/// Milliseconds of a UTC day.
pub const DAY_MS: i64 = DAY_SECS as i64 * 1_000;
