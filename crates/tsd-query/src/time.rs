//! Times as requests write them: absolute, relative, calendar text, durations and zones.

mod duration;
mod expression;
mod zone;

pub use duration::{Duration, DurationError, TimeUnit};
pub use expression::parse_time;
pub use zone::find_zone;

/// The moment and the zone that relative times and calendar texts are read against.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Current time, epoch milliseconds.
    pub now_ms: i64,
    /// Zone of calendar texts where the request names none (`tsd.core.timezone`).
    pub zone: jiff::tz::TimeZone,
}

impl Clock {
    /// A clock in UTC.
    #[must_use]
    pub const fn utc(now_ms: i64) -> Self {
        Self { now_ms, zone: jiff::tz::TimeZone::UTC }
    }
}
