//! Aggregation of several series into one.
//!
//! The result has a point at each time of any series. Times are processed in blocks that fit the
//! CPU cache. Within a block, the series are processed in order, and each adds its values to the
//! state of every time. OpenTSDB adds the values of a time in the same order, so sums are equal to
//! the last bit.

use tsd_model::{PointColumns, Value};

use super::{
    resample::{mark_floating, resample_floats, resample_integers},
    span_list::{PointSlices, SeriesPoints, SliceKinds},
    time_union::TimeUnion,
};
use crate::{
    aggregator::Aggregator,
    error::{DataError, QueryError},
};

mod folds;

use folds::Fold;

/// Times per block.
const BLOCK_LEN: usize = 1024;

/// Values after which limits are checked. A series counts as [`VALUES_PER_SERIES`] values in
/// addition to its own.
const VALUES_PER_CHECK: usize = 1024;
const VALUES_PER_SERIES: usize = 4;

/// Most values retained per block by aggregators that need all values of a time.
const MAX_RETAINED_VALUES: usize = 1 << 22;

/// Input of an aggregation.
#[derive(Clone, Copy, Debug)]
pub struct AggregateInput<'a> {
    /// The aggregator.
    pub aggregator: Aggregator,
    /// True if the points are rates; then the first point of each series is the virtual first rate.
    pub is_rate: bool,
    /// Points of the series, in series order.
    pub series: &'a [&'a PointColumns],
    /// First time of the result.
    pub from_ms: i64,
    /// Last time of the result.
    pub to_ms: i64,
}

/// Aggregates series over the union of their times between `from_ms` and `to_ms`.
pub fn aggregate(input: &AggregateInput<'_>) -> Result<PointColumns, QueryError> {
    aggregate_with(input, &mut || Ok(()))
}

/// [`aggregate`] with a `check`, which is called about every thousand values and may end the
/// aggregation.
fn aggregate_with(
    input: &AggregateInput<'_>,
    check: &mut dyn FnMut() -> Result<(), QueryError>,
) -> Result<PointColumns, QueryError> {
    let AggregateInput { aggregator, is_rate, series, from_ms, to_ms } = *input;
    Aggregation { aggregator, is_rate, from_ms, to_ms }.of(series, check)
}

/// [`AggregateInput`] without the series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    pub(super) aggregator: Aggregator,
    pub(super) is_rate: bool,
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

/// Calls a check for about every thousand values.
struct ValueChecks<'c> {
    check: &'c mut dyn FnMut() -> Result<(), QueryError>,
    values: usize,
}

impl ValueChecks<'_> {
    /// Counts a series whose values are not folded yet.
    fn add_series(&mut self, values: usize) -> Result<(), QueryError> {
        self.values += values + VALUES_PER_SERIES;
        if self.values >= VALUES_PER_CHECK {
            self.values = 0;
            (self.check)()?;
        }
        Ok(())
    }
}

impl Aggregation {
    /// [`aggregate_with`] of any kind of series.
    pub(super) fn of<S: SeriesPoints + ?Sized>(
        &self,
        series: &S,
        check: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<PointColumns, QueryError> {
        let count = series.count();
        if count == 1
            && let Some(points) = series.points().next()
            && let Some(result) = self.of_single(points)
        {
            return result;
        }
        check()?;
        let mut checks = ValueChecks { check, values: 0 };
        let timeline = self.timeline(series, &mut checks)?;
        let all_integers =
            !self.is_rate && series.points().all(|points| points.kinds == SliceKinds::AllIntegers);
        let all_floats = self.is_rate
            || series.points().all(|p| p.kinds == SliceKinds::AllFloats || p.is_empty());
        let mut result = PointColumns::default();
        let mut floats = Fold::<f64>::new(self.aggregator);
        let mut integers = Fold::<i64>::new(self.aggregator);
        let mut float_values = Vec::new();
        let mut integer_values = Vec::new();
        let interpolation = self.aggregator.interpolation();
        let block_len = if floats.keeps_values() || integers.keeps_values() {
            (MAX_RETAINED_VALUES / count.max(1)).clamp(1, BLOCK_LEN)
        } else {
            BLOCK_LEN
        };
        for block in timeline.chunks(block_len) {
            let mut floating = vec![all_floats; block.len()];
            if !all_floats && !all_integers {
                for points in series.points() {
                    checks.add_series(block.len())?;
                    mark_floating(points, block, &mut floating);
                }
            }
            let some_floating = floating.contains(&true);
            let some_integer = floating.contains(&false);
            if some_floating {
                floats.reset(block.len());
                for points in series.points() {
                    checks.add_series(block.len())?;
                    let values = &mut float_values;
                    let range = resample_floats(points, block, self.is_rate, interpolation, values);
                    floats.fold(range.start, &float_values);
                }
            }
            if some_integer {
                integers.reset(block.len());
                for points in series.points() {
                    checks.add_series(block.len())?;
                    let range =
                        resample_integers(points, block, interpolation, &mut integer_values);
                    integers.fold(range.start, &integer_values);
                }
            }
            for (i, (time, floating)) in block.iter().zip(&floating).enumerate() {
                if *floating {
                    let value = floats.result(i);
                    if value.is_infinite() {
                        return Err(infinity_error(value));
                    }
                    result.push(*time, Value::Float(value));
                } else {
                    result.push(*time, Value::Integer(integers.result(i)));
                }
            }
        }
        Ok(result)
    }

    /// Fast path for a single series whose values the aggregator does not change, as in most queries
    /// grouped by host; `None` if the general algorithm is needed.
    fn of_single(&self, points: PointSlices<'_>) -> Option<Result<PointColumns, QueryError>> {
        // Maps each double. The sum of zero and minus zero is zero.
        let fold: fn(f64) -> f64 = match self.aggregator {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                |v| if v.is_nan() { f64::NAN } else { 0.0 + v }
            }
            Aggregator::Min | Aggregator::Mimmin | Aggregator::Max | Aggregator::Mimmax => {
                |v| if v.is_nan() { f64::NAN } else { v }
            }
            Aggregator::First | Aggregator::Last | Aggregator::None => |v| v,
            _ => return None,
        };
        if self.is_rate || matches!(points.kinds, SliceKinds::Mixed(_)) {
            return None;
        }
        let from = points.times_ms.partition_point(|time| *time < self.from_ms);
        let to = points.times_ms.partition_point(|time| *time <= self.to_ms).max(from);
        if from == to {
            return Some(Ok(PointColumns::default()));
        }
        let mut result = points.copy_range(from, to);
        if points.kinds == SliceKinds::AllFloats {
            for bits in &mut result.bits {
                *bits = fold(f64::from_bits(*bits)).to_bits();
            }
            let mut values = result.bits.iter().map(|bits| f64::from_bits(*bits));
            if let Some(value) = values.find(|value| value.is_infinite()) {
                return Some(Err(infinity_error(value)));
            }
        }
        Some(Ok(result))
    }

    /// Union of the times of all series inside the range.
    fn timeline<S: SeriesPoints + ?Sized>(
        &self,
        series: &S,
        checks: &mut ValueChecks<'_>,
    ) -> Result<Vec<i64>, QueryError> {
        let mut union = TimeUnion::default();
        for points in series.points() {
            checks.add_series(points.len())?;
            // The time of the virtual first rate is not part of the result.
            let times = points.times_ms.get(usize::from(self.is_rate)..).unwrap_or_default();
            let from = times.partition_point(|time| *time < self.from_ms);
            let to = times.partition_point(|time| *time <= self.to_ms).max(from);
            union.add(times.get(from..to).unwrap_or_default());
        }
        Ok(union.finish())
    }
}

/// The error of an infinite result.
pub(super) fn infinity_error(value: f64) -> QueryError {
    DataError::Infinite { negative: value < 0.0 }.into()
}

#[cfg(test)]
mod tests;
