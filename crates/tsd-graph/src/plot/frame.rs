//! Draws everything except the series: axes, grid, labels, notes, the key.

use super::{
    contents::{Plot, YAxis},
    extents::AxisExtents,
    key::{KeyBox, KeyMargins},
};
use crate::{
    axis::{AxisTick, ValueAxis, default_time_format, time_ticks},
    canvas::{
        Area, CAP_HEIGHT, Canvas, LINE_HEIGHT, LineStroke, TextAnchor, shown_text, text_width,
    },
    options::{AxisOptions, Color},
};

/// Pixels between parts of the picture.
const GAP: f32 = 8.0;
/// Pixels of a tick.
const TICK: f32 = 5.0;
/// Pixels between the labels of a y axis.
const LABEL_DISTANCE: f32 = 45.0;
/// Pixels between the labels of the x axis.
const TIME_LABEL_DISTANCE: f32 = 24.0;
/// Greatest share of the width that the labels of a y axis take.
const MOST_LABEL_PART: f32 = 0.3;
/// Most notes that are drawn.
const MOST_NOTES: usize = 64;
/// Greatest share of the width that the text of a note takes.
const MOST_NOTE_PART: f32 = 0.3;

/// The frame of a graph.
#[derive(Debug)]
pub(super) struct Frame {
    /// Area of the series.
    pub(super) area: Area,
    pub(super) left: ValueAxis,
    pub(super) right: Option<ValueAxis>,
    times: Vec<AxisTick>,
    key: Option<KeyBox>,
    has_points: bool,
}

impl Frame {
    pub(super) fn new(plot: &Plot, extents: &AxisExtents) -> Self {
        let options = &plot.options;
        let size = (options.size.width as f32, options.size.height as f32);
        let has_right = plot.series.iter().any(|series| series.axis == YAxis::Right);
        let title_height = options.title.as_ref().map_or(0.0, |_| LINE_HEIGHT + GAP);
        let top = GAP + CAP_HEIGHT / 2.0 + title_height;
        let bottom = size.1 - (GAP + LINE_HEIGHT + TICK);
        let whole = Area { left: GAP, top, right: size.0 - GAP, bottom };
        let key = options.key.filter(|_| !plot.series.is_empty());
        let margins = key.map_or_else(KeyMargins::default, |key| KeyMargins::new(key, plot, whole));
        let (top, bottom) = (top + margins.top, bottom - margins.bottom);
        let most_labels = ((bottom - top) / LABEL_DISTANCE) as usize;
        let left_axis = ValueAxis::new(&options.y, extents.left, most_labels);
        let right_axis = has_right.then(|| ValueAxis::new(&options.y2, extents.right, most_labels));
        let most_label = size.0 * MOST_LABEL_PART;
        let left = margins.left + axis_width(&options.y, Some(&left_axis), most_label);
        let right = margins.right + axis_width(&options.y2, right_axis.as_ref(), most_label);
        // A small picture may leave no space.
        let (right, bottom) = ((size.0 - right).max(left + 1.0), bottom.max(top + 1.0));
        let area = Area { left, top, right, bottom }.to_pixel_centers();
        let (start_ms, end_ms) = plot.range_ms;
        let format = options
            .time_format
            .clone()
            .unwrap_or_else(|| default_time_format((end_ms - start_ms) / 1_000));
        let example = jiff::Timestamp::from_millisecond(start_ms)
            .map(|start| text_width(&format.render(&start.to_zoned(plot.zone.clone()))))
            .unwrap_or_default();
        let most_times = (area.width() / (example + TIME_LABEL_DISTANCE)) as usize;
        Self {
            area,
            left: left_axis,
            right: right_axis,
            times: time_ticks(plot.range_ms, &plot.zone, &format, most_times),
            key: key.and_then(|key| KeyBox::new(key, plot, area, whole)),
            has_points: extents.left.is_some() || extents.right.is_some(),
        }
    }

    /// Draws the layers below the series: the grid and the notes.
    pub(super) fn draw_below(&self, canvas: &mut Canvas<'_>, plot: &Plot) {
        let background = plot.options.background.unwrap_or(Color::WHITE);
        let foreground = plot.options.foreground;
        let area = self.area;
        let grid =
            LineStroke { is_dashed: true, ..LineStroke::thin(background.mix(foreground, 0.35)) };
        for tick in self.left.ticks.iter().filter(|tick| tick.label.is_some()) {
            if let Some(y) = self.y_of(tick) {
                canvas.line((area.left, y), (area.right, y), grid);
            }
        }
        for tick in &self.times {
            let x = self.x_of(tick.position);
            canvas.line((x, area.top), (x, area.bottom), grid);
        }
        for note in self.shown_notes(plot) {
            let line = LineStroke::thin(Color::rgb(0xd6_27_28));
            canvas.line((note.0, area.top), (note.0, area.bottom), line);
        }
    }

    /// Draws the layers above the series: borders, labels and the key.
    pub(super) fn draw_above(&self, canvas: &mut Canvas<'_>, plot: &Plot) {
        let color = plot.options.foreground;
        canvas.frame(self.area, color);
        self.draw_times(canvas, plot);
        self.draw_axis(canvas, plot, YAxis::Left);
        self.draw_axis(canvas, plot, YAxis::Right);
        let width = plot.options.size.width as f32;
        if let Some(title) = &plot.options.title {
            let title = shown_text(title, width - 2.0 * GAP);
            let at = (width / 2.0, GAP + CAP_HEIGHT + 2.0);
            canvas.text(&title, at, TextAnchor::Middle, color);
        }
        let background = plot.options.background.unwrap_or(Color::WHITE);
        for (x, text) in self.shown_notes(plot) {
            let text = shown_text(text, width * MOST_NOTE_PART);
            let half = text_width(&text) / 2.0;
            let x =
                x.clamp(self.area.left + half, (self.area.right - half).max(self.area.left + half));
            let y = self.area.bottom - GAP;
            let label = Area {
                left: x - half - 2.0,
                right: x + half + 2.0,
                top: y - CAP_HEIGHT - 3.0,
                bottom: y + 4.0,
            };
            canvas.fill(label, background, 0.85);
            canvas.text(&text, (x, y), TextAnchor::Middle, color);
        }
        if !self.has_points {
            let middle = f32::midpoint(self.area.left, self.area.right);
            let at = (middle, self.area.top + self.area.height() * 0.1 + CAP_HEIGHT);
            canvas.text("No data", at, TextAnchor::Middle, color);
        }
        if let Some(key) = &self.key {
            key.draw(canvas, plot, self.area);
        }
    }

    fn draw_times(&self, canvas: &mut Canvas<'_>, plot: &Plot) {
        let color = plot.options.foreground;
        let (area, width) = (self.area, plot.options.size.width as f32);
        let base = area.bottom + TICK + CAP_HEIGHT + 3.0;
        let mut free_from = 1.0;
        for tick in &self.times {
            let x = self.x_of(tick.position);
            canvas.line((x, area.bottom), (x, area.bottom + TICK), LineStroke::thin(color));
            let Some(label) = &tick.label else { continue };
            let half = text_width(label) / 2.0;
            if x - half >= free_from && x + half <= width - 1.0 {
                canvas.text(label, (x, base), TextAnchor::Middle, color);
                free_from = x + half + GAP;
            }
        }
    }

    fn draw_axis(&self, canvas: &mut Canvas<'_>, plot: &Plot, side: YAxis) {
        let (color, area) = (plot.options.foreground, self.area);
        let size = plot.options.size.width as f32;
        let Some(axis) = self.axis(side) else { return };
        let (options, edge, out, anchor): (_, _, f32, _) = match side {
            YAxis::Left => (&plot.options.y, area.left, -1.0, TextAnchor::End),
            YAxis::Right => (&plot.options.y2, area.right, 1.0, TextAnchor::Start),
        };
        let most = size * MOST_LABEL_PART;
        for tick in &axis.ticks {
            let Some(y) = self.y_of(tick) else { continue };
            let length = if tick.label.is_some() { TICK } else { TICK / 2.0 };
            canvas.line((edge, y), (out.mul_add(-length, edge), y), LineStroke::thin(color));
            if let Some(label) = &tick.label {
                let at = (out.mul_add(TICK, edge), y + CAP_HEIGHT / 2.0);
                canvas.text(&shown_text(label, most), at, anchor, color);
            }
        }
        if let Some(label) = &options.label {
            let label = shown_text(label, area.height());
            let labels = labels_width(axis, most);
            let x = match side {
                YAxis::Left => edge - labels - TICK - GAP,
                YAxis::Right => edge + labels + TICK + GAP + CAP_HEIGHT,
            };
            let middle = f32::midpoint(area.top, area.bottom);
            canvas.vertical_text(&label, (x, middle), color);
        }
    }

    /// Positions and texts of the notes within the range.
    fn shown_notes<'p>(&self, plot: &'p Plot) -> impl Iterator<Item = (f32, &'p str)> {
        let (start_ms, end_ms) = plot.range_ms;
        let notes =
            plot.notes.iter().filter(move |note| (start_ms..=end_ms).contains(&note.time_ms));
        let length = (end_ms - start_ms).max(1) as f64;
        notes.take(MOST_NOTES).map(move |note| {
            let position = (note.time_ms - start_ms) as f64 / length;
            (self.x_of(position), note.text.as_str())
        })
    }

    fn x_of(&self, position: f64) -> f32 {
        let x = position.mul_add(f64::from(self.area.width()), f64::from(self.area.left));
        (x as f32).floor() + 0.5
    }

    /// Height of a tick of a y axis, in pixels; `None` outside the graph.
    fn y_of(&self, tick: &AxisTick) -> Option<f32> {
        let y = tick.position.mul_add(-f64::from(self.area.height()), f64::from(self.area.bottom));
        let y = (y as f32).floor() + 0.5;
        (self.area.top - 1.0..=self.area.bottom + 1.0).contains(&y).then_some(y)
    }
}

/// Width of a y axis with its labels, in pixels.
fn axis_width(options: &AxisOptions, axis: Option<&ValueAxis>, most_label: f32) -> f32 {
    // Half of a time at the edge.
    let Some(axis) = axis else { return 2.5 * GAP };
    let label = options.label.as_ref().map_or(0.0, |_| LINE_HEIGHT);
    GAP + label + labels_width(axis, most_label) + TICK
}

/// Pixels of the widest label of an axis.
fn labels_width(axis: &ValueAxis, most: f32) -> f32 {
    let widths = axis.ticks.iter().filter_map(|tick| tick.label.as_deref()).map(text_width);
    widths.fold(0.0, f32::max).min(most)
}
