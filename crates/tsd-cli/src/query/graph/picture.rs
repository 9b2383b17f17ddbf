//! Draws graphs: a PNG file, or text on standard output.

use std::{fs, io, path::Path};

use anyhow::Context;
use tsd_graph::{Plot, PlotOptions, PlotSeries, TerminalSize, YAxis, render_terminal};
use tsd_model::PointColumns;
use tsd_protocol::{count_graph_points, graph_label};

use super::frame::GraphFrame;
use crate::{print_lines, query::series::Series, terminal::has_colors};

/// Size of a terminal that does not tell it.
const DEFAULT_TERMINAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };

/// Writes a PNG file.
pub(super) fn write_png(
    path: &Path,
    series: &[Series],
    frame: GraphFrame<'_>,
) -> anyhow::Result<()> {
    let file = plot(series, frame)?.draw_png(&mut || true)?;
    fs::write(path, file).with_context(|| format!("writing {}", path.display()))
}

/// Prints a graph of characters, as large as the terminal.
pub(super) fn print_characters(series: &[Series], frame: GraphFrame<'_>) -> anyhow::Result<()> {
    let is_colored = has_colors(&io::stdout());
    let plot = plot(series, frame)?;
    Ok(print_lines(&render_terminal(&plot, terminal_size(), is_colored))?)
}

/// Combines series, range and options into a plot.
fn plot(series: &[Series], frame: GraphFrame<'_>) -> anyhow::Result<Plot> {
    let value_of = |name: &str| {
        let options = frame.options.iter().rev();
        options.filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).next()
    };
    let options = PlotOptions::parse(value_of)?;
    let (start_ms, end_ms) = frame.range_ms;
    let mut shown = Vec::with_capacity(series.len());
    for series in series {
        let mut points = PointColumns::default();
        for (time_ms, value) in &series.points {
            points.push(*time_ms, *value);
        }
        count_graph_points(&series.metric, &points, frame.range_ms)?;
        let label = graph_label(&series.metric, &series.tags);
        shown.push(PlotSeries { label, axis: YAxis::Left, points });
    }
    Ok(Plot {
        // A range must not be empty.
        range_ms: (start_ms, end_ms.max(start_ms.saturating_add(1_000))),
        zone: frame.zone,
        options,
        series: shown,
        notes: Vec::new(),
    })
}

/// The size of the terminal, without the line of the next prompt.
fn terminal_size() -> TerminalSize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let (columns, rows) = size
        .filter(|(columns, rows)| *columns > 0 && *rows > 0)
        .or_else(|| number("COLUMNS").zip(number("LINES")))
        .unwrap_or((DEFAULT_TERMINAL.columns, DEFAULT_TERMINAL.rows));
    TerminalSize { columns, rows: rows.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use jiff::tz::TimeZone;
    use tsd_model::Value;

    use super::*;

    fn series(value: f64) -> Series {
        Series {
            metric: "m".to_owned(),
            tags: vec![("host".to_owned(), "a".to_owned())],
            aggregate_tags: Vec::new(),
            points: vec![(1_000, Value::Integer(1)), (2_000, Value::Float(value))],
        }
    }

    fn frame(options: &[(String, String)]) -> GraphFrame<'_> {
        GraphFrame { range_ms: (0, 10_000), zone: TimeZone::UTC, options }
    }

    #[test]
    fn a_file_has_the_size_of_its_option() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("g.png");
        let options = [("wxh".to_owned(), "320x200".to_owned())];
        write_png(&path, &[series(2.5)], frame(&options)).unwrap();
        let file = fs::read(&path).unwrap();
        assert!(file.starts_with(b"\x89PNG\r\n\x1a\n"));
        assert_eq!(file.get(16..24), Some(&[0, 0, 1, 64, 0, 0, 0, 200][..]));
    }

    #[test]
    fn the_last_value_of_an_option_counts() {
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let options = [option("title", "a"), option("title", "b"), option("nokey", "")];
        let plot = plot(&[series(2.5)], frame(&options)).unwrap();
        assert_eq!(plot.options.title.as_deref(), Some("b"));
        assert_eq!(plot.options.key, None);
        assert_eq!(plot.series.first().unwrap().label, "m{host=a}");
    }

    #[test]
    fn invalid_options_and_infinities_are_refused() {
        let options = [("yrange".to_owned(), "[0:system('id')]".to_owned())];
        let error = plot(&[], frame(&options)).unwrap_err().to_string();
        assert!(error.contains("yrange"), "{error}");
        assert!(plot(&[series(f64::INFINITY)], frame(&[])).is_err());
        assert!(plot(&[series(f64::NAN)], frame(&[])).is_ok());
    }
}
