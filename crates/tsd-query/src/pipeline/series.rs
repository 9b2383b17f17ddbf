//! Builds one series: value filters and downsampling, row by row.

mod summaries;

use bytes::Bytes;
use tsd_model::{PackedRunError, PointColumns, Summary, ValueKinds};

use super::{
    accumulator::Accumulator,
    series_pipeline::SeriesPipeline,
    span_list::{MAX_SHORT, Span, SpanList},
};
use crate::{
    error::{DataError, QueryError},
    filter::retain_values,
};

/// Builds a series from its rows.
///
/// Rows are pushed in time order. If several tasks read the rows of a series, each has a builder for its scan
/// range; the builders are then appended in time order.
#[derive(Clone, Debug)]
pub struct SeriesBuilder {
    range: Option<(i64, i64)>,
    /// Raw points. Without downsampling, all points; otherwise the points of a continuation's first bucket,
    /// which may have started in an earlier scan range.
    raw: PointColumns,
    /// Summaries of a continuation's first bucket; `raw` has the other points of the bucket.
    raw_summaries: Vec<Summary>,
    /// True while points are retained in `raw`.
    retains_raw: bool,
    open: Option<OpenBucket>,
    done: PointColumns,
    /// Error of points of a summary that could not be decoded.
    damage: Option<PackedRunError>,
}

#[derive(Clone, Debug)]
struct OpenBucket {
    start_ms: i64,
    end_ms: i64,
    accumulator: Accumulator,
}

impl SeriesPipeline {
    /// A builder for a series, or for its earliest scan range.
    #[must_use]
    pub const fn start(&self) -> SeriesBuilder {
        SeriesBuilder::new(!self.downsamples())
    }

    /// A builder for a scan range of a series, which may continue an earlier scan range.
    #[must_use]
    pub const fn start_range(&self, is_continuation: bool) -> SeriesBuilder {
        SeriesBuilder::new(is_continuation || !self.downsamples())
    }
}

impl SeriesBuilder {
    pub(super) const fn new(retains_raw: bool) -> Self {
        const fn no_points() -> PointColumns {
            PointColumns { times_ms: Vec::new(), bits: Vec::new(), kinds: ValueKinds::AllIntegers }
        }
        Self {
            range: None,
            raw: no_points(),
            raw_summaries: Vec::new(),
            retains_raw,
            open: None,
            done: no_points(),
            damage: None,
        }
    }

    /// Adds the next points of the series, which must be later than all previous points.
    pub fn push(&mut self, pipeline: &SeriesPipeline, columns: &PointColumns) {
        if pipeline.value_filters.is_empty() {
            self.push_accepted(pipeline, columns);
        } else {
            let mut accepted = columns.clone();
            retain_values(&pipeline.value_filters, &mut accepted);
            self.push_accepted(pipeline, &accepted);
        }
    }

    /// [`Self::push`] of points that the caller no longer needs. The first large batch of raw points is moved
    /// into the series, which empties `columns`.
    pub fn push_owned(&mut self, pipeline: &SeriesPipeline, columns: &mut PointColumns) {
        let is_moved = self.retains_raw
            && self.raw.is_empty()
            && !pipeline.downsamples()
            && pipeline.value_filters.is_empty()
            && columns.len() > MAX_SHORT
            && columns.times_ms.capacity() <= 2 * columns.len()
            && input_of(pipeline, columns) == (0, columns.len());
        match (columns.times_ms.first(), columns.times_ms.last()) {
            (Some(first), Some(last)) if is_moved => {
                self.extend_range((*first, *last));
                self.raw = std::mem::take(columns);
            }
            _ => self.push(pipeline, columns),
        }
    }

    /// [`Self::push`] of points that the value filters have accepted.
    pub(crate) fn push_accepted(&mut self, pipeline: &SeriesPipeline, columns: &PointColumns) {
        let (Some(first), Some(last)) = (columns.times_ms.first(), columns.times_ms.last()) else {
            return;
        };
        self.extend_range((*first, *last));
        let (from, to) = input_of(pipeline, columns);
        let from = if self.retains_raw {
            self.retain_raw(pipeline, (columns, from, to), &[]).0
        } else {
            from
        };
        self.fold(pipeline, columns, from, to);
    }

    fn extend_range(&mut self, (first, last): (i64, i64)) {
        self.range = Some((self.range.map_or(first, |(first, _)| first), last));
    }

    /// Folds points `from..to` into their buckets.
    #[expect(clippy::indexing_slicing, reason = "indexes are below the length of the columns")]
    fn fold(&mut self, pipeline: &SeriesPipeline, columns: &PointColumns, from: usize, to: usize) {
        let times = &columns.times_ms[..to];
        let mut at = from;
        let mut run = 1;
        while at < to {
            let time = times[at];
            if self.open.as_ref().is_none_or(|open| time >= open.end_ms) {
                self.close();
                self.open_bucket(pipeline, time);
            }
            let Some(open) = &mut self.open else { return };
            // Most buckets have as many points as the previous one.
            let guess = (at + run).min(to);
            let end =
                if times[guess - 1] < open.end_ms && (guess == to || times[guess] >= open.end_ms) {
                    guess
                } else {
                    at + times[at..].partition_point(|time| *time < open.end_ms)
                };
            open.accumulator.fold(columns, at, end);
            run = end - at;
            at = end;
        }
    }

    /// Opens the bucket of `time_ms`.
    fn open_bucket(&mut self, pipeline: &SeriesPipeline, time_ms: i64) {
        match &mut self.open {
            Some(open) => {
                let before = Some((open.start_ms, open.end_ms));
                (open.start_ms, open.end_ms) = pipeline.bucket_of(time_ms, before);
            }
            open @ None => {
                let (start_ms, end_ms) = pipeline.bucket_of(time_ms, None);
                let accumulator = Accumulator::new(pipeline.function, pipeline.adds_sums());
                *open = Some(OpenBucket { start_ms, end_ms, accumulator });
            }
        }
    }

    /// Emits the point of the open bucket and resets its accumulator.
    fn close(&mut self) {
        if let Some(open) = &mut self.open {
            self.done.kinds = ValueKinds::AllFloats;
            self.done.times_ms.push(open.start_ms);
            self.done.bits.push(open.accumulator.take().to_bits());
        }
    }

    /// Appends a later part of the same series.
    pub fn append(&mut self, pipeline: &SeriesPipeline, later: Self) {
        let Some((first, last)) = later.range else { return };
        self.range = Some((self.range.map_or(first, |(first, _)| first), last));
        self.damage = self.damage.take().or(later.damage);
        if later.raw.is_empty() && later.raw_summaries.is_empty() && later.open.is_none() {
            return;
        }
        let all = later.raw.len();
        let (from, skipped) = if self.retains_raw {
            self.retain_raw(pipeline, (&later.raw, 0, all), &later.raw_summaries)
        } else {
            (0, 0)
        };
        let summaries = later.raw_summaries.get(skipped..).unwrap_or_default();
        self.fold_all(pipeline, (&later.raw, from, all), summaries);
        if let Some(open) = later.open {
            self.close();
            append(&mut self.done, &later.done, 0, later.done.len());
            self.open = Some(open);
            self.retains_raw = false;
        }
    }

    /// True if any accepted point was pushed.
    #[must_use]
    pub const fn has_points(&self) -> bool {
        self.range.is_some()
    }

    /// Memory in bytes, for the memory budget.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        let columns = self.raw.times_ms.capacity() + self.done.times_ms.capacity();
        let values = match &self.open {
            Some(open) => open.accumulator.heap_bytes(),
            None => 0,
        };
        let summaries = self.raw_summaries.capacity() * size_of::<Summary>();
        size_of::<Self>() + columns * 17 + values + summaries
    }

    /// Finishes the series; `None` if it is not part of the result.
    pub fn finish(
        mut self,
        pipeline: &SeriesPipeline,
        tsuid: Bytes,
    ) -> Result<Option<Span>, QueryError> {
        let points = self.take_buckets(pipeline);
        if let Some(error) = self.damage {
            return Err(DataError::Block(error).into());
        }
        match points {
            None => Ok(None),
            Some(points) => pipeline.complete(points).map(|points| Some(Span { tsuid, points })),
        }
    }

    /// [`Self::finish`] of a whole series, from [`SeriesPipeline::start`] on, into a list; resets the
    /// builder. `tsuid` has the fragments of the TSUID. Returns true if the series is part of the result.
    pub fn finish_into(
        &mut self,
        pipeline: &SeriesPipeline,
        tsuid: [&[u8]; 2],
        list: &mut SpanList,
    ) -> Result<bool, QueryError> {
        if let Some(error) = self.damage.take() {
            return Err(DataError::Block(error).into());
        }
        let range = self.range.take();
        self.close();
        self.open = None;
        self.retains_raw = !pipeline.downsamples();
        let points = if self.retains_raw { &mut self.raw } else { &mut self.done };
        let is_part = range.is_some_and(|range| pipeline.overlaps_scan(range));
        if is_part {
            if pipeline.completes() {
                *points = pipeline.complete(std::mem::take(points))?;
            }
            list.push(tsuid, points);
        } else {
            list.push_absent(tsuid);
        }
        points.clear();
        Ok(is_part)
    }

    /// The series after downsampling; `None` if it is not part of the result. Requires that no summaries were
    /// pushed.
    pub(crate) fn into_buckets(mut self, pipeline: &SeriesPipeline) -> Option<PointColumns> {
        self.take_buckets(pipeline)
    }

    fn take_buckets(&mut self, pipeline: &SeriesPipeline) -> Option<PointColumns> {
        if !pipeline.overlaps_scan(self.range?) {
            return None;
        }
        if !pipeline.downsamples() {
            return Some(std::mem::take(&mut self.raw));
        }
        if self.retains_raw {
            let raw = std::mem::take(&mut self.raw);
            let summaries = std::mem::take(&mut self.raw_summaries);
            self.fold_all(pipeline, (&raw, 0, raw.len()), &summaries);
        } else if !self.raw.is_empty() || !self.raw_summaries.is_empty() {
            // A continuation without an earlier scan range.
            let mut whole = pipeline.start();
            whole.append(pipeline, std::mem::replace(self, pipeline.start()));
            *self = whole;
        }
        self.close();
        Some(std::mem::take(&mut self.done))
    }
}

/// Indexes of the points that the pipeline uses.
fn input_of(pipeline: &SeriesPipeline, columns: &PointColumns) -> (usize, usize) {
    let (from_ms, to_ms) = pipeline.input_range();
    let from = columns.times_ms.partition_point(|time| *time < from_ms);
    (from, columns.times_ms.partition_point(|time| *time < to_ms).max(from))
}

/// Appends points `from..to` of `source`.
pub(super) fn append(target: &mut PointColumns, source: &PointColumns, from: usize, to: usize) {
    target.extend_range(source, from, to);
}

#[cfg(test)]
mod tests;
