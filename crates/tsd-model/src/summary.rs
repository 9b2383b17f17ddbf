//! Summaries of an hour or a day of points, so that downsampling need not read the points.
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

/// Adds the values that are not NaN to a sum, in order. Returns the sum and the number of these
/// values.
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

/// The extreme of `best` and the values that are not NaN; the first of equal extremes.
#[inline]
pub fn fold_extreme(
    best: Option<f64>,
    mut values: impl Iterator<Item = f64>,
    beats: impl Fn(f64, f64) -> bool,
) -> Option<f64> {
    let first = best.or_else(|| values.find(|v| !v.is_nan()))?;
    Some(values.fold(first, |best, v| if beats(v, best) { v } else { best }))
}

/// Summary of an hour or a day of one series. It covers at least one point, and no NaN.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Start of the hour or UTC day, epoch milliseconds.
    pub start_ms: i64,
    /// End of the hour or UTC day, exclusive.
    pub end_ms: i64,
    /// Number of points.
    pub count: u64,
    /// Smallest value, the first of equal values. Integers are rounded to doubles, here and below.
    pub min: f64,
    /// Greatest value, the first of equal values.
    pub max: f64,
    /// Sum in order of time.
    pub sum: f64,
    /// Value of the first point; NaN if it was not read.
    pub first: f64,
    /// Value of the last point; NaN if it was not read.
    pub last: f64,
    /// No value has a fraction.
    pub is_integral: bool,
    /// The points, if the reader may still need them.
    pub points: Option<Arc<SummarizedPoints>>,
}

impl Summary {
    /// Upper bound of the sum of all magnitudes, if the sum has the same bits in any order: all
    /// values are integers, and their sum is small enough.
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

/// Packed points of some summaries.
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

/// Values that a reader takes from summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryFold {
    /// Uses counts, minima and maxima.
    Extremes,
    /// Uses the first and the last values.
    Ends,
    /// Uses sums and counts; sums of floats only if the summary covers a whole bucket, whose length
    /// is given.
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

/// Tells a store which points it may return as summaries, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryUse {
    /// Time range whose hours may be summaries: start inclusive, end exclusive, epoch milliseconds.
    /// Each full hour of it is in one bucket.
    pub range_ms: (i64, i64),
    /// Each UTC day in the range is in one bucket, so that it may be one summary.
    pub has_days: bool,
    /// Use of the summaries.
    pub fold: SummaryFold,
    /// Summaries come with their points, since layers in front may add rows of the series.
    pub with_points: bool,
}
