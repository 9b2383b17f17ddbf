//! Resampling of one series onto the times of its group.
//!
//! A series is active from its first point to its last; at times between, where it has no point, it
//! contributes an interpolated value. So its contribution to a range of times is one contiguous run
//! of values.

use std::ops::Range;

use super::span_list::{PointSlices, SliceKinds};
use crate::aggregator::Interpolation;

/// Position of a series relative to a time.
#[derive(Clone, Copy, Debug)]
enum SeriesPosition {
    /// The series has a point at the time, with this index.
    At(usize),
    /// The series has points before and after; the index is the index of the earlier point.
    After(usize),
}

/// Writes the values of a series at `timeline` into `values`; returns the range of the timeline
/// that they cover.
pub(super) fn resample_floats(
    points: PointSlices<'_>,
    timeline: &[i64],
    is_rate: bool,
    interpolation: Interpolation,
    values: &mut Vec<f64>,
) -> Range<usize> {
    values.clear();
    if let Some((range, from)) = own_times(points, timeline, is_rate) {
        let bits = points.bits.get(from..from + range.len()).unwrap_or_default();
        match points.kinds {
            SliceKinds::AllFloats => values.extend(bits.iter().map(|b| f64::from_bits(*b))),
            SliceKinds::AllIntegers => values.extend(bits.iter().map(|b| *b as i64 as f64)),
            SliceKinds::Mixed(_) => {
                values.extend((from..from + range.len()).map(|i| float_at(points, i)));
            }
        }
        return range;
    }
    walk(points.times_ms, timeline, is_rate, |x, position| {
        values.push(match position {
            SeriesPosition::At(i) => float_at(points, i),
            SeriesPosition::After(i) if is_rate => float_at(points, i),
            SeriesPosition::After(i) => match interpolation {
                Interpolation::Linear => {
                    let (x0, x1) = neighbours(points.times_ms, i);
                    let (y0, y1) = (float_at(points, i), float_at(points, i + 1));
                    y0 + (x - x0) as f64 * (y1 - y0) / (x1 - x0) as f64
                }
                Interpolation::Zero => 0.0,
                Interpolation::Max => f64::MAX,
                Interpolation::Min => -f64::MAX,
                Interpolation::Previous => float_at(points, i),
            },
        });
    })
}

/// As [`resample_floats`], for series of integers. Floating-point values are interpreted as integer
/// bits; the caller ignores the results at their times.
pub(super) fn resample_integers(
    points: PointSlices<'_>,
    timeline: &[i64],
    interpolation: Interpolation,
    values: &mut Vec<i64>,
) -> Range<usize> {
    values.clear();
    let at = |i: usize| points.bits.get(i).map_or(0, |bits| *bits as i64);
    if let Some((range, from)) = own_times(points, timeline, false) {
        let bits = points.bits.get(from..from + range.len()).unwrap_or_default();
        values.extend(bits.iter().map(|b| *b as i64));
        return range;
    }
    walk(points.times_ms, timeline, false, |x, position| {
        values.push(match position {
            SeriesPosition::At(i) => at(i),
            SeriesPosition::After(i) => match interpolation {
                Interpolation::Linear => {
                    let (x0, x1) = neighbours(points.times_ms, i);
                    let rise = at(i + 1).wrapping_sub(at(i));
                    at(i).wrapping_add((x - x0).wrapping_mul(rise).wrapping_div((x1 - x0).max(1)))
                }
                Interpolation::Zero => 0,
                Interpolation::Max => i64::MAX,
                Interpolation::Min => i64::MIN,
                Interpolation::Previous => at(i),
            },
        });
    })
}

/// Marks the times at which a series makes the result a double: its current or next point is a
/// double, even before the series begins.
pub(super) fn mark_floating(points: PointSlices<'_>, timeline: &[i64], floating: &mut [bool]) {
    let Some(last) = points.times_ms.last() else { return };
    let end = timeline.partition_point(|x| x <= last);
    let marks = floating.get_mut(..end).unwrap_or_default();
    match points.kinds {
        SliceKinds::AllIntegers => {}
        SliceKinds::AllFloats => marks.fill(true),
        SliceKinds::Mixed(integers) => {
            let is_float = |i: usize| integers.get(i).is_some_and(|integer| !integer);
            let mut next =
                timeline.first().map_or(0, |x| points.times_ms.partition_point(|time| time <= x));
            for (x, mark) in timeline.iter().zip(marks) {
                while points.times_ms.get(next).is_some_and(|time| time <= x) {
                    next += 1;
                }
                *mark |= is_float(next) || next.checked_sub(1).is_some_and(is_float);
            }
        }
    }
}

/// For a series with a point at every time of the timeline while active: that range of the
/// timeline, and the index of the first point.
fn own_times(
    points: PointSlices<'_>,
    timeline: &[i64],
    is_rate: bool,
) -> Option<(Range<usize>, usize)> {
    if is_rate {
        return None;
    }
    // Most series of a group have equal times.
    if points.times_ms == timeline {
        return Some((0..timeline.len(), 0));
    }
    let (first, last) = (points.times_ms.first()?, points.times_ms.last()?);
    let start = timeline.partition_point(|x| x < first);
    let end = timeline.partition_point(|x| x <= last);
    let active = timeline.get(start..end)?;
    let from = points.times_ms.partition_point(|time| active.first().is_some_and(|x| time < x));
    let own = points.times_ms.get(from..from.checked_add(active.len())?)?;
    (own == active).then_some((start..end, from))
}

/// Calls `visit` for each time at which the series is active; returns that range of the timeline.
fn walk(
    times: &[i64],
    timeline: &[i64],
    is_rate: bool,
    mut visit: impl FnMut(i64, SeriesPosition),
) -> Range<usize> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return 0..0 };
    // The virtual first rate applies before the series begins; a series with only that rate
    // contributes nothing.
    if is_rate && times.len() < 2 {
        return 0..0;
    }
    let start = if is_rate { 0 } else { timeline.partition_point(|x| x < first) };
    let end = timeline.partition_point(|x| x <= last);
    let active = timeline.get(start..end).unwrap_or_default();
    // Index of the first point after the current time.
    let mut next = active.first().map_or(0, |x| times.partition_point(|time| time <= x));
    for x in active {
        while times.get(next).is_some_and(|time| time <= x) {
            next += 1;
        }
        let current = next.saturating_sub(1);
        let own = times.get(current) == Some(x);
        visit(*x, if own { SeriesPosition::At(current) } else { SeriesPosition::After(current) });
    }
    start..end.max(start)
}

fn neighbours(times: &[i64], i: usize) -> (i64, i64) {
    let x0 = times.get(i).copied().unwrap_or(0);
    (x0, times.get(i + 1).copied().unwrap_or(x0 + 1))
}

fn float_at(points: PointSlices<'_>, i: usize) -> f64 {
    let bits = points.bits.get(i).copied().unwrap_or(0);
    if points.is_integer(i) { bits as i64 as f64 } else { f64::from_bits(bits) }
}
