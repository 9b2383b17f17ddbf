//! Draws one series.

use super::{
    colors::series_color,
    contents::{Plot, PlotSeries, YAxis},
    frame::Frame,
    series_positions::{ShownSeries, for_each_position, line_positions, look},
};
use crate::{
    axis::ValueAxis,
    canvas::{Area, Canvas, LineStroke, Marker, MarkerShape},
    options::Color,
    point_values::indexes_within,
    strip::Position,
};

/// Pixels of a line.
const LINE_WIDTH: f32 = 1.4;
/// Points per column of pixels from which a line is drawn as an envelope.
const DENSE: f32 = 2.0;
/// Distance below which markers are drawn as one, pixels.
const MARKER_CELL: f32 = 2.0;
/// Fixed work of a series, in points.
const SERIES_WORK: usize = 2_000;

/// Draws the series with this number.
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
    // Crowded lines hide each other, and their outlines would take seconds.
    let is_crowded = canvas.is_crowded();
    let shape = shape.filter(|_| !(has_line && is_crowded));
    let is_dense = is_crowded || shape.is_none() && density(plot, series, frame.area) >= DENSE;
    let shown = ShownSeries { plot, series, axis, area: frame.area };
    if has_line && is_dense && plot.options.smoothing.is_none() {
        draw_envelope(canvas, shown, color);
    } else if has_line {
        let stroke = LineStroke { color, width: LINE_WIDTH, is_dashed: false };
        let dot = Marker::new(MarkerShape::FilledCircle, color).filter(|_| shape.is_none());
        line_positions(shown, pace, |strip| match (strip, &dot) {
            // A point between gaps has no line.
            ([position], Some(dot)) if frame.area.contains(*position) => {
                canvas.marker(dot, *position);
            }
            (positions, _) => canvas.strip(positions, frame.area, stroke),
        });
    }
    if let Some(marker) = shape.and_then(|shape| Marker::new(shape, color)) {
        draw_markers(canvas, shown, &marker);
    }
}

/// Points for each column of pixels.
fn density(plot: &Plot, series: &PlotSeries, area: Area) -> f32 {
    let (from, to) = indexes_within(&series.points, plot.range_ms);
    (to - from) as f32 / area.width().max(1.0)
}

/// Draws a line with many points per column of pixels: a bar over the values of each column, and
/// the connection to the next column. Outlines of thousands of steep lines would take seconds.
fn draw_envelope(canvas: &mut Canvas<'_>, shown: ShownSeries<'_>, color: Color) {
    let (area, pace) = (shown.area, canvas.pace());
    let mut bar = |column: i64, (upper, lower): (f32, f32)| {
        let (top, bottom) = (upper.max(area.top), lower.min(area.bottom));
        if top <= bottom && area.contains((column as f32 + 0.5, top)) {
            canvas.column(column as u32, (top as u32, bottom as u32), color);
        }
    };
    let mut open: Option<(i64, f32, f32)> = None;
    let mut last: Option<Position> = None;
    for_each_position(shown, pace, |position| {
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
                // The line comes from the previous point, across columns without points.
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

/// Draws markers. Of markers that cover each other, only one is drawn, so that the picture bounds
/// their number.
fn draw_markers(canvas: &mut Canvas<'_>, shown: ShownSeries<'_>, marker: &Marker) {
    let area = shown.area;
    let rows = (area.height() / MARKER_CELL) as usize + 2;
    let mut used = vec![false; rows];
    let mut column = i64::MIN;
    for_each_position(shown, canvas.pace(), |position| {
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
