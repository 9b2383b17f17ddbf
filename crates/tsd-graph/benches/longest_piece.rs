//! Measures the longest piece of drawing without a pause, in pictures of the greatest size and the most expensive
//! shapes. A time slice of a query can overrun by one piece. Times are processor times, so that other load does not
//! count.
//!
//! ```text
//! cargo bench -p tsd-graph --bench longest_piece
//! ```

use std::time::Duration;

use jiff::tz::TimeZone;
use rustix::time::{ClockId, clock_gettime};
use tsd_graph::{Plot, PlotNote, PlotOptions, PlotSeries, PlotSize, PlotStyle, Smoothing, YAxis};
use tsd_model::{PointColumns, Value};

/// Milliseconds of a graph.
const RANGE_MS: i64 = 86_400_000;
const SIZE: PlotSize = PlotSize { width: PlotSize::MOST, height: PlotSize::MOST };

/// Noise between 0 and 1.
fn noise(at: u64) -> f64 {
    let mixed = at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

fn series(number: u64, points: u64, gap: bool) -> PlotSeries {
    let mut columns = PointColumns::default();
    for at in 0..points {
        let value = noise(number * 1_000_003 + at);
        let value = if gap && at % 2 == 1 { f64::NAN } else { value };
        columns.push(at as i64 * RANGE_MS / points as i64, Value::Float(value));
    }
    PlotSeries {
        label: format!("metric{{host=web{number:05},datacenter=one}}"),
        axis: YAxis::Left,
        points: columns,
    }
}

fn plot(count: u64, points: u64, gap: bool) -> Plot {
    let options = PlotOptions { size: SIZE, ..PlotOptions::default() };
    let series = (0..count).map(|number| series(number, points, gap)).collect();
    Plot { range_ms: (0, RANGE_MS), zone: TimeZone::UTC, options, series, notes: Vec::new() }
}

fn lines(count: u64, points: u64) -> Plot {
    let mut plot = plot(count, points, false);
    plot.options.style = PlotStyle::Lines;
    plot
}

fn with(mut plot: Plot, change: impl FnOnce(&mut PlotOptions)) -> Plot {
    change(&mut plot.options);
    plot
}

fn notes(count: i64) -> Plot {
    let mut plot = lines(1, 10);
    let note = |at| PlotNote { time_ms: at * RANGE_MS / count, text: "released ".repeat(40) };
    plot.notes = (0..count).map(note).collect();
    plot
}

fn smooth(count: u64, points: u64, smoothing: Smoothing) -> Plot {
    with(lines(count, points), |options| options.smoothing = Some(smoothing))
}

/// Processor time of this thread.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}

fn main() {
    let transparent = |options: &mut PlotOptions| options.background = None;
    let pictures = [
        ("no series", plot(0, 0, false)),
        ("no series, transparent", with(plot(0, 0, false), transparent)),
        ("a line of 10 points", lines(1, 10)),
        ("3 lines of noise, a point each 2 pixels", lines(3, 2_048)),
        ("a line of noise, a point each pixel", lines(1, 4_096)),
        ("a dense line, transparent", with(lines(1, 100_000), transparent)),
        ("10 dense lines", lines(10, 20_000)),
        ("a line of 5 million points", lines(1, 5_000_000)),
        ("3 series of markers", with(plot(3, 50_000, false), |o| o.style = PlotStyle::Points)),
        ("points between gaps", plot(3, 8_000, true)),
        ("5000 series of 10 points", lines(5_000, 10)),
        ("2000 annotations", notes(2_000)),
        ("cubic splines", smooth(3, 100_000, Smoothing::CSplines)),
        ("averages of seconds", smooth(3, 100_000, Smoothing::Unique)),
    ];
    println!(
        "{:<42} {:>10} {:>8} {:>10} {:>10} {:>9}",
        "picture", "in all", "pieces", "longest", "second", "file"
    );
    for (name, plot) in pictures {
        let (mut last, mut pieces) = (now(), Vec::new());
        let began = last;
        let drawn = plot.draw_png(&mut || {
            pieces.push(now().saturating_sub(last));
            last = now();
            true
        });
        let all = now().saturating_sub(began);
        pieces.push(now().saturating_sub(last));
        let bytes = drawn.map_or(0, |file| file.len());
        let at = pieces.iter().enumerate().max_by_key(|(_, piece)| **piece).map_or(0, |(at, _)| at);
        let count = pieces.len();
        pieces.sort_unstable();
        let mut longest = pieces.iter().rev().copied();
        let mut next = || longest.next().unwrap_or_default();
        let (first, second): (Duration, Duration) = (next(), next());
        println!(
            "{name:<42} {all:>10.1?} {count:>8} {first:>10.2?} {second:>10.2?} {:>7} K  longest is piece {at}",
            bytes >> 10
        );
    }
}
