//! Averages from rolled-up sums and counts.

use bytes::Bytes;
use tsd_model::{PointColumns, Value};

use crate::{
    error::QueryError,
    number::as_double,
    pipeline::{SeriesBuilder, SeriesPipeline, Span},
};

/// Builds a series of averages: the sum of a bucket's sums divided by the sum of its counts, over
/// the times that have both.
#[derive(Clone, Debug)]
pub struct RollupAverageBuilder {
    sums: SeriesBuilder,
    counts: SeriesBuilder,
}

impl RollupAverageBuilder {
    /// A builder for a series, or for its earliest scan range.
    #[must_use]
    pub fn start(pipeline: &SeriesPipeline, is_continuation: bool) -> Self {
        let part = || pipeline.start_range(is_continuation);
        Self { sums: part(), counts: part() }
    }

    /// Adds the next sums and counts of the series, each in time order.
    pub fn push(&mut self, pipeline: &SeriesPipeline, sums: &PointColumns, counts: &PointColumns) {
        let mut both = (PointColumns::default(), PointColumns::default());
        let mut at = 0;
        for (i, time) in sums.times_ms.iter().enumerate() {
            while counts.times_ms.get(at).is_some_and(|other| other < time) {
                at += 1;
            }
            if counts.times_ms.get(at) != Some(time) {
                continue;
            }
            let (Some(sum), Some(count)) = (sums.value(i), counts.value(at)) else { continue };
            let average = quotient(as_double(sum), as_double(count));
            if pipeline.accepts_value(Value::Float(average)) {
                both.0.push(*time, sum);
                both.1.push(*time, count);
            }
        }
        self.sums.push_accepted(pipeline, &both.0);
        self.counts.push_accepted(pipeline, &both.1);
    }

    /// Appends a later scan range of the same series.
    pub fn append(&mut self, pipeline: &SeriesPipeline, later: Self) {
        self.sums.append(pipeline, later.sums);
        self.counts.append(pipeline, later.counts);
    }

    /// True if any time had both a sum and a count.
    #[must_use]
    pub const fn has_points(&self) -> bool {
        self.sums.has_points()
    }

    /// Memory in bytes, for the memory budget.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.sums.memory_bytes() + self.counts.memory_bytes()
    }

    /// Finishes the series; `None` if it is not part of the result.
    pub fn finish(
        self,
        pipeline: &SeriesPipeline,
        tsuid: Bytes,
    ) -> Result<Option<Span>, QueryError> {
        let (Some(sums), Some(counts)) =
            (self.sums.into_buckets(pipeline), self.counts.into_buckets(pipeline))
        else {
            return Ok(None);
        };
        // Both have the same times, so they have the same buckets.
        let mut averages = PointColumns::default();
        for (i, time) in sums.times_ms.iter().enumerate() {
            if let (Some(sum), Some(count)) = (sums.value(i), counts.value(i)) {
                let average = quotient(as_double(sum), as_double(count));
                averages.push(*time, Value::Float(average));
            }
        }
        pipeline.complete(averages).map(|points| Some(Span { tsuid, points }))
    }
}

fn quotient(sum: f64, count: f64) -> f64 {
    if count == 0.0 { 0.0 } else { sum / count }
}
