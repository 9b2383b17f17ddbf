//! Graphs of characters: braille patterns, whose eight dots are two columns and four rows of pixels.

use std::fmt::Write;

use crate::{
    axis::{AxisTick, ValueAxis, default_time_format, time_ticks},
    canvas::{Area, visible},
    options::PlotStyle,
    pace::Pace,
    plot::{AxisExtents, Plot, ShownSeries, YAxis, for_each_position, line_positions},
    strip::Position,
};

/// Dots of a character, from left to right and from top to bottom.
const DOTS: (usize, usize) = (2, 4);
/// Least size of a graph, in characters.
const LEAST: TerminalSize = TerminalSize { columns: 30, rows: 8 };
/// Greatest size of a graph, in characters.
const MOST: TerminalSize = TerminalSize { columns: 1_000, rows: 500 };
/// Most characters of a number on a y axis.
const MOST_LABEL: usize = 16;
/// Most lines of the key.
const MOST_KEY_LINES: usize = 12;
/// Rows from one number of an axis to the next.
const LABEL_ROWS: usize = 2;
/// Approximate greatest number of labels of an axis.
const MOST_LABELS: usize = 8;
/// Characters between two times.
const TIME_DISTANCE: usize = 3;
/// Codes of the foreground colors that are readable on black and on white.
const COLORS: [u8; 6] = [34, 31, 32, 35, 36, 33];

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Characters of a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// Draws a graph as lines of text; with escape sequences of colors if `is_colored`.
#[must_use]
pub fn render_terminal(plot: &Plot, size: TerminalSize, is_colored: bool) -> String {
    let columns = size.columns.clamp(LEAST.columns, MOST.columns);
    let rows = size.rows.clamp(LEAST.rows, MOST.rows);
    // A tool draws for itself alone.
    let mut pause = || true;
    let pace = Pace::new(&mut pause);
    let extents = AxisExtents::of(plot, &pace);
    let key_lines = match plot.options.key {
        Some(_) => plot.series.len().min(MOST_KEY_LINES).min(rows / 3),
        None => 0,
    };
    // The border, the times, the title.
    let others = 2 + key_lines + usize::from(plot.options.title.is_some());
    let graph_rows = rows.saturating_sub(others).max(3);
    let most_labels = (graph_rows / LABEL_ROWS).min(MOST_LABELS);
    let left = ValueAxis::new(&plot.options.y, extents.left, most_labels);
    let has_right = plot.series.iter().any(|series| series.axis == YAxis::Right);
    let right = has_right.then(|| ValueAxis::new(&plot.options.y2, extents.right, most_labels));
    let left_width = label_width(&left);
    let right_width = right.as_ref().map_or(0, |axis| label_width(axis) + 1);
    let graph_columns = columns.saturating_sub(left_width + 1 + right_width).max(10);
    let mut grid = DotGrid::new(graph_columns, graph_rows);
    for (number, series) in plot.series.iter().enumerate() {
        let axis = match series.axis {
            YAxis::Left => Some(&left),
            YAxis::Right => right.as_ref(),
        };
        if let Some(axis) = axis {
            grid.draw(ShownSeries { plot, series, axis, area: grid.area }, &pace, number);
        }
    }
    let mut out = String::new();
    if let Some(title) = &plot.options.title {
        let title: String = title.chars().take(columns).collect();
        let _ = writeln!(out, "{title:^columns$}");
    }
    let labels = |axis: &ValueAxis| labels_of_rows(axis, graph_rows);
    let (left_labels, right_labels) = (labels(&left), right.as_ref().map(labels));
    for row in 0..graph_rows {
        let label = left_labels.get(row).and_then(Option::as_deref);
        let edge = if label.is_some() { '┤' } else { '│' };
        let _ = write!(out, "{:>left_width$}{edge}", label.unwrap_or_default());
        grid.write_row(row, is_colored, &mut out);
        if let Some(labels) = &right_labels {
            let label = labels.get(row).and_then(Option::as_deref);
            let edge = if label.is_some() { '├' } else { '│' };
            let _ = write!(out, "{edge}{}", label.unwrap_or_default());
        }
        end_line(&mut out);
    }
    write_times(plot, left_width, graph_columns, right.is_some(), &mut out);
    write_key(plot, key_lines, columns, is_colored, &mut out);
    out
}

/// Ends a line without blanks at its end.
fn end_line(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

fn label_width(axis: &ValueAxis) -> usize {
    let widths = axis.ticks.iter().filter_map(|tick| tick.label.as_deref());
    widths.map(|label| label.chars().count()).max().unwrap_or(0).min(MOST_LABEL)
}

/// The label of each row, from the top.
fn labels_of_rows(axis: &ValueAxis, rows: usize) -> Vec<Option<String>> {
    let mut labels = vec![None; rows];
    for tick in &axis.ticks {
        let Some(label) = &tick.label else { continue };
        let row = ((1.0 - tick.position) * (rows - 1) as f64).round();
        if row >= 0.0
            && let Some(slot) = labels.get_mut(row as usize)
        {
            *slot = Some(label.chars().map(visible).take(MOST_LABEL).collect());
        }
    }
    labels
}

/// Writes the lower border and the times.
fn write_times(plot: &Plot, left: usize, columns: usize, has_right: bool, out: &mut String) {
    let (start_ms, end_ms) = plot.range_ms;
    let format = plot.options.time_format.clone();
    let format = format.unwrap_or_else(|| default_time_format((end_ms - start_ms) / 1_000));
    let example = time_ticks(plot.range_ms, &plot.zone, &format, 1);
    let width = |tick: &AxisTick| tick.label.as_ref().map_or(0, |label| label.chars().count());
    let example = example.iter().map(width).max().unwrap_or(8);
    let most = columns / (example + TIME_DISTANCE);
    let ticks = time_ticks(plot.range_ms, &plot.zone, &format, most);
    let mut border = vec!['─'; columns];
    let mut times = vec![' '; left + 1 + columns];
    let mut free_from = 0;
    for tick in &ticks {
        let column = (tick.position * (columns - 1) as f64).round() as usize;
        if let Some(c) = border.get_mut(column) {
            *c = '┬';
        }
        let label: Vec<char> = tick.label.iter().flat_map(|label| label.chars()).collect();
        let begin = (left + 1 + column).saturating_sub(label.len() / 2);
        if begin >= free_from && begin + label.len() <= times.len() {
            for (slot, c) in times.iter_mut().skip(begin).zip(&label) {
                *slot = *c;
            }
            free_from = begin + label.len() + 1;
        }
    }
    let border: String = border.into_iter().collect();
    let _ = writeln!(out, "{:left$}└{border}{}", "", if has_right { "┘" } else { "" });
    out.extend(times);
    end_line(out);
}

fn write_key(plot: &Plot, lines: usize, columns: usize, is_colored: bool, out: &mut String) {
    let has_all = plot.series.len() <= lines;
    let named = if has_all { lines } else { lines.saturating_sub(1) };
    for (number, series) in plot.series.iter().take(named).enumerate() {
        let label: String = series.label.chars().map(visible).take(columns - 4).collect();
        if is_colored {
            let _ = writeln!(out, "\x1b[{}m──\x1b[0m {label}", color_code(number));
        } else {
            let _ = writeln!(out, "── {label}");
        }
    }
    if !has_all && lines > 0 {
        let _ = writeln!(out, "… {} more", plot.series.len() - named);
    }
}

fn color_code(number: usize) -> u8 {
    COLORS.get(number % COLORS.len()).copied().unwrap_or_default()
}

/// Dots in characters.
#[derive(Debug)]
struct DotGrid {
    columns: usize,
    /// Dots of each character, and the series that set the last dot.
    cells: Vec<(u8, usize)>,
    area: Area,
}

impl DotGrid {
    fn new(columns: usize, rows: usize) -> Self {
        let area = Area {
            left: 0.0,
            top: 0.0,
            right: (columns * DOTS.0 - 1) as f32,
            bottom: (rows * DOTS.1 - 1) as f32,
        };
        Self { columns, cells: vec![(0, 0); columns * rows], area }
    }

    fn draw(&mut self, shown: ShownSeries<'_>, pace: &Pace<'_>, number: usize) {
        if matches!(shown.plot.options.style, PlotStyle::LinesPoints | PlotStyle::Lines) {
            line_positions(shown, pace, |strip| {
                if let [position] = strip {
                    self.dot(*position, number);
                }
                for pair in strip.windows(2) {
                    if let [from, to] = pair
                        && let Some((from, to)) = shown.area.clip(*from, *to)
                    {
                        self.line(from, to, number);
                    }
                }
            });
        } else {
            for_each_position(shown, pace, |position| {
                if let Some(position) = position {
                    self.dot(position, number);
                }
            });
        }
    }

    /// Dots of a line from one position inside the grid to another.
    fn line(&mut self, from: Position, to: Position, number: usize) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0) as usize;
        for step in 0..=steps {
            let part = step as f32 / steps as f32;
            let at = |a: f32, b: f32| (b - a).mul_add(part, a);
            self.dot((at(from.0, to.0), at(from.1, to.1)), number);
        }
    }

    fn dot(&mut self, position: Position, number: usize) {
        /// Bits of the dots of a braille pattern, row by row.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        if !self.area.contains(position) {
            return;
        }
        let (x, y) = (position.0.round() as usize, position.1.round() as usize);
        let bit = BITS.get(y % DOTS.1).and_then(|row| row.get(x % DOTS.0));
        let cell = self.cells.get_mut(y / DOTS.1 * self.columns + x / DOTS.0);
        if let (Some(bit), Some(cell)) = (bit, cell) {
            *cell = (cell.0 | bit, number);
        }
    }

    fn write_row(&self, row: usize, is_colored: bool, out: &mut String) {
        let cells = self.cells.chunks(self.columns).nth(row).unwrap_or_default();
        let mut current = None;
        for (bits, number) in cells {
            let color = (*bits != 0).then(|| color_code(*number));
            if is_colored && color.is_some() && color != current {
                let _ = write!(out, "\x1b[{}m", color.unwrap_or_default());
                current = color;
            }
            let pattern = char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' ');
            out.push(if *bits == 0 { ' ' } else { pattern });
        }
        if current.is_some() {
            out.push_str("\x1b[0m");
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use jiff::tz::TimeZone;
    use tsd_model::{PointColumns, Value};

    use super::*;
    use crate::{options::PlotOptions, plot::PlotSeries};

    fn plot(labels: &[&str]) -> Plot {
        let series = |(n, label): (usize, &&str)| {
            let mut points = PointColumns::default();
            for at in 0..60_i64 {
                points.push(at * 60_000, Value::Integer(at * (n as i64 + 1)));
            }
            PlotSeries { label: (*label).to_owned(), axis: YAxis::Left, points }
        };
        Plot {
            range_ms: (0, 3_600_000),
            zone: TimeZone::UTC,
            options: PlotOptions::default(),
            series: labels.iter().enumerate().map(series).collect(),
            notes: Vec::new(),
        }
    }

    const SIZE: TerminalSize = TerminalSize { columns: 60, rows: 14 };

    #[test]
    fn a_rising_line_rises() {
        let text = render_terminal(&plot(&["m"]), SIZE, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 14);
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{text}");
        assert!(lines[0].starts_with("60┤"), "{text}");
        assert!(lines[10].starts_with(" 0┤⣀"), "{text}");
        let is_dots = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
        let begins: Vec<usize> =
            lines[..=10].iter().filter_map(|line| line.chars().position(is_dots)).collect();
        assert_eq!(begins.len(), 11, "a line over the whole height\n{text}");
        assert!(begins.is_sorted_by(|a, b| a > b), "{text}");
        assert!(lines[11].starts_with("  └"), "{text}");
        assert!(lines[12].contains("00:30"), "{text}");
        assert_eq!(lines[13], "── m");
    }

    #[test]
    fn colors_are_escape_sequences_and_names_are_not() {
        let text = render_terminal(&plot(&["a", "b\x1b[2J"]), SIZE, true);
        assert!(text.contains("\x1b[34m──\x1b[0m a\n"), "{text}");
        assert!(text.contains("\x1b[31m──\x1b[0m b\u{fffd}[2J\n"), "{text}");
        let plain = render_terminal(&plot(&["a", "b\x1b[2J"]), SIZE, false);
        assert!(!plain.contains('\x1b'), "{plain}");
    }

    #[test]
    fn any_size_has_a_graph() {
        for (columns, rows) in [(0, 0), (1, 100), (100, 1), (30, 8), (100_000, 100_000)] {
            let text = render_terminal(&plot(&["m"; 40]), TerminalSize { columns, rows }, true);
            assert!(text.contains('┤'), "{columns}x{rows}");
        }
        let mut empty = plot(&[]);
        empty.options.title = Some("nothing".to_owned());
        assert!(render_terminal(&empty, SIZE, false).contains("nothing"));
    }
}
