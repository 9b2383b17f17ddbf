//! Explains whether a read may use summaries for hours and days, and if not, why.

use tsd_model::{DAY_MS, HOUR_MS, SumBucket, SummaryFold, SummaryUse};
use tsd_query::NoSummaries;

/// Whether hours and days may be read as summaries instead of points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedSummaries {
    /// True if summaries may be used. The store reads points wherever it has no exact summary.
    pub may_serve: bool,
    /// Which summaries may be used, or why no summary is used.
    pub reason: String,
    /// Most summaries of one series, if it has points in every hour of the range.
    pub most_days: u64,
    /// Most hours in addition to these days.
    pub most_hours: u64,
}

/// How a read gets its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointSource {
    /// By series, so that the store may return summaries.
    Series,
    /// By rows.
    Rows,
    /// Rollups or histograms.
    OtherCells,
}

impl ExplainedSummaries {
    pub(super) fn new(decision: Result<SummaryUse, NoSummaries>, source: PointSource) -> Self {
        let refused = |reason: String| Self { reason, ..Self::default() };
        match (source, decision) {
            (PointSource::OtherCells, _) => refused("cells other than points are read".to_owned()),
            (_, Err(reason)) => refused(text_of(reason)),
            (PointSource::Rows, Ok(_)) => {
                refused("points are read by rows, which have no summaries".to_owned())
            }
            (PointSource::Series, Ok(read)) => {
                let (most_days, most_hours) = most_summaries(&read);
                let periods = match (most_days, most_hours) {
                    (0, _) => "full hours",
                    (_, 0) => "full UTC days",
                    _ => "full UTC days, and hours beside them",
                };
                let reason = format!("{periods} of parts with summaries");
                Self { may_serve: true, reason, most_days, most_hours }
            }
        }
    }
}

fn text_of(reason: NoSummaries) -> String {
    match reason {
        NoSummaries::NotDownsampled => "points are not downsampled".to_owned(),
        NoSummaries::ValueFilters => "value filters need each point".to_owned(),
        NoSummaries::Interval => "the downsampling interval is not a number of hours".to_owned(),
        NoSummaries::Calendar => {
            "calendar buckets do not begin at full hours of UTC, or are shorter".to_owned()
        }
        NoSummaries::Function(function) => {
            format!("downsampling by {} needs each point", function.name())
        }
        NoSummaries::ShortRange => "no full hour is in the range".to_owned(),
    }
}

/// Most UTC days that are summaries of one series, and most hours outside of these days.
fn most_summaries(read: &SummaryUse) -> (u64, u64) {
    let (start, end) = read.range_ms;
    let up = |time: i64, length: i64| time.saturating_add(length - 1).div_euclid(length) * length;
    let down = |time: i64, length: i64| time.div_euclid(length) * length;
    let count = |from: i64, to: i64, length: i64| {
        u64::try_from(to.saturating_sub(from) / length).unwrap_or_default()
    };
    let hours = (up(start, HOUR_MS), down(end, HOUR_MS));
    let days = (up(start, DAY_MS), down(end, DAY_MS));
    // Daily sums can use only whole days.
    let needs_days = read.fold == SummaryFold::Sums(SumBucket::Day);
    if !read.has_days || days.0 >= days.1 {
        return (0, if needs_days { 0 } else { count(hours.0, hours.1, HOUR_MS) });
    }
    let beside = count(hours.0, days.0, HOUR_MS) + count(days.1, hours.1, HOUR_MS);
    (count(days.0, days.1, DAY_MS), if needs_days { 0 } else { beside })
}

#[cfg(test)]
mod tests {
    use tsd_query::Aggregator;

    use super::*;

    const HOUR: i64 = HOUR_MS;
    const DAY: i64 = DAY_MS;

    #[test]
    fn most_summaries_are_days_and_the_hours_beside_them() {
        let most = |range_ms, has_days, fold| {
            most_summaries(&SummaryUse { range_ms, has_days, fold, with_points: false })
        };
        let sums = SummaryFold::Sums(SumBucket::Day);
        assert_eq!(most((DAY, 4 * DAY), true, SummaryFold::Extremes), (3, 0));
        assert_eq!(most((DAY, 4 * DAY), false, SummaryFold::Extremes), (0, 72));
        assert_eq!(most((DAY - 2 * HOUR, 2 * DAY + HOUR), true, SummaryFold::Ends), (1, 3));
        assert_eq!(most((DAY - 2 * HOUR, 2 * DAY + HOUR), true, sums), (1, 0));
        assert_eq!(most((DAY + 1, DAY + 3 * HOUR - 1), true, SummaryFold::Ends), (0, 1));
        assert_eq!(most((DAY + 1, DAY + 3 * HOUR - 1), true, sums), (0, 0));
    }

    #[test]
    fn reasons_name_what_needs_the_points() {
        let reason = |decision, source| ExplainedSummaries::new(decision, source).reason;
        let median = Err(NoSummaries::Function(Aggregator::Median));
        assert_eq!(reason(median, PointSource::Series), "downsampling by median needs each point");
        let read = SummaryUse {
            range_ms: (0, DAY),
            has_days: true,
            fold: SummaryFold::Extremes,
            with_points: false,
        };
        assert!(reason(Ok(read), PointSource::Rows).contains("by rows"));
        assert!(reason(Ok(read), PointSource::OtherCells).contains("other than points"));
        let days = ExplainedSummaries::new(Ok(read), PointSource::Series);
        assert_eq!((days.may_serve, days.most_days, days.most_hours), (true, 1, 0));
    }
}
