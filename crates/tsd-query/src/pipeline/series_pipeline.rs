//! What is done to each series of a sub query, and into which buckets its times fall.

use jiff::tz::TimeZone;
use tsd_model::{PointColumns, Value};

use super::{
    calendar::Calendar,
    fill::{Grid, fill},
    rate::rates,
    series::SeriesBuilder,
};
use crate::{
    aggregator::Aggregator,
    error::QueryError,
    filter::ValueFilter,
    plan::ScanWindow,
    request::{DownsampleWindow, FillPolicy, RateOptions, SubQuery},
};

/// What is done to each series of a sub query. Shared by all tasks that read it.
#[derive(Clone, Debug)]
pub struct SeriesPipeline {
    window: ScanWindow,
    pub(super) value_filters: Vec<ValueFilter>,
    buckets: Option<Buckets>,
    pub(super) function: Aggregator,
    fill: FillPolicy,
    rate: Option<RateOptions>,
    max_fill_points: usize,
}

/// How times are put into buckets.
#[derive(Clone, Debug)]
enum Buckets {
    Fixed { interval_ms: i64, from_ms: i64 },
    Calendar { calendar: Calendar, from_ms: i64 },
    All,
}

/// Most points that a fill policy may make of one series, unless told otherwise.
const MAX_FILL_POINTS: usize = 10_000_000;
impl SeriesPipeline {
    /// The pipeline of a sub query over the rows of `window`. `zone` is the query's.
    #[must_use]
    pub fn new(sub: &SubQuery, window: &ScanWindow, zone: &TimeZone) -> Self {
        let scan_start = window.scan_start_ms();
        let buckets = sub.downsample.as_ref().map(|spec| match spec.window {
            DownsampleWindow::All => Buckets::All,
            DownsampleWindow::Fixed { interval_ms } => {
                let below = scan_start.rem_euclid(interval_ms);
                let from_ms =
                    if below == 0 { scan_start } else { scan_start - below + interval_ms };
                Buckets::Fixed { interval_ms, from_ms }
            }
            DownsampleWindow::Calendar { count, unit, .. } => {
                let calendar = Calendar::new(count, unit, zone.clone());
                let anchor = calendar.anchor(scan_start);
                let from_ms = if anchor < scan_start { calendar.next(anchor) } else { scan_start };
                Buckets::Calendar { calendar, from_ms }
            }
        });
        Self {
            window: *window,
            value_filters: sub.value_filters.clone(),
            buckets,
            function: sub.downsample.as_ref().map_or(Aggregator::None, |spec| spec.function),
            fill: sub.downsample.as_ref().map_or(FillPolicy::None, |spec| spec.fill),
            rate: sub.rate,
            max_fill_points: MAX_FILL_POINTS,
        }
    }

    /// The same pipeline with another bound on the points a fill policy may make of one series.
    #[must_use]
    pub const fn with_max_fill_points(mut self, points: usize) -> Self {
        self.max_fill_points = points;
        self
    }

    /// Points that a fill policy makes of each series, about and rather too many; `None` where
    /// nothing is filled.
    #[must_use]
    pub fn points_to_fill(&self) -> Option<u64> {
        let scan = (self.window.scan_start_ms(), self.window.scan_end_ms());
        self.grid().map(|grid| grid.len(scan))
    }

    /// The instants that are filled, if any.
    fn grid(&self) -> Option<Grid> {
        match &self.buckets {
            _ if self.fill == FillPolicy::None => None,
            Some(Buckets::Fixed { interval_ms, .. }) => Some(Grid::Fixed(*interval_ms)),
            Some(Buckets::Calendar { calendar, .. }) => Some(Grid::Calendar(calendar.clone())),
            Some(Buckets::All) | None => None,
        }
    }

    /// The range of rows this pipeline is for.
    #[must_use]
    pub const fn window(&self) -> &ScanWindow {
        &self.window
    }

    /// A builder for a series, or for the earliest part of one.
    #[must_use]
    pub const fn start(&self) -> SeriesBuilder {
        SeriesBuilder::new(self.buckets.is_none())
    }

    /// A builder for a part of a series that an earlier part may precede.
    #[must_use]
    pub const fn start_later_part(&self) -> SeriesBuilder {
        SeriesBuilder::new(true)
    }

    /// Whether the value filters let a point stay.
    pub(crate) fn accepts_value(&self, value: Value) -> bool {
        self.value_filters.iter().all(|filter| filter.accepts(value))
    }

    /// What is done to a series after downsampling: fill and rate.
    pub(crate) fn complete(&self, mut points: PointColumns) -> Result<PointColumns, QueryError> {
        if let Some(grid) = self.grid() {
            let scan = (self.window.scan_start_ms(), self.window.scan_end_ms());
            points = fill(&points, &grid, self.fill, scan, self.max_fill_points)?;
        }
        Ok(match &self.rate {
            Some(options) => rates(&points, options),
            None => points,
        })
    }

    /// Whether anything is downsampled.
    pub(super) const fn downsamples(&self) -> bool {
        self.buckets.is_some()
    }

    /// Fixed intervals can be folded without knowing what came before; a calendar chain hangs on the
    /// first point of the series.
    pub(super) const fn is_fixed(&self) -> bool {
        matches!(self.buckets, Some(Buckets::Fixed { .. }))
    }

    /// First time of interest and the time after the last.
    pub(super) const fn folded_range(&self) -> (i64, i64) {
        match &self.buckets {
            None => (self.window.scan_start_ms(), i64::MAX),
            Some(Buckets::Fixed { from_ms, .. } | Buckets::Calendar { from_ms, .. }) => {
                (*from_ms, i64::MAX)
            }
            Some(Buckets::All) => (self.window.start_ms, self.window.end_ms),
        }
    }

    /// Start and end of the bucket of `time_ms`; `before` is start and end of an earlier bucket of
    /// the series.
    pub(super) fn bucket_of(&self, time_ms: i64, before: Option<(i64, i64)>) -> (i64, i64) {
        match &self.buckets {
            Some(Buckets::Fixed { interval_ms, .. }) => {
                // Mostly it is the next one, which spares a division.
                let start = match before {
                    Some((_, end)) if (0..*interval_ms).contains(&(time_ms - end)) => end,
                    _ => time_ms - time_ms.rem_euclid(*interval_ms),
                };
                (start, start.saturating_add(*interval_ms))
            }
            Some(Buckets::Calendar { calendar, .. }) => {
                let start = match before {
                    Some((start, _)) => calendar.last_not_above(start, time_ms),
                    None => calendar.anchor(time_ms),
                };
                (start, calendar.next(start).max(time_ms.saturating_add(1)))
            }
            Some(Buckets::All) | None => (self.window.start_ms, self.window.end_ms),
        }
    }
}

/// The buckets of one series whose values are no numbers, one after the other.
#[derive(Debug, Default)]
pub(crate) struct BucketChain {
    current: Option<(i64, i64)>,
}

impl BucketChain {
    /// Start of the bucket of a time, which must not be below those asked before; `None` where the
    /// time is in no bucket. Without downsampling every time is its own bucket.
    pub(crate) fn bucket_start(&mut self, pipeline: &SeriesPipeline, time_ms: i64) -> Option<i64> {
        let (from_ms, to_ms) = pipeline.folded_range();
        if time_ms < from_ms || time_ms >= to_ms {
            return None;
        }
        if pipeline.buckets.is_none() {
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
