//! Evaluation of calls, and the functions over the series of one set.

use tsd_model::{PointColumns, Value};

use super::{
    arithmetic,
    call::{Call, CallInput},
    function::Function,
    gexp_series::{GexpSeries, SeriesOf},
    moving_average::{check_window, moving_average},
};
use crate::{
    error::{GexpError, QueryError},
    limits::ExecutionLimits,
    number::as_double,
    pipeline::NamedSeries,
};

/// Applies a call to its inputs. `range` has the first and the last millisecond of the result.
/// `outer_ms` is the offset by which the functions around the call move it.
pub(super) fn apply(
    call: &Call,
    (range, outer_ms): ((i64, i64), i64),
    series_of: &SeriesOf<'_>,
    limits: &mut dyn ExecutionLimits,
) -> Result<Vec<GexpSeries>, QueryError> {
    let moved_ms = call.offset_ms()?;
    let offset_ms = outer_ms.saturating_add(moved_ms);
    let input_range = (range.0.saturating_sub(moved_ms), range.1.saturating_sub(moved_ms));
    let mut sets = Vec::with_capacity(call.inputs.len());
    for input in &call.inputs {
        sets.push(match input {
            CallInput::Metric(text) => copies(series_of(text, offset_ms), limits)?,
            CallInput::Call(call) => apply(call, (input_range, offset_ms), series_of, limits)?,
        });
    }
    limits.check()?;
    if let Function::Sum | Function::Difference | Function::Multiply | Function::Divide =
        call.function
    {
        return arithmetic::combine(call.function, &sets, limits);
    }
    let mut series: Vec<GexpSeries> = sets.into_iter().flatten().collect();
    let parameter = call.parameters.first().map(String::as_str);
    match call.function {
        Function::Scale => {
            let text = parameter.ok_or(GexpError::NoFactor)?;
            let factor = scale_factor(text)?;
            each_value(&mut series, limits, |value| scaled(value, factor))?;
        }
        Function::Absolute => each_value(&mut series, limits, |value| match value {
            Value::Integer(v) => Value::Integer(v.wrapping_abs()),
            Value::Float(v) => Value::Float(v.abs()),
        })?,
        Function::Alias => {
            if call.parameters.is_empty() {
                return Err(GexpError::NoAlias.into());
            }
            let template = call.parameters.join(",");
            for output in &mut series {
                rename(&mut output.series, &template);
            }
        }
        Function::FirstDiff => each_column(&mut series, limits, first_difference)?,
        Function::MovingAverage => {
            let window = parameter.ok_or(GexpError::NoWindow)?;
            check_window(window)?;
            for output in &mut series {
                output.series.cut(range.0, range.1);
                output.series.points = moving_average(&output.series.points, window, limits)?;
            }
        }
        Function::HighestMax => {
            return highest(series, parameter, |points| greatest(points, range));
        }
        Function::HighestCurrent => {
            let last = series.iter().filter_map(|s| last_time(&s.series.points, range)).max();
            return highest(series, parameter, |points| current(points, last));
        }
        Function::Shift => each_column(&mut series, limits, |points| {
            let mut moved = points.clone();
            for time in &mut moved.times_ms {
                *time = time.saturating_add(moved_ms);
            }
            moved
        })?,
        Function::Sum | Function::Difference | Function::Multiply | Function::Divide => {}
    }
    Ok(series)
}

/// Copies of a metric's series: each function that uses the metric may modify them differently.
fn copies(
    (sub_query, series): (usize, &[NamedSeries]),
    limits: &mut dyn ExecutionLimits,
) -> Result<Vec<GexpSeries>, QueryError> {
    let mut copies = Vec::with_capacity(series.len());
    for series in series {
        limits.check()?;
        limits.reserve(series.memory_bytes())?;
        copies.push(GexpSeries { series: series.clone(), is_combined: false, sub_query });
    }
    Ok(copies)
}

fn each_column(
    series: &mut [GexpSeries],
    limits: &mut dyn ExecutionLimits,
    f: impl Fn(&PointColumns) -> PointColumns,
) -> Result<(), QueryError> {
    for output in series {
        limits.check()?;
        output.series.points = f(&output.series.points);
    }
    Ok(())
}

fn each_value(
    series: &mut [GexpSeries],
    limits: &mut dyn ExecutionLimits,
    f: impl Fn(Value) -> Value,
) -> Result<(), QueryError> {
    each_column(series, limits, |points| {
        let mut mapped = PointColumns::default();
        for (i, time) in points.times_ms.iter().enumerate() {
            if let Some(value) = points.value(i) {
                mapped.push(*time, f(value));
            }
        }
        mapped
    })
}

fn scale_factor(text: &str) -> Result<f64, GexpError> {
    if !text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.')) {
        return Err(GexpError::Factor);
    }
    text.parse().map_err(|_| GexpError::FactorNumber)
}

/// The result is an integer if value and factor are integers.
fn scaled(value: Value, factor: f64) -> Value {
    match value {
        Value::Integer(v) if factor.fract() == 0.0 => Value::Integer(v.wrapping_mul(factor as i64)),
        Value::Integer(v) => Value::Float(v as f64 * factor),
        Value::Float(v) => Value::Float(v * factor),
    }
}

/// Replaces the metric name by a template; `@key` in it becomes the tag's value.
fn rename(series: &mut NamedSeries, template: &str) {
    let mut tags: Vec<(String, String)> = std::mem::take(&mut series.tags);
    // Longer keys first: a key may be the prefix of another.
    tags.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
    series.metric = tags
        .iter()
        .fold(template.to_owned(), |name, (key, value)| name.replace(&format!("@{key}"), value));
    series.aggregate_tags.clear();
    series.group_tags = crate::pipeline::GroupTags::default();
}

fn first_difference(points: &PointColumns) -> PointColumns {
    let mut differences = PointColumns::default();
    let mut before = None;
    for (i, time) in points.times_ms.iter().enumerate() {
        let Some(value) = points.value(i).map(as_double) else { break };
        let difference = before.map_or(0.0, |before| value - before);
        differences.push(*time, Value::Float(difference));
        before = Some(value);
    }
    differences
}

/// The `n` series with the greatest rank, descending; ties keep their order.
fn highest(
    series: Vec<GexpSeries>,
    parameter: Option<&str>,
    rank: impl Fn(&PointColumns) -> f64,
) -> Result<Vec<GexpSeries>, QueryError> {
    let text = parameter.ok_or(GexpError::NoCount)?;
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(GexpError::Count(text.to_owned()).into());
    }
    let n: i32 = text.parse().map_err(|_| GexpError::CountNumber)?;
    let n = usize::try_from(n).unwrap_or(0);
    if n == 0 {
        return Err(GexpError::CountNotPositive.into());
    }
    let mut ranked: Vec<(f64, GexpSeries)> =
        series.into_iter().map(|output| (rank(&output.series.points), output)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(ranked.into_iter().take(n).map(|(_, output)| output).collect())
}

/// Greatest value inside the range.
fn greatest(points: &PointColumns, (from, to): (i64, i64)) -> f64 {
    let mut greatest = f64::NEG_INFINITY;
    for (i, time) in points.times_ms.iter().enumerate() {
        if let Some(value) = points.value(i).map(as_double)
            && (from..=to).contains(time)
        {
            greatest = greatest.max(value);
        }
    }
    greatest
}

fn last_time(points: &PointColumns, (from, to): (i64, i64)) -> Option<i64> {
    points.times_ms.iter().rev().find(|time| (from..=to).contains(*time)).copied()
}

/// Value at a time, linearly interpolated; 0 before the series begins or after it ends.
fn current(points: &PointColumns, at: Option<i64>) -> f64 {
    let Some(at) = at else { return 0.0 };
    let next = points.times_ms.partition_point(|time| *time < at);
    let point = |i: usize| {
        let value = points.value(i).map(as_double)?;
        points.times_ms.get(i).map(|time| (*time, value))
    };
    match (next.checked_sub(1).and_then(point), point(next)) {
        (_, Some((time, value))) if time == at => value,
        (Some((x0, y0)), Some((x1, y1))) => y0 + (at - x0) as f64 * (y1 - y0) / (x1 - x0) as f64,
        _ => 0.0,
    }
}
