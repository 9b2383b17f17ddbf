#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::Cursor;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use tsd_model::{PointColumns, Value};

use super::{colors::series_color, *};
use crate::options::{Color, PlotStyle, Smoothing};

fn columns(values: impl IntoIterator<Item = (i64, f64)>) -> PointColumns {
    let mut points = PointColumns::default();
    for (time_ms, value) in values {
        points.push(time_ms, Value::Float(value));
    }
    points
}

fn series(label: &str, values: impl IntoIterator<Item = (i64, f64)>) -> PlotSeries {
    PlotSeries { label: label.to_owned(), axis: YAxis::Left, points: columns(values) }
}

fn plot(width: u32, height: u32, series: Vec<PlotSeries>) -> Plot {
    let options = PlotOptions { size: PlotSize { width, height }, ..PlotOptions::default() };
    Plot { range_ms: (0, 100_000), zone: TimeZone::UTC, options, series, notes: Vec::new() }
}

/// A decoded picture.
struct Picture {
    width: usize,
    pixels: Vec<u8>,
}

impl Picture {
    fn new(plot: Plot) -> Self {
        let (width, height) = (plot.options.size.width, plot.options.size.height);
        let file = plot.draw_png(&mut || true).unwrap();
        let mut reader = png::Decoder::new(Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (width, height));
        let pixels = match info.color_type {
            png::ColorType::Rgb => pixels,
            _ => pixels.chunks(4).flat_map(|pixel| pixel[..3].to_vec()).collect(),
        };
        Self { width: width as usize, pixels }
    }

    /// Positions of the pixels near a color.
    fn find(&self, color: Color) -> Vec<(usize, usize)> {
        let near = |a: u8, b: u8| a.abs_diff(b) < 30;
        let is_near = |pixel: &[u8]| {
            near(pixel[0], color.red) && near(pixel[1], color.green) && near(pixel[2], color.blue)
        };
        let found = self.pixels.chunks(3).enumerate().filter(|(_, pixel)| is_near(pixel));
        found.map(|(at, _)| (at % self.width, at / self.width)).collect()
    }
}

fn first_color() -> Color {
    series_color(0, Color::WHITE)
}

fn without_key(mut plot: Plot) -> Plot {
    plot.options.key = None;
    plot
}

#[test]
fn a_line_is_where_its_values_are() {
    let line = series("m", [(0, 0.0), (100_000, 10.0)]);
    let mut plot = without_key(plot(400, 300, vec![line]));
    plot.options.style = PlotStyle::Lines;
    let pixels = Picture::new(plot).find(first_color());
    let left = pixels.iter().min().unwrap();
    let right = pixels.iter().max().unwrap();
    assert!(left.0 < 60 && left.1 > 250, "the first value is at the bottom left: {left:?}");
    assert!(right.0 > 370 && right.1 < 30, "the last value is at the top right: {right:?}");
    assert!(pixels.len() > 300, "{}", pixels.len());
    // Half of the height at half of the time.
    let middle =
        pixels.iter().filter(|(x, _)| (205..215).contains(x)).map(|(_, y)| *y).collect::<Vec<_>>();
    assert!(middle.iter().all(|y| (125..165).contains(y)), "{middle:?}");
}

#[test]
fn missing_values_are_gaps() {
    let values = (0..100).map(|n| (n * 1_000, if (40..60).contains(&n) { f64::NAN } else { 5.0 }));
    let mut plot = without_key(plot(400, 200, vec![series("m", values)]));
    plot.options.style = PlotStyle::Lines;
    let pixels = Picture::new(plot).find(first_color());
    let within =
        |from: usize, to: usize| pixels.iter().filter(|(x, _)| (from..to).contains(x)).count();
    assert!(within(60, 150) > 60);
    assert_eq!(within(195, 240), 0);
    assert!(within(270, 370) > 60);
}

#[test]
fn right_axes_have_a_scale_of_their_own() {
    let left = series("small", [(0, 0.0), (100_000, 1.0)]);
    let right = PlotSeries { axis: YAxis::Right, ..series("large", [(0, 1e6), (100_000, 0.0)]) };
    let mut plot = without_key(plot(400, 300, vec![left, right]));
    plot.options.style = PlotStyle::Lines;
    let picture = Picture::new(plot);
    let height = |color| picture.find(color).iter().map(|(_, y)| *y).min().unwrap_or(300);
    assert!(height(first_color()) < 30);
    assert!(height(series_color(1, Color::WHITE)) < 30);
}

#[test]
fn millions_of_points_are_drawn() {
    let values = (0..2_000_000_i64).map(|n| (n / 20, (n as f64 / 300_000.0).sin()));
    let mut points = PointColumns::default();
    for (n, (_, value)) in values.enumerate() {
        points.push(n as i64, Value::Float(value));
    }
    let mut plot = plot(300, 200, vec![PlotSeries { points, ..PlotSeries::default() }]);
    plot.range_ms = (0, 2_000_000);
    assert!(Picture::new(plot).find(first_color()).len() > 300);
}

#[test]
fn lines_of_a_crowded_graph_are_drawn_by_columns() {
    // Colors in the right half of the graph, where only the last series is.
    let colors_of_last = |count: usize| {
        let zigzag = |from_ms: i64| {
            let value = |n: i64| if n % 2 == 0 { 0.0 } else { 10.0 };
            series("", (0..40).map(|n| (from_ms + n * 1_000, value(n))))
        };
        let mut all: Vec<PlotSeries> = (0..count).map(|_| zigzag(0)).collect();
        all.push(zigzag(60_000));
        let mut plot = without_key(plot(200, 150, all));
        plot.options.style = PlotStyle::Lines;
        let picture = Picture::new(plot);
        let rows = picture.pixels.chunks(3 * picture.width).skip(30).take(60);
        let pixels = rows.flat_map(|row| row[3 * 130..3 * 180].chunks(3));
        pixels.map(<[u8]>::to_vec).collect::<std::collections::BTreeSet<_>>().len()
    };
    // Its own color, the background and the colors of the grid.
    let crowded = colors_of_last(60);
    assert!(crowded < 10, "{crowded}");
    let antialiased = colors_of_last(10);
    assert!(antialiased > 20, "{antialiased}");
}

#[test]
fn a_graph_without_points_says_so() {
    let empty = Picture::new(plot(400, 300, Vec::new()));
    let dark = empty.find(Color::BLACK);
    assert!(dark.iter().any(|(x, y)| (180..220).contains(x) && (25..60).contains(y)), "a text");
}

#[test]
fn work_is_divided_whatever_takes_it() {
    // Pieces of a picture, and where the last of `stop_after` stops it.
    let pieces = |plot: Plot, stop_after: usize| {
        let mut pieces = 0;
        let file = plot.draw_png(&mut || {
            pieces += 1;
            pieces < stop_after
        });
        (pieces, file)
    };
    let lines = |count: usize, points: i64| -> Vec<PlotSeries> {
        let value = |at: i64| ((at * 37 % 101) as f64, at * 100_000 / points);
        let line = || series("m", (0..points).map(move |at| (value(at).1, value(at).0)));
        (0..count).map(|_| line()).collect()
    };
    let small = |series| plot(300, 200, series);
    for (what, plot, least) in [
        ("little", small(lines(1, 10)), 4),
        ("many series", small(lines(200, 10)), 20),
        ("many points", small(lines(1, 300_000)), 30),
        ("pixels", plot(1_000, 1_000, lines(1, 10)), 100),
        ("a long line", plot(1_000, 1_000, lines(1, 900)), 120),
    ] {
        let (pieces, file) = pieces(plot, usize::MAX);
        assert!(pieces >= least && file.is_ok(), "{what}: {pieces}");
    }
    for stop_after in [1, 2, 20, 80] {
        let (pieces, file) = pieces(plot(1_000, 1_000, lines(3, 1_000)), stop_after);
        assert_eq!(pieces, stop_after);
        assert!(matches!(file, Err(DrawError::Stopped)), "{stop_after}");
    }
}

#[test]
fn colors_of_the_picture_are_those_of_the_options() {
    let mut plot = plot(200, 150, vec![series("m", [(0, 1.0), (50_000, 2.0)])]);
    plot.options.background = Some(Color { red: 10, green: 20, blue: 80 });
    plot.options.foreground = Color { red: 250, green: 250, blue: 0 };
    let picture = Picture::new(plot);
    let background = picture.find(Color { red: 10, green: 20, blue: 80 }).len();
    assert!(background > 200 * 150 / 2, "{background}");
    assert!(picture.find(Color { red: 250, green: 250, blue: 0 }).len() > 300);
}

#[test]
fn a_key_of_hundreds_has_a_bound() {
    let lines: Vec<PlotSeries> = (0..500)
        .map(|n| series(&format!("metric{{host=web{n:04}}}"), [(0, f64::from(n))]))
        .collect();
    for key in ["out", "out center top horiz box", "left bottom", "below", "center", "out left"] {
        let options = PlotOptions::parse(|name| (name == "key").then_some(key)).unwrap();
        let mut plot = plot(640, 480, lines.clone());
        plot.options.key = options.key;
        assert!(!Picture::new(plot).find(Color::BLACK).is_empty(), "{key}");
    }
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        proptest::num::f64::ANY,
        -1e3..1e3_f64,
        Just(f64::NAN),
        Just(0.0),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_points_are_drawn(
        values in proptest::collection::vec(any_value(), 0..50),
        spacing in 1..5_000_i64,
        (width, height) in (100..300_u32, 100..300_u32),
        label: String,
        smoothing in prop_oneof![
            Just(None), Just(Some(Smoothing::Unique)), Just(Some(Smoothing::CSplines)),
        ],
        is_log: bool,
        style in prop_oneof![Just(PlotStyle::LinesPoints), Just(PlotStyle::Circles), Just(PlotStyle::Dots)],
    ) {
        let points = values.iter().enumerate().map(|(n, value)| (n as i64 * spacing - 3_000, *value));
        let mut plot = plot(width, height, vec![series(&label, points)]);
        plot.options.smoothing = smoothing;
        plot.options.y.is_log = is_log;
        plot.options.style = style;
        plot.notes.push(PlotNote { time_ms: 50_000, text: label });
        let text = crate::render_terminal(&plot, crate::TerminalSize { columns: 40, rows: 12 }, false);
        prop_assert!(text.contains('└'));
        prop_assert!(Picture::new(plot).pixels.iter().any(|byte| *byte < 128), "a border");
    }
}
