//! The operators on each series of a sub query, and the downsampling buckets.

use jiff::tz::TimeZone;
use tsd_model::{DAY_MS, PointColumns, SumBucket, SummaryFold, SummaryUse, Value};

use super::{
    bucketing::Bucketing,
    fill::{FillGrid, fill},
    rate::rates,
    summary_use::{NoSummaries, summary_use},
};
use crate::{
    aggregator::Aggregator,
    error::QueryError,
    filter::ValueFilter,
    plan::ScanWindow,
    request::{FillPolicy, RateOptions, SubQuery},
};

/// Operators on each series of a sub query. Shared by all tasks that read it.
#[derive(Clone, Debug)]
pub struct SeriesPipeline {
    window: ScanWindow,
    pub(super) value_filters: Vec<ValueFilter>,
    bucketing: Option<Bucketing>,
    pub(super) function: Aggregator,
    fill: FillPolicy,
    rate: Option<RateOptions>,
    max_fill_points: usize,
    summaries: Result<SummaryUse, NoSummaries>,
}

/// Downsampling whose buckets are within UTC days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayBuckets {
    /// Points before this time are in no bucket, epoch milliseconds.
    pub from_ms: i64,
    /// Key of the downsampling: with equal texts, equal points of a day become equal buckets.
    pub identity: String,
}

/// Default limit of the points that a fill policy may produce for one series.
const MAX_FILL_POINTS: usize = 10_000_000;

impl SeriesPipeline {
    /// The pipeline of a sub query over the rows of `window`, in the query's time zone.
    #[must_use]
    pub fn new(sub: &SubQuery, window: &ScanWindow, zone: &TimeZone) -> Self {
        let scan_start = window.scan_start_ms();
        let downsample = sub.downsample.as_ref();
        let bucketing = downsample.map(|spec| Bucketing::new(&spec.window, scan_start, zone));
        let function = sub.downsample.as_ref().map_or(Aggregator::None, |spec| spec.function);
        let summaries = match &bucketing {
            None => Err(NoSummaries::NotDownsampled),
            Some(_) if !sub.value_filters.is_empty() => Err(NoSummaries::ValueFilters),
            Some(bucketing) => summary_use(bucketing, function, window),
        };
        Self {
            window: *window,
            value_filters: sub.value_filters.clone(),
            bucketing,
            function,
            summaries,
            fill: sub.downsample.as_ref().map_or(FillPolicy::None, |spec| spec.fill),
            rate: sub.rate,
            max_fill_points: MAX_FILL_POINTS,
        }
    }

    /// Sets the limit of the points that a fill policy may produce for one series.
    #[must_use]
    pub const fn with_max_fill_points(mut self, points: usize) -> Self {
        self.max_fill_points = points;
        self
    }

    /// Returns which points may be pushed as summaries, or the reason why all points are needed.
    pub const fn summary_use(&self) -> Result<SummaryUse, NoSummaries> {
        self.summaries
    }

    /// True if buckets of sums may have several summaries.
    pub(super) fn adds_sums(&self) -> bool {
        self.summaries.is_ok_and(|read| read.fold == SummaryFold::Sums(SumBucket::Longer))
    }

    /// Upper estimate of the points that the fill policy produces for each series; `None` without
    /// filling.
    #[must_use]
    pub fn points_to_fill(&self) -> Option<u64> {
        if self.fill == FillPolicy::None { None } else { self.buckets() }
    }

    /// Upper estimate of the points of a downsampled series; `None` without downsampling.
    #[must_use]
    pub fn most_points(&self) -> Option<u64> {
        match &self.bucketing {
            Some(Bucketing::All) => Some(1),
            _ => self.buckets(),
        }
    }

    /// Upper estimate of the times of a downsampled series that may be filled.
    fn buckets(&self) -> Option<u64> {
        let scan = (self.window.scan_start_ms(), self.window.scan_end_ms());
        self.times().map(|grid| grid.len(scan))
    }

    /// The times to fill, if the series are filled.
    fn grid(&self) -> Option<FillGrid> {
        if self.fill == FillPolicy::None { None } else { self.times() }
    }

    /// The times of buckets.
    fn times(&self) -> Option<FillGrid> {
        match &self.bucketing {
            Some(Bucketing::Fixed { interval_ms, .. }) => Some(FillGrid::Fixed(*interval_ms)),
            Some(Bucketing::Calendar { calendar, .. }) => {
                Some(FillGrid::Calendar(calendar.clone()))
            }
            Some(Bucketing::All) | None => None,
        }
    }

    /// Describes the dependencies of the buckets of whole UTC days. `None` without downsampling, or
    /// if a bucket may reach into two days.
    #[must_use]
    pub fn day_buckets(&self) -> Option<DayBuckets> {
        match &self.bucketing {
            Some(Bucketing::Fixed { interval_ms, from_ms }) if DAY_MS % interval_ms == 0 => {
                Some(DayBuckets {
                    from_ms: *from_ms,
                    identity: format!("{interval_ms} {:?} {:?}", self.function, self.value_filters),
                })
            }
            _ => None,
        }
    }

    /// The range of rows of this pipeline.
    #[must_use]
    pub const fn window(&self) -> &ScanWindow {
        &self.window
    }

    /// True if the value filters accept a value.
    #[must_use]
    pub fn accepts_value(&self, value: Value) -> bool {
        self.value_filters.iter().all(|filter| filter.accepts(value))
    }

    /// Applies the operators after downsampling: fill and rate.
    pub(crate) fn complete(&self, mut points: PointColumns) -> Result<PointColumns, QueryError> {
        let grid = self.grid();
        let scan = (self.window.scan_start_ms(), self.window.scan_end_ms());
        if let Some(grid) = &grid {
            points = fill(&points, grid, self.fill, scan, self.max_fill_points)?;
        }
        if let Some(options) = &self.rate {
            points = rates(&points, options);
        }
        if grid.is_some() {
            // Series begin with the scan, but rates include the time of the grid before it.
            let from = points.times_ms.partition_point(|time| *time < scan.0);
            if from > 0 {
                points.keep(from, points.len());
            }
        }
        Ok(points)
    }

    /// True if [`Self::complete`] may change points.
    pub(super) const fn completes(&self) -> bool {
        self.rate.is_some() || !matches!(self.fill, FillPolicy::None)
    }

    /// True if a series with this first and last time is part of the result.
    pub(super) const fn overlaps_scan(&self, (first_ms, last_ms): (i64, i64)) -> bool {
        first_ms <= self.window.scan_end_ms() && last_ms >= self.window.scan_start_ms()
    }

    /// True if the series are downsampled.
    pub(super) const fn downsamples(&self) -> bool {
        self.bucketing.is_some()
    }

    /// True for fixed intervals, which are independent of earlier points; a calendar chain depends
    /// on the first point of the series.
    pub(super) const fn is_fixed(&self) -> bool {
        matches!(self.bucketing, Some(Bucketing::Fixed { .. }))
    }

    /// Start, inclusive, and end, exclusive, of the times that are downsampled.
    pub(super) const fn input_range(&self) -> (i64, i64) {
        match &self.bucketing {
            None => (self.window.scan_start_ms(), i64::MAX),
            Some(Bucketing::Fixed { from_ms, .. } | Bucketing::Calendar { from_ms, .. }) => {
                (*from_ms, i64::MAX)
            }
            Some(Bucketing::All) => (self.window.start_ms, self.window.end_ms),
        }
    }

    /// Start and end of the bucket of `time_ms`; `before` is an earlier bucket of the series.
    pub(super) fn bucket_of(&self, time_ms: i64, before: Option<(i64, i64)>) -> (i64, i64) {
        match &self.bucketing {
            Some(Bucketing::Fixed { interval_ms, .. }) => {
                // The next bucket is the usual case and avoids a division.
                let start = match before {
                    Some((_, end)) if (0..*interval_ms).contains(&(time_ms - end)) => end,
                    _ => time_ms - time_ms.rem_euclid(*interval_ms),
                };
                (start, start.saturating_add(*interval_ms))
            }
            Some(Bucketing::Calendar { calendar, .. }) => {
                let start = match before {
                    Some((start, _)) => calendar.last_not_after(start, time_ms),
                    None => calendar.anchor(time_ms),
                };
                (start, calendar.next(start).max(time_ms.saturating_add(1)))
            }
            Some(Bucketing::All) | None => (self.window.start_ms, self.window.end_ms),
        }
    }
}

/// Assigns the points of one histogram series to buckets, in time order.
#[derive(Debug, Default)]
pub(crate) struct BucketCursor {
    current: Option<(i64, i64)>,
}

impl BucketCursor {
    /// Start of the bucket of a time; times must be ascending. `None` if the time is in no bucket.
    /// Without downsampling every time is its own bucket.
    pub(crate) fn bucket_start(&mut self, pipeline: &SeriesPipeline, time_ms: i64) -> Option<i64> {
        let (from_ms, to_ms) = pipeline.input_range();
        if time_ms < from_ms || time_ms >= to_ms {
            return None;
        }
        if pipeline.bucketing.is_none() {
            return Some(time_ms);
        }
        let bucket = match self.current {
            Some(bucket) if time_ms < bucket.1 => bucket,
            before => pipeline.bucket_of(time_ms, before),
        };
        self.current = Some(bucket);
        Some(bucket.0)
    }
}
