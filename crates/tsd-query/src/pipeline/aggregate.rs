//! Aggregation of several series into one.
//!
//! The result has a point at each time of any series. Times are processed in blocks that fit the
//! CPU cache. Within a block, the series are processed in order, and each adds its values to the
//! state of every time. OpenTSDB adds the values of a time in the same order, so sums are equal to
//! the last bit.

use tsd_model::{PointColumns, Value, ValueKinds};

use super::{
    resample::{mark_floating, resample_floats, resample_integers},
    time_union::TimeUnion,
};
use crate::{
    aggregator::{Aggregator, aggregate_floats, aggregate_integers},
    error::QueryError,
};

mod folds;

use folds::Fold;

/// Times per block.
const BLOCK_LEN: usize = 1024;

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

/// [`aggregate`] with a `check` that is called about every thousand values and may end the
/// aggregation: many series with different times take long.
pub fn aggregate_with(
    input: &AggregateInput<'_>,
    check: &mut dyn FnMut() -> Result<(), QueryError>,
) -> Result<PointColumns, QueryError> {
    if let [points] = input.series
        && let Some(result) = aggregate_single(points, input)
    {
        return result;
    }
    let timeline = timeline(input, check)?;
    let all_integers =
        !input.is_rate && input.series.iter().all(|points| points.kinds == ValueKinds::AllIntegers);
    let all_floats = input.is_rate
        || input.series.iter().all(|p| p.kinds == ValueKinds::AllFloats || p.is_empty());
    let mut result = PointColumns::default();
    let mut floats = Fold::floats(input.aggregator);
    let mut integers = Fold::integers(input.aggregator);
    let mut float_values = Vec::new();
    let mut integer_values = Vec::new();
    let interpolation = input.aggregator.interpolation();
    let block_len = if floats.keeps_values() || integers.keeps_values() {
        (MAX_RETAINED_VALUES / input.series.len().max(1)).clamp(1, BLOCK_LEN)
    } else {
        BLOCK_LEN
    };
    for block in timeline.chunks(block_len) {
        let mut floating = vec![all_floats; block.len()];
        if !all_floats && !all_integers {
            for points in input.series {
                check()?;
                mark_floating(points, block, &mut floating);
            }
        }
        let some_floating = floating.contains(&true);
        let some_integer = floating.contains(&false);
        if some_floating {
            floats.reset(block.len());
            for points in input.series {
                check()?;
                let range =
                    resample_floats(points, block, input.is_rate, interpolation, &mut float_values);
                floats.fold(range.start, &float_values);
            }
        }
        if some_integer {
            integers.reset(block.len());
            for points in input.series {
                check()?;
                let range = resample_integers(points, block, interpolation, &mut integer_values);
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

/// The error of an infinite result.
pub(super) fn infinity_error(value: f64) -> QueryError {
    let sign = if value < 0.0 { "-" } else { "" };
    QueryError::failed(format!("Got Infinity: {sign}Infinity"))
}

/// Fast path for a single series whose values the aggregator does not change, as in most queries
/// grouped by host; `None` if the general algorithm is needed.
fn aggregate_single(
    points: &PointColumns,
    input: &AggregateInput<'_>,
) -> Option<Result<PointColumns, QueryError>> {
    // Maps each double. The sum of zero and minus zero is zero.
    let fold: fn(f64) -> f64 = match input.aggregator {
        Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
            |v| if v.is_nan() { f64::NAN } else { 0.0 + v }
        }
        Aggregator::Min | Aggregator::Mimmin | Aggregator::Max | Aggregator::Mimmax => {
            |v| if v.is_nan() { f64::NAN } else { v }
        }
        Aggregator::First | Aggregator::Last | Aggregator::None => |v| v,
        _ => return None,
    };
    if input.is_rate || matches!(points.kinds, ValueKinds::Mixed(_)) {
        return None;
    }
    let from = points.times_ms.partition_point(|time| *time < input.from_ms);
    let to = points.times_ms.partition_point(|time| *time <= input.to_ms).max(from);
    let (times, bits) = (points.times_ms.get(from..to)?, points.bits.get(from..to)?);
    if times.is_empty() {
        return Some(Ok(PointColumns::default()));
    }
    let bits = if points.kinds == ValueKinds::AllFloats {
        let folded: Vec<u64> = bits.iter().map(|b| fold(f64::from_bits(*b)).to_bits()).collect();
        let first_infinite = folded.iter().map(|b| f64::from_bits(*b)).find(|v| v.is_infinite());
        if let Some(value) = first_infinite {
            return Some(Err(infinity_error(value)));
        }
        folded
    } else {
        bits.to_vec()
    };
    Some(Ok(PointColumns { times_ms: times.to_vec(), bits, kinds: points.kinds.clone() }))
}

/// Union of the times of all series inside the range.
fn timeline(
    input: &AggregateInput<'_>,
    check: &mut dyn FnMut() -> Result<(), QueryError>,
) -> Result<Vec<i64>, QueryError> {
    let mut union = TimeUnion::default();
    for points in input.series {
        check()?;
        // The time of the virtual first rate is not part of the result.
        let times = points.times_ms.get(usize::from(input.is_rate)..).unwrap_or_default();
        let from = times.partition_point(|time| *time < input.from_ms);
        let to = times.partition_point(|time| *time <= input.to_ms).max(from);
        union.add(times.get(from..to).unwrap_or_default());
    }
    Ok(union.finish())
}

#[cfg(test)]
mod tests;
