//! Decides which points of a sub query may be read as summaries of hours and days.
//!
//! The boundaries of the buckets must be full hours, so that each hour is in one bucket. This
//! excludes time zones whose offset is not a number of hours, and most zones that once had such an
//! offset.

use tsd_model::{HOUR_MS, SumBucket, SummaryFold, SummaryUse};

use super::{bucketing::Bucketing, hourly_buckets::HourlyBuckets};
use crate::{aggregator::Aggregator, plan::ScanWindow};

/// Reason why all points of a sub query are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSummaries {
    /// Points are not downsampled.
    NotDownsampled,
    /// Some points may be excluded by their value.
    ValueFilters,
    /// The length of the buckets is not a number of hours.
    Interval,
    /// Calendar buckets are shorter than hours, or have boundaries other than full hours in UTC.
    Calendar,
    /// The function needs each point.
    Function(Aggregator),
    /// No full hour is in the range.
    ShortRange,
}

/// Returns which points may be read as summaries. Rates, fill policies and aggregators follow the
/// buckets and do not matter.
pub(super) fn summary_use(
    bucketing: &Bucketing,
    function: Aggregator,
    window: &ScanWindow,
) -> Result<SummaryUse, NoSummaries> {
    let scan = (window.scan_start_ms(), window.scan_end_ms());
    let (from_ms, to_ms, buckets) = match bucketing {
        Bucketing::Fixed { interval_ms, from_ms } => {
            let buckets = HourlyBuckets::of_interval(*interval_ms).ok_or(NoSummaries::Interval)?;
            (*from_ms, scan.1, buckets)
        }
        Bucketing::Calendar { calendar, from_ms } => {
            let buckets = calendar.hourly_buckets(scan).ok_or(NoSummaries::Calendar)?;
            (*from_ms, scan.1, buckets)
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
        | Aggregator::Percentile(_) => return Err(NoSummaries::Function(function)),
    };
    let range_ms = (from_ms.max(scan.0), to_ms.min(scan.1));
    let has_hour = range_ms.1.saturating_sub(range_ms.0) >= HOUR_MS;
    let has_days = buckets.has_days;
    if !has_hour {
        return Err(NoSummaries::ShortRange);
    }
    Ok(SummaryUse { range_ms, has_days, fold, with_points: false })
}
