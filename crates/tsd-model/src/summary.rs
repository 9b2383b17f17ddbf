//! Summaries: what downsampling needs of the points of an hour or a day, instead of the points.
//!
//! A summary has the results of the folds of this module over its points. Downsampling uses the same
//! folds, so a bucket has the same bits whether it was folded from points or taken from a summary.

use std::sync::Arc;

use crate::{
    columns::PointColumns,
    packed_run::{PackedChunk, PackedRunError},
};

/// Sums of integers are exact in doubles, in any order, while their magnitudes add up to less.
const EXACT_MAGNITUDE: f64 = 9_007_199_254_740_992.0;

/// Adds values to a sum, in order and without those that are NaN. Returns the sum and their number.
#[inline]
pub fn fold_sum(from: f64, values: impl Iterator<Item = f64> + Clone) -> (f64, u64) {
    let (mut sum, mut count) = (from, 0);
    for v in values.clone() {
        sum += v;
        count += 1;
    }
    if sum.is_nan() {
        // NaN is rare, so values are checked only if the sum is NaN.
        (sum, count) = (from, 0);
        for v in values.filter(|v| !v.is_nan()) {
            sum += v;
            count += 1;
        }
    }
    (sum, count)
}

/// The value that no other one beats, of `best` and the values that are not NaN: the first of equal ones.
#[inline]
pub fn fold_extreme(
    best: Option<f64>,
    mut values: impl Iterator<Item = f64>,
    beats: impl Fn(f64, f64) -> bool,
) -> Option<f64> {
    let first = best.or_else(|| values.find(|v| !v.is_nan()))?;
    Some(values.fold(first, |best, v| if beats(v, best) { v } else { best }))
}

/// The points of an hour or a day of one series, summarized. It has at least one point, and none is NaN.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Start of the hour or UTC day, epoch milliseconds.
    pub start_ms: i64,
    /// Its end, exclusive.
    pub end_ms: i64,
    /// Number of points.
    pub count: u64,
    /// Smallest value, the first of equal ones. Integers are rounded to doubles, here and below.
    pub min: f64,
    /// Greatest value, the first of equal ones.
    pub max: f64,
    /// Sum in order of time.
    pub sum: f64,
    /// Value of the first point; NaN if it was not read.
    pub first: f64,
    /// Value of the last point; NaN if it was not read.
    pub last: f64,
    /// No value has a fraction.
    pub is_integral: bool,
    /// The points, where the reader may need them after all.
    pub points: Option<Arc<SummarizedPoints>>,
}

impl Summary {
    /// Upper bound of the sum of all magnitudes, if the sum has the same bits in any order: all values
    /// are integers, and there are not too many of them.
    #[must_use]
    pub fn exact_magnitude(&self) -> Option<f64> {
        let bound = self.count as f64 * self.min.abs().max(self.max.abs());
        (self.is_integral && is_exact_magnitude(bound)).then_some(bound)
    }
}

/// True if integers whose magnitudes add up to `bound` have the same sum in any order.
#[must_use]
pub fn is_exact_magnitude(bound: f64) -> bool {
    bound < EXACT_MAGNITUDE
}

/// Packed points that summaries were made of.
#[derive(Clone, Debug)]
pub struct SummarizedPoints(pub Vec<PackedChunk>);

impl SummarizedPoints {
    /// The points in time order.
    pub fn decode(&self) -> Result<PointColumns, PackedRunError> {
        let mut columns = PointColumns::default();
        for chunk in &self.0 {
            chunk.decode_into(&mut columns)?;
        }
        if columns.sort_distinct() {
            Ok(columns)
        } else {
            Err(PackedRunError::Damaged("two points of one instant"))
        }
    }

    /// Size in memory, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.iter().map(PackedChunk::byte_len).sum::<usize>() + size_of_val(self.0.as_slice())
    }
}

/// What a reader does with summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryFold {
    /// Uses counts, minima and maxima.
    Extremes,
    /// Uses the first and the last values.
    Ends,
    /// Uses sums and counts. Of floats only if the summary is the whole bucket, whose length is this.
    Sums(SumBucket),
}

/// Length of the buckets of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumBucket {
    /// Each hour is a bucket.
    Hour,
    /// Each UTC day is a bucket.
    Day,
    /// Buckets have several hours, or several days.
    Longer,
}

/// Which points may be returned as summaries, and which summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryUse {
    /// Start, inclusive, and end, exclusive, of the time of which hours may be summaries, epoch
    /// milliseconds. Each full hour in it is in one bucket.
    pub range_ms: (i64, i64),
    /// Each UTC day in the range is in one bucket, so that it may be one summary.
    pub has_days: bool,
    /// What the summaries are used for.
    pub fold: SummaryFold,
    /// Summaries come with their points: rows of the series may be added that the store does not have.
    pub with_points: bool,
}
