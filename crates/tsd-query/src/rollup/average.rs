//! Averages from rolled-up sums and counts.

use bytes::Bytes;
use tsd_model::{PointColumns, Value};

use crate::{
    error::QueryError,
    pipeline::{SeriesBuilder, SeriesPipeline, Span},
};

/// A series of averages on its way through the pipeline: the sum of a bucket's sums over the sum
/// of its counts, using only instants that have both.
#[derive(Clone, Debug)]
pub struct RollupAverageBuilder {
    sums: SeriesBuilder,
    counts: SeriesBuilder,
}

impl RollupAverageBuilder {
    /// A builder for a series, or for the earliest part of one.
    #[must_use]
    pub const fn start(pipeline: &SeriesPipeline) -> Self {
        Self { sums: pipeline.start(), counts: pipeline.start() }
    }

    /// A builder for a part of a series that an earlier part may precede.
    #[must_use]
    pub const fn start_later_part(pipeline: &SeriesPipeline) -> Self {
        Self { sums: pipeline.start_later_part(), counts: pipeline.start_later_part() }
    }

    /// Takes the next sums and counts of the series, each in time order.
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

    /// Appends a later part of the same series.
    pub fn join(&mut self, pipeline: &SeriesPipeline, later: Self) {
        self.sums.join(pipeline, later.sums);
        self.counts.join(pipeline, later.counts);
    }

    /// Whether any instant had both a sum and a count.
    #[must_use]
    pub const fn has_points(&self) -> bool {
        self.sums.has_points()
    }

    /// Bytes this builder holds; what a memory budget counts.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.sums.memory_bytes() + self.counts.memory_bytes()
    }

    /// The finished series; `None` where it has no part in the answer.
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
        // Both saw the same instants, so they have the same buckets.
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

fn as_double(value: Value) -> f64 {
    match value {
        Value::Integer(v) => v as f64,
        Value::Float(v) => v,
    }
}
