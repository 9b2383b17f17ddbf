//! Decides whether the points of a series have a line and markers, and computes their positions.

use super::contents::{Plot, PlotSeries};
use crate::{
    axis::ValueAxis,
    canvas::{Area, MarkerShape},
    options::{PlotStyle, Smoothing},
    pace::Pace,
    point_values::{indexes_within, values_between},
    smooth::smooth,
    strip::{Position, StripBuilder},
};

/// Least pixels between the points of a line with markers.
const LEAST_MARKER_DISTANCE: f32 = 8.0;
/// Work of a point of a curve, which is computed from many points.
const CURVE_WORK: usize = 200;

/// A series with its axis and area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownSeries<'a> {
    pub(crate) plot: &'a Plot,
    pub(crate) series: &'a PlotSeries,
    pub(crate) axis: &'a ValueAxis,
    pub(crate) area: Area,
}

/// Returns whether a series has a line, and the shape of its markers.
pub(super) fn look(
    plot: &Plot,
    series: &PlotSeries,
    area: Area,
    number: usize,
) -> (bool, Option<MarkerShape>) {
    let is_curve = plot.options.smoothing.is_some_and(Smoothing::is_curve);
    match plot.options.style {
        PlotStyle::LinesPoints => {
            let (from, to) = indexes_within(&series.points, plot.range_ms);
            let has_space = area.width() / (to - from).max(1) as f32 >= LEAST_MARKER_DISTANCE;
            (true, (has_space && !is_curve).then(|| MarkerShape::of_series(number)))
        }
        PlotStyle::Lines => (true, None),
        PlotStyle::Points => (is_curve, (!is_curve).then(|| MarkerShape::of_series(number))),
        PlotStyle::Circles => (is_curve, (!is_curve).then_some(MarkerShape::Circle)),
        PlotStyle::Dots => (is_curve, (!is_curve).then_some(MarkerShape::Dot)),
    }
}

/// Calls `emit` with the strips of the line of a series.
pub(crate) fn line_positions(
    shown: ShownSeries<'_>,
    pace: &Pace<'_>,
    emit: impl FnMut(&[Position]),
) {
    let mut strips = StripBuilder::new(emit);
    for_each_position(shown, pace, |position| match position {
        Some(position) => strips.push(position),
        None => strips.push_gap(),
    });
    strips.finish();
}

/// Calls `emit` with the position of each point, also of the neighbours of the range; `None` for a
/// value that cannot be drawn.
pub(crate) fn for_each_position(
    ShownSeries { plot, series, axis, area }: ShownSeries<'_>,
    pace: &Pace<'_>,
    mut emit: impl FnMut(Option<Position>),
) {
    let (start_ms, end_ms) = plot.range_ms;
    let length = (end_ms - start_ms).max(1) as f64;
    let mut position = |at_ms: f64, value: f64| {
        let height = axis.position(value).filter(|_| value.is_finite());
        emit(height.map(|height| {
            let x = (at_ms - start_ms as f64) / length;
            let x = f64::from(area.left) + x * f64::from(area.width());
            let y = f64::from(area.bottom) - height * f64::from(area.height());
            (x as f32, y as f32)
        }));
    };
    if plot.options.smoothing.is_some() {
        for_each_value(plot, series, pace, position);
        return;
    }
    let (from, to) = indexes_within(&series.points, plot.range_ms);
    // A line continues to the points outside.
    let range = (from.saturating_sub(1), (to + 1).min(series.points.len()));
    let values = values_between(&series.points, range);
    for (time_ms, value) in values.take_while(|_| pace.goes_on(1)) {
        position(time_ms as f64, value);
    }
}

/// Calls `emit` with milliseconds and value of each point within the range, after smoothing. NaN is passed
/// on unless points are smoothed.
pub(super) fn for_each_value(
    plot: &Plot,
    series: &PlotSeries,
    pace: &Pace<'_>,
    mut emit: impl FnMut(f64, f64),
) {
    let range = indexes_within(&series.points, plot.range_ms);
    let values = values_between(&series.points, range).take_while(|_| pace.goes_on(1));
    let (start_ms, end_ms) = plot.range_ms;
    let Some(smoothing) = plot.options.smoothing else {
        return values.for_each(|(time_ms, value)| emit(time_ms as f64, value));
    };
    if range.0 == range.1 {
        return;
    }
    let samples = values
        .filter(|(_, value)| value.is_finite())
        .map(move |(time_ms, value)| ((time_ms - start_ms) as f64 / 1_000.0, value));
    let width = ((end_ms - start_ms) as f64 / 1_000.0, plot.options.size.width);
    let work = if smoothing.is_curve() { CURVE_WORK } else { 1 };
    smooth(samples, smoothing, width, |(secs, value)| {
        if pace.goes_on(work) {
            emit(secs.mul_add(1_000.0, start_ms as f64), value);
        }
    });
}
