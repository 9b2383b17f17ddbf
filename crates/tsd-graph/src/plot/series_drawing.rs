//! Draws one series.

use super::{Plot, PlotSeries, YAxis, colors::series_color, frame::Frame};
use crate::{
    axis::ValueAxis,
    canvas::{Area, Canvas, LineStroke, Marker, MarkerShape},
    options::{Color, PlotStyle, Smoothing},
    pace::Pace,
    point_values::{indexes_within, values_between},
    smooth::smooth,
    strip::{LineStrip, Position, StripBuilder},
};

/// Pixels of a line.
const LINE_WIDTH: f32 = 1.4;
/// Least pixels between the points of a line with markers.
const LEAST_MARKER_DISTANCE: f32 = 8.0;
/// Points for each column of pixels from which a line is drawn by columns.
const DENSE: f32 = 2.0;
/// Markers closer than this are one.
const MARKER_CELL: f32 = 2.0;
/// Work of a series, whatever its points.
const SERIES_WORK: usize = 2_000;
/// Work of a point of a curve, which is computed of many points.
const CURVE_WORK: usize = 200;

/// Draws the series of that number.
pub(super) fn draw_series(
    canvas: &mut Canvas<'_>,
    frame: &Frame,
    plot: &Plot,
    (number, series): (usize, &PlotSeries),
) {
    let pace = canvas.pace();
    let Some(axis) = frame.axis(series.axis).filter(|_| pace.goes_on(SERIES_WORK)) else { return };
    let background = plot.options.background.unwrap_or(Color::WHITE);
    let color = series_color(number, background);
    let (has_line, shape) = look(plot, series, frame.area, number);
    let is_dense = shape.is_none() && density(plot, series, frame.area) >= DENSE;
    if has_line && is_dense && plot.options.smoothing.is_none() {
        draw_envelope(canvas, plot, series, axis, (frame.area, color));
    } else if has_line {
        let stroke = LineStroke { color, width: LINE_WIDTH, is_dashed: false };
        let dot = Marker::new(MarkerShape::FilledCircle, color).filter(|_| shape.is_none());
        line_positions(plot, series, axis, frame.area, pace, |strip| {
            match (strip.positions.as_slice(), &dot) {
                // A point between gaps has no line.
                ([position], Some(dot)) if frame.area.contains(*position) => {
                    canvas.marker(dot, *position);
                }
                (positions, _) => canvas.strip(positions, frame.area, stroke),
            }
        });
    }
    if let Some(marker) = shape.and_then(|shape| Marker::new(shape, color)) {
        draw_markers(canvas, &marker, plot, series, axis, frame.area);
    }
}

/// Points for each column of pixels.
fn density(plot: &Plot, series: &PlotSeries, area: Area) -> f32 {
    let (from, to) = indexes_within(&series.points, plot.range_ms);
    (to - from) as f32 / area.width().max(1.0)
}

/// Draws a line with many points for each column of pixels: a bar over the values of each column and the
/// way to the next one. Outlines of thousands of steep lines would take seconds.
fn draw_envelope(
    canvas: &mut Canvas<'_>,
    plot: &Plot,
    series: &PlotSeries,
    axis: &ValueAxis,
    (area, color): (Area, Color),
) {
    let pace = canvas.pace();
    let mut bar = |column: i64, (upper, lower): (f32, f32)| {
        let (top, bottom) = (upper.max(area.top), lower.min(area.bottom));
        if top <= bottom && area.contains((column as f32 + 0.5, top)) {
            canvas.column(column as u32, (top as u32, bottom as u32), color);
        }
    };
    let mut open: Option<(i64, f32, f32)> = None;
    let mut last: Option<Position> = None;
    for_each_position(plot, series, axis, area, pace, |position| {
        let Some((x, y)) = position else {
            last = None;
            return;
        };
        let number = x.floor() as i64;
        match &mut open {
            Some((column, upper, lower)) if *column == number => {
                *upper = upper.min(y);
                *lower = lower.max(y);
            }
            _ => {
                if let Some((column, upper, lower)) = open.take() {
                    bar(column, (upper, lower));
                }
                // The line comes from the point before, across the columns that have none.
                let mut from = y;
                if let Some((x0, y0)) = last {
                    let at = |column: i64| {
                        let part = (column as f32 - x0) / (x - x0).max(f32::EPSILON);
                        (y - y0).mul_add(part.clamp(0.0, 1.0), y0)
                    };
                    let begin = (x0.floor() as i64 + 1).max(area.left as i64);
                    for column in begin..number.min(area.right as i64 + 1) {
                        let (one, other) = (at(column), at(column + 1));
                        bar(column, (one.min(other), one.max(other)));
                    }
                    from = at(number);
                }
                open = Some((number, y.min(from), y.max(from)));
            }
        }
        last = Some((x, y));
    });
    if let Some((column, upper, lower)) = open {
        bar(column, (upper, lower));
    }
}

/// How the points of a series are drawn: whether there is a line, and the shape of its markers.
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

/// Calls `emit` with the line of a series.
pub(crate) fn line_positions(
    plot: &Plot,
    series: &PlotSeries,
    axis: &ValueAxis,
    area: Area,
    pace: &Pace<'_>,
    emit: impl FnMut(&LineStrip),
) {
    let mut strips = StripBuilder::new(emit);
    for_each_position(plot, series, axis, area, pace, |position| match position {
        Some(position) => strips.push(position),
        None => strips.push_gap(),
    });
    strips.finish();
}

/// Calls `emit` with the position of each point, the ones next to the range included; `None` if it has none.
pub(crate) fn for_each_position(
    plot: &Plot,
    series: &PlotSeries,
    axis: &ValueAxis,
    area: Area,
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
    // A line goes on to what is outside.
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
    smooth(&samples, smoothing, width, |(secs, value)| {
        if pace.goes_on(work) {
            emit(secs.mul_add(1_000.0, start_ms as f64), value);
        }
    });
}

/// Draws markers. Of those that cover each other one is drawn, so that there are at most as many as the
/// picture has space for.
fn draw_markers(
    canvas: &mut Canvas<'_>,
    marker: &Marker,
    plot: &Plot,
    series: &PlotSeries,
    axis: &ValueAxis,
    area: Area,
) {
    let rows = (area.height() / MARKER_CELL) as usize + 2;
    let mut used = vec![false; rows];
    let mut column = i64::MIN;
    for_each_position(plot, series, axis, area, canvas.pace(), |position| {
        let Some(position) = position.filter(|position| area.contains(*position)) else { return };
        let number = (position.0 / MARKER_CELL).floor() as i64;
        if number != column {
            column = number;
            used.fill(false);
        }
        let row = ((position.1 - area.top) / MARKER_CELL) as usize;
        if let Some(used) = used.get_mut(row)
            && !std::mem::replace(used, true)
        {
            canvas.marker(marker, position);
        }
    });
}

impl Frame {
    /// The axis of a side, if the graph has it.
    pub(super) const fn axis(&self, side: YAxis) -> Option<&ValueAxis> {
        match side {
            YAxis::Left => Some(&self.left),
            YAxis::Right => self.right.as_ref(),
        }
    }
}
