//! Estimates the memory of a read before it begins, so that a large query waits before it reads, not half-way.
//!
//! The series index supplies the number of series and rows. Without an index, the estimate counts the series that the
//! plan names. The number of points per row comes from recent reads ([`super::points_per_row`]). An estimate never
//! causes a query to be rejected.

use tsd_model::BaseTime;
use tsd_query::{SeriesPipeline, SeriesSelection, SubQueryPlan};

use super::{row_content::RowContent, series_selection::IndexCounts};
use crate::query::run::memory_budget::BYTES_PER_POINT;

/// Memory of a point that was read. Columns double as they grow, hence the factor.
const POINT_BYTES: u64 = 2 * BYTES_PER_POINT;
/// Memory of a series in addition to its points.
const SERIES_BYTES: u64 = 256;

/// Estimated size of a read in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryEstimate {
    series: u64,
    rows: u64,
    /// Most points of a series after downsampling.
    most_points: Option<u64>,
    /// True if the fill policy gives every series all of these points.
    is_filled: bool,
}

impl MemoryEstimate {
    /// Estimates a read; `counts` come from the series index.
    pub(crate) fn of_read(
        plan: &SubQueryPlan,
        content: &RowContent,
        pipeline: &SeriesPipeline,
        counts: Option<IndexCounts>,
    ) -> Self {
        let (series, rows) = if let Some(counts) = counts {
            (counts.series, counts.rows)
        } else {
            let series = named_series(plan).0;
            (series, rows_of_series(plan, content).saturating_mul(series))
        };
        let is_filled = pipeline.points_to_fill().is_some();
        Self { series, rows, most_points: pipeline.most_points(), is_filled }
    }

    /// Bytes of the series, if rows have this many points.
    pub(crate) const fn bytes(&self, points_per_row: u64) -> u64 {
        let read = self.rows.saturating_mul(points_per_row);
        let points = match self.most_points {
            Some(most) => {
                let downsampled = self.series.saturating_mul(most);
                if self.is_filled || downsampled < read { downsampled } else { read }
            }
            None => read,
        };
        let series = self.series.saturating_mul(SERIES_BYTES);
        series.saturating_add(points.saturating_mul(POINT_BYTES))
    }
}

/// Rows of a series that has points in every row of the plan.
pub(crate) fn rows_of_series(plan: &SubQueryPlan, content: &RowContent) -> u64 {
    let row_secs = match content {
        RowContent::Rollup { interval, .. } => {
            i64::try_from(interval.row_span.seconds()).unwrap_or(i64::from(BaseTime::SPAN_SECONDS))
        }
        RowContent::Points | RowContent::Histograms => i64::from(BaseTime::SPAN_SECONDS),
    };
    let secs = (plan.window.scan_end_secs - plan.window.scan_start_secs).max(0).unsigned_abs();
    secs.div_ceil(row_secs.max(1).unsigned_abs())
}

/// Number of series that a plan names, at least 1, and the basis of that number.
pub(crate) fn named_series(plan: &SubQueryPlan) -> (u64, &'static str) {
    match &plan.selection {
        SeriesSelection::Tsuids(tags) => (tags.len() as u64, "the series that are named"),
        SeriesSelection::Tags(tags) => {
            let values = tags.conditions.iter().filter_map(|condition| condition.tagvs.as_ref());
            let named = values.fold(1_u64, |n, values| n.saturating_mul(values.len() as u64));
            let basis = if tags.conditions.iter().any(|condition| condition.tagvs.is_some()) {
                "series, one for each combination of values that is named"
            } else {
                "series; how many the metric has is not known"
            };
            (named, basis)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downsampled_series_need_no_more_than_their_buckets() {
        let raw = MemoryEstimate { series: 10, rows: 240, most_points: None, is_filled: false };
        assert_eq!(raw.bytes(100), 10 * SERIES_BYTES + 24_000 * POINT_BYTES);
        let hours = MemoryEstimate { most_points: Some(24), ..raw };
        assert_eq!(hours.bytes(100), 10 * SERIES_BYTES + 240 * POINT_BYTES);
        let seconds = MemoryEstimate { most_points: Some(86_400), ..raw };
        assert_eq!(seconds.bytes(100), raw.bytes(100));
        let filled = MemoryEstimate { is_filled: true, ..seconds };
        assert_eq!(filled.bytes(100), 10 * SERIES_BYTES + 864_000 * POINT_BYTES);
        let whole = MemoryEstimate { series: u64::MAX, rows: u64::MAX, ..raw };
        assert_eq!(whole.bytes(2), u64::MAX);
    }
}
