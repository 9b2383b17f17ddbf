//! Which points of a sub query may be read as summaries of hours and days.
//!
//! The boundaries of the buckets must be full hours: then each hour is in one bucket. Time zones whose
//! offset is not a number of hours, and most that had such an offset once, are excluded by that.

use tsd_model::{DAY_MS, HOUR_MS, SumBucket, SummaryFold, SummaryUse};

use super::series_pipeline::Bucketing;
use crate::{aggregator::Aggregator, plan::ScanWindow};

/// Buckets whose boundaries are full hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HourlyBuckets {
    /// The boundaries are starts of UTC days.
    pub(super) has_days: bool,
    /// The length of all buckets.
    pub(super) length: SumBucket,
}

/// `None` if all points are needed.
pub(super) fn summary_use(
    bucketing: &Bucketing,
    function: Aggregator,
    window: &ScanWindow,
) -> Option<SummaryUse> {
    let scan = (window.scan_start_ms(), window.scan_end_ms());
    let (from_ms, to_ms, buckets) = match bucketing {
        Bucketing::Fixed { interval_ms, from_ms } => (*from_ms, scan.1, of_interval(*interval_ms)?),
        Bucketing::Calendar { calendar, from_ms } => {
            (*from_ms, scan.1, calendar.hourly_buckets(scan)?)
        }
        Bucketing::All => {
            let buckets = HourlyBuckets { has_days: true, length: SumBucket::Longer };
            (window.start_ms, window.end_ms, buckets)
        }
    };
    let fold = match function {
        Aggregator::Min
        | Aggregator::Mimmin
        | Aggregator::Max
        | Aggregator::Mimmax
        | Aggregator::Count => SummaryFold::Extremes,
        Aggregator::First | Aggregator::None | Aggregator::Last | Aggregator::Diff => {
            SummaryFold::Ends
        }
        Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
            SummaryFold::Sums(buckets.length)
        }
        Aggregator::Median
        | Aggregator::Mult
        | Aggregator::Dev
        | Aggregator::SquareSum
        | Aggregator::Percentile(_) => return None,
    };
    let range_ms = (from_ms.max(scan.0), to_ms.min(scan.1));
    let has_hour = range_ms.1.saturating_sub(range_ms.0) >= HOUR_MS;
    let has_days = buckets.has_days;
    has_hour.then_some(SummaryUse { range_ms, has_days, fold, with_points: false })
}

/// Buckets of a fixed interval begin at its multiples since the epoch.
fn of_interval(interval_ms: i64) -> Option<HourlyBuckets> {
    let length = match interval_ms {
        HOUR_MS => SumBucket::Hour,
        DAY_MS => SumBucket::Day,
        _ => SumBucket::Longer,
    };
    let is_hourly = interval_ms > 0 && interval_ms % HOUR_MS == 0;
    is_hourly.then_some(HourlyBuckets { has_days: interval_ms % DAY_MS == 0, length })
}
