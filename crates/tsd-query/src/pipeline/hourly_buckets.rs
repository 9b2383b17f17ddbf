//! Buckets whose boundaries are full hours; only these may be computed from summaries.

use tsd_model::{DAY_MS, HOUR_MS, SumBucket};

/// Buckets whose boundaries are full hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HourlyBuckets {
    /// True if the boundaries are starts of UTC days.
    pub(super) has_days: bool,
    /// Length of a bucket.
    pub(super) length: SumBucket,
}

impl HourlyBuckets {
    /// Buckets of a fixed interval, which begin at its multiples since the epoch. `None` unless the
    /// interval is a number of hours.
    pub(super) fn of_interval(interval_ms: i64) -> Option<Self> {
        let length = match interval_ms {
            HOUR_MS => SumBucket::Hour,
            DAY_MS => SumBucket::Day,
            _ => SumBucket::Longer,
        };
        let is_hourly = interval_ms > 0 && interval_ms % HOUR_MS == 0;
        is_hourly.then_some(Self { has_days: interval_ms % DAY_MS == 0, length })
    }
}
