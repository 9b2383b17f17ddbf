//! Times in requests: absolute, relative, calendar text, durations and time zones.

mod duration;
mod expression;
mod zone;

pub use duration::{Duration, DurationError, TimeUnit};
pub use expression::parse_time;
pub use zone::find_zone;

/// The current time and time zone, for relative times and calendar texts.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Current time, epoch milliseconds.
    pub now_ms: i64,
    /// Time zone of calendar texts in requests without a zone (`tsd.core.timezone`).
    pub zone: jiff::tz::TimeZone,
}

impl Clock {
    /// A clock in UTC.
    #[must_use]
    pub const fn utc(now_ms: i64) -> Self {
        Self { now_ms, zone: jiff::tz::TimeZone::UTC }
    }
}
