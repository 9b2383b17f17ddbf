//! Everything that happens to one series before it meets others.

use bytes::Bytes;
use tsd_model::{PointColumns, ValueKinds};

use super::{accumulator::Accumulator, series_pipeline::SeriesPipeline};
use crate::{error::QueryError, filter::retain_values};

/// A series on its way through the pipeline.
///
/// Rows are pushed in time order. A series whose rows are read by several tasks is built by one
/// builder per part, which are then joined in time order.
#[derive(Clone, Debug)]
pub struct SeriesBuilder {
    range: Option<(i64, i64)>,
    /// Raw points: all of them where nothing is downsampled, else those of a later part's first
    /// bucket, which an earlier part may have begun.
    raw: PointColumns,
    /// Whether points still go to `raw`.
    keeps_raw: bool,
    open: Option<OpenBucket>,
    done: PointColumns,
}

#[derive(Clone, Debug)]
struct OpenBucket {
    start_ms: i64,
    end_ms: i64,
    accumulator: Accumulator,
}

/// A series that is ready for aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Metric and tag UIDs, without salt.
    pub tsuid: Bytes,
    /// Its points after the pipeline. With rates the first entry is the imaginary first rate.
    pub points: PointColumns,
}

impl SeriesBuilder {
    pub(super) const fn new(keeps_raw: bool) -> Self {
        const fn no_points() -> PointColumns {
            PointColumns { times_ms: Vec::new(), bits: Vec::new(), kinds: ValueKinds::AllIntegers }
        }
        Self { range: None, raw: no_points(), keeps_raw, open: None, done: no_points() }
    }

    /// Takes the next points of the series: later than all before.
    pub fn push(&mut self, pipeline: &SeriesPipeline, columns: &PointColumns) {
        if pipeline.value_filters.is_empty() {
            self.push_accepted(pipeline, columns);
        } else {
            let mut kept = columns.clone();
            retain_values(&pipeline.value_filters, &mut kept);
            self.push_accepted(pipeline, &kept);
        }
    }

    /// [`Self::push`] of points that the value filters were asked about before.
    pub(crate) fn push_accepted(&mut self, pipeline: &SeriesPipeline, columns: &PointColumns) {
        let (Some(first), Some(last)) = (columns.times_ms.first(), columns.times_ms.last()) else {
            return;
        };
        self.range = Some((self.range.map_or(*first, |(first, _)| first), *last));
        let (from_ms, to_ms) = pipeline.folded_range();
        let from = columns.times_ms.partition_point(|time| *time < from_ms);
        let to = columns.times_ms.partition_point(|time| *time < to_ms).max(from);
        let from = if self.keeps_raw { self.keep(pipeline, columns, from, to) } else { from };
        self.fold(pipeline, columns, from, to);
    }

    /// Keeps raw points as long as they must be kept; returns the index of the first that need not.
    fn keep(
        &mut self,
        pipeline: &SeriesPipeline,
        columns: &PointColumns,
        from: usize,
        to: usize,
    ) -> usize {
        let mut end = to;
        if pipeline.is_fixed()
            && let Some(first) = self.raw.times_ms.first().or_else(|| columns.times_ms.get(from))
        {
            let (_, bucket_end) = pipeline.bucket_of(*first, None);
            end = columns.times_ms.partition_point(|time| *time < bucket_end).clamp(from, to);
            self.keeps_raw = end == to;
        }
        append(&mut self.raw, columns, from, end);
        end
    }

    /// Folds points `from..to` into their buckets.
    #[expect(clippy::indexing_slicing, reason = "indices run below the length of the columns")]
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
            // Most buckets hold as many points as the one before.
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

    /// Moves the open bucket to the one of `time_ms`.
    fn open_bucket(&mut self, pipeline: &SeriesPipeline, time_ms: i64) {
        match &mut self.open {
            Some(open) => {
                let before = Some((open.start_ms, open.end_ms));
                (open.start_ms, open.end_ms) = pipeline.bucket_of(time_ms, before);
            }
            open @ None => {
                let (start_ms, end_ms) = pipeline.bucket_of(time_ms, None);
                let accumulator = Accumulator::new(pipeline.function);
                *open = Some(OpenBucket { start_ms, end_ms, accumulator });
            }
        }
    }

    /// Turns the open bucket into a point; its accumulator is empty afterwards.
    fn close(&mut self) {
        if let Some(open) = &mut self.open {
            self.done.kinds = ValueKinds::AllFloats;
            self.done.times_ms.push(open.start_ms);
            self.done.bits.push(open.accumulator.take().to_bits());
        }
    }

    /// Appends a later part of the same series.
    pub fn join(&mut self, pipeline: &SeriesPipeline, later: Self) {
        let Some((first, last)) = later.range else { return };
        self.range = Some((self.range.map_or(first, |(first, _)| first), last));
        if later.raw.is_empty() && later.open.is_none() {
            return;
        }
        let all = later.raw.len();
        let from = if self.keeps_raw { self.keep(pipeline, &later.raw, 0, all) } else { 0 };
        self.fold(pipeline, &later.raw, from, all);
        if let Some(open) = later.open {
            self.close();
            append(&mut self.done, &later.done, 0, later.done.len());
            self.open = Some(open);
            self.keeps_raw = false;
        }
    }

    /// Whether any point was pushed that the value filters let stay.
    #[must_use]
    pub const fn has_points(&self) -> bool {
        self.range.is_some()
    }

    /// Bytes this builder holds; what a memory budget counts.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        let columns = self.raw.times_ms.capacity() + self.done.times_ms.capacity();
        let values = match &self.open {
            Some(open) => open.accumulator.heap_bytes(),
            None => 0,
        };
        size_of::<Self>() + columns * 17 + values
    }

    /// The finished series; `None` where it has no part in the answer.
    pub fn finish(
        self,
        pipeline: &SeriesPipeline,
        tsuid: Bytes,
    ) -> Result<Option<Span>, QueryError> {
        match self.into_buckets(pipeline) {
            None => Ok(None),
            Some(points) => pipeline.complete(points).map(|points| Some(Span { tsuid, points })),
        }
    }

    /// The series after downsampling; `None` where it has no part in the answer.
    pub(crate) fn into_buckets(mut self, pipeline: &SeriesPipeline) -> Option<PointColumns> {
        let (first, last) = self.range?;
        if first > pipeline.window().scan_end_ms() || last < pipeline.window().scan_start_ms() {
            return None;
        }
        if !pipeline.downsamples() {
            return Some(self.raw);
        }
        if self.keeps_raw {
            let raw = std::mem::take(&mut self.raw);
            self.fold(pipeline, &raw, 0, raw.len());
        } else if !self.raw.is_empty() {
            // A later part that nothing preceded.
            let mut whole = pipeline.start();
            whole.join(pipeline, self);
            self = whole;
        }
        self.close();
        Some(self.done)
    }
}

/// Appends points `from..to` of `source`.
pub(super) fn append(target: &mut PointColumns, source: &PointColumns, from: usize, to: usize) {
    let (Some(times), Some(bits)) = (source.times_ms.get(from..to), source.bits.get(from..to))
    else {
        return;
    };
    match &source.kinds {
        _ if times.is_empty() => {}
        ValueKinds::AllIntegers => target.note_kind(true, times.len()),
        ValueKinds::AllFloats => target.note_kind(false, times.len()),
        ValueKinds::Mixed(_) => {
            for (i, time) in times.iter().enumerate() {
                if let Some(value) = source.value(from + i) {
                    target.push(*time, value);
                }
            }
            return;
        }
    }
    target.times_ms.extend_from_slice(times);
    target.bits.extend_from_slice(bits);
}

#[cfg(test)]
mod tests;
