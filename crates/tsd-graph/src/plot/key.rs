//! The key, which names the series of each line.

use super::{colors::series_color, contents::Plot, series_positions::look};
use crate::{
    canvas::{
        Area, CAP_HEIGHT, Canvas, LINE_HEIGHT, LineStroke, Marker, TextAnchor, shown_text,
        text_width,
    },
    options::{Color, KeyPlacement, KeySide},
};

/// Most series in a key.
const MOST_ENTRIES: usize = 64;
/// Pixels of the line before a label.
const SAMPLE_WIDTH: f32 = 24.0;
/// Pixels around texts.
const PADDING: f32 = 6.0;
/// Greatest share of the picture's width that a label in the margin takes.
const MOST_MARGIN_PART: f32 = 0.35;
/// Greatest share of the graph's width that a label inside takes.
const MOST_INSIDE_PART: f32 = 0.6;
/// Greatest share of the height that a key above or below the graph takes.
const MOST_HEIGHT_PART: f32 = 0.4;
/// Least width of a label, pixels; a graph with less space is drawn without a key.
const LEAST_LABEL: f32 = 30.0;
/// Pixels between the key and the graph's border.
const DISTANCE: f32 = 8.0;

/// Space that a key in the margin takes from the graph.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyMargins {
    pub(super) left: f32,
    pub(super) top: f32,
    pub(super) right: f32,
    pub(super) bottom: f32,
}

/// A key with its position.
#[derive(Debug)]
pub(super) struct KeyBox {
    area: Area,
    labels: Vec<String>,
    /// Series that are not in the key.
    more: usize,
    columns: usize,
    column_width: f32,
    is_horizontal: bool,
    is_boxed: bool,
}

/// The margin of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyMargin {
    Left,
    Right,
    Top,
    Bottom,
}

impl KeyMargin {
    /// As in gnuplot: left or right of the graph if the entries form a column, else above or below
    /// it.
    const fn of(placement: KeyPlacement) -> Option<Self> {
        if !placement.is_outside {
            return None;
        }
        let is_centered = matches!(placement.across, KeySide::Center);
        let is_beside = match placement.down {
            // Rows at half of the height are also left or right of the graph.
            KeySide::Center => true,
            _ => !placement.is_horizontal && !is_centered,
        };
        Some(match (is_beside, placement.across, placement.down) {
            (true, KeySide::Start, _) => Self::Left,
            (true, ..) => Self::Right,
            (false, _, KeySide::End) => Self::Bottom,
            (false, ..) => Self::Top,
        })
    }
}

impl KeyMargins {
    /// The space of a key in the margin of a graph; `whole` is the area without the key.
    pub(super) fn new(placement: KeyPlacement, plot: &Plot, whole: Area) -> Self {
        let Some(margin) = KeyMargin::of(placement) else { return Self::default() };
        let key = KeyBox::arrange(placement, plot, available(margin, whole));
        let Some((width, height)) = key.map(|key| key.size()) else { return Self::default() };
        let (width, height) = (width + DISTANCE, height + DISTANCE);
        match margin {
            KeyMargin::Left => Self { left: width, ..Self::default() },
            KeyMargin::Right => Self { right: width, ..Self::default() },
            KeyMargin::Top => Self { top: height, ..Self::default() },
            KeyMargin::Bottom => Self { bottom: height, ..Self::default() },
        }
    }
}

/// Most width and height of a key in a margin.
fn available(margin: KeyMargin, whole: Area) -> (f32, f32) {
    match margin {
        KeyMargin::Left | KeyMargin::Right => {
            (whole.width() * MOST_MARGIN_PART, whole.height() - LINE_HEIGHT)
        }
        KeyMargin::Top | KeyMargin::Bottom => (whole.width(), whole.height() * MOST_HEIGHT_PART),
    }
}

impl KeyBox {
    /// The key of a graph whose series are in `area` of the picture `whole`. `None` without enough
    /// space.
    pub(super) fn new(
        placement: KeyPlacement,
        plot: &Plot,
        area: Area,
        whole: Area,
    ) -> Option<Self> {
        let margin = KeyMargin::of(placement);
        let most = match margin {
            Some(margin) => available(margin, whole),
            None => (area.width() * MOST_INSIDE_PART, area.height() - 2.0 * DISTANCE),
        };
        let mut key = Self::arrange(placement, plot, most)?;
        let (width, height) = key.size();
        // Inside, the key keeps a distance from the border.
        let inner = Area {
            left: area.left + DISTANCE,
            top: area.top + DISTANCE,
            right: area.right - DISTANCE,
            bottom: area.bottom - DISTANCE,
        };
        let (across, down) = match margin {
            None => (inner, inner),
            Some(_) => (area, area),
        };
        let side = |side: KeySide, (from, to): (f32, f32), length: f32| match side {
            KeySide::Start => from,
            KeySide::Center => f32::midpoint(from, to) - length / 2.0,
            KeySide::End => to - length,
        };
        let left = match margin {
            Some(KeyMargin::Left) => whole.left,
            Some(KeyMargin::Right) => whole.right - width,
            _ => side(placement.across, (across.left, across.right), width),
        };
        let top = match margin {
            Some(KeyMargin::Top) => area.top - DISTANCE - height,
            Some(KeyMargin::Bottom) => area.bottom + LINE_HEIGHT + DISTANCE,
            _ => side(placement.down, (down.top, down.bottom), height),
        };
        let left = left.max(1.0);
        key.area = Area { left, top, right: left + width, bottom: top + height };
        Some(key)
    }

    /// Arranges the entries within a width and a height.
    fn arrange(placement: KeyPlacement, plot: &Plot, (width, height): (f32, f32)) -> Option<Self> {
        let most_label = width - SAMPLE_WIDTH - 3.0 * PADDING;
        if most_label < LEAST_LABEL || height < LINE_HEIGHT {
            return None;
        }
        let mut labels: Vec<String> = plot
            .series
            .iter()
            .take(MOST_ENTRIES)
            .map(|series| shown_text(&series.label, most_label))
            .collect();
        let widest = labels.iter().map(|label| text_width(label)).fold(0.0, f32::max);
        let column_width = widest + SAMPLE_WIDTH + 2.0 * PADDING;
        let most_rows = ((height - 2.0 * PADDING) / LINE_HEIGHT).floor().max(1.0) as usize;
        let most_columns = ((width - PADDING) / column_width).floor().max(1.0) as usize;
        let columns = if placement.is_horizontal {
            most_columns.min(labels.len().max(1))
        } else {
            labels.len().div_ceil(most_rows).clamp(1, most_columns)
        };
        let has_space = columns * most_rows;
        if plot.series.len() > labels.len() || labels.len() > has_space {
            // The last entry states how many series are not listed.
            labels.truncate(has_space.min(MOST_ENTRIES).saturating_sub(1));
        }
        let more = plot.series.len() - labels.len();
        let area = Area { left: 0.0, top: 0.0, right: 0.0, bottom: 0.0 };
        let (is_horizontal, is_boxed) = (placement.is_horizontal, placement.is_boxed);
        Some(Self { area, labels, more, columns, column_width, is_horizontal, is_boxed })
    }

    fn entries(&self) -> usize {
        self.labels.len() + usize::from(self.more > 0)
    }

    fn rows(&self) -> usize {
        self.entries().div_ceil(self.columns).max(1)
    }

    fn size(&self) -> (f32, f32) {
        let width = self.columns as f32 * self.column_width + PADDING;
        (width, self.rows() as f32 * LINE_HEIGHT + PADDING)
    }

    /// Left edge and base line of the entry with this number.
    fn entry_at(&self, number: usize) -> (f32, f32) {
        let (column, row) = if self.is_horizontal {
            (number % self.columns, number / self.columns)
        } else {
            (number / self.rows(), number % self.rows())
        };
        let x = self.area.left + PADDING + column as f32 * self.column_width;
        let y = self.area.top + PADDING / 2.0 + (row as f32 + 0.5) * LINE_HEIGHT + CAP_HEIGHT / 2.0;
        (x, y)
    }

    pub(super) fn draw(&self, canvas: &mut Canvas<'_>, plot: &Plot, graph: Area) {
        let background = plot.options.background.unwrap_or(Color::WHITE);
        let foreground = plot.options.foreground;
        // Lines behind texts would make them hard to read.
        if plot.options.background.is_some() {
            canvas.fill(self.area, background, 0.85);
        }
        if self.is_boxed {
            canvas.frame(self.area, background.mix(foreground, 0.5));
        }
        for (number, (label, series)) in self.labels.iter().zip(&plot.series).enumerate() {
            let (x, y) = self.entry_at(number);
            let color = series_color(number, background);
            let middle = (y - CAP_HEIGHT / 2.0).floor() + 0.5;
            let (has_line, shape) = look(plot, series, graph, number);
            if has_line {
                let stroke = LineStroke { width: 2.0, ..LineStroke::thin(color) };
                canvas.line((x, middle), (x + SAMPLE_WIDTH, middle), stroke);
            }
            if let Some(marker) = shape.and_then(|shape| Marker::new(shape, color)) {
                canvas.marker(&marker, (x + SAMPLE_WIDTH / 2.0, middle));
            }
            canvas.text(label, (x + SAMPLE_WIDTH + PADDING, y), TextAnchor::Start, foreground);
        }
        if self.more > 0 {
            let (x, y) = self.entry_at(self.labels.len());
            let text = format!("… {} more", self.more);
            canvas.text(&text, (x, y), TextAnchor::Start, foreground);
        }
    }
}
