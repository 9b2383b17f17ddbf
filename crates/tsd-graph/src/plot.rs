//! A graph: its series, and how they are drawn step by step.

mod colors;
mod extents;
mod frame;
mod key;
mod series_drawing;

use std::io;

use jiff::tz::TimeZone;
use tsd_model::PointColumns;

pub(crate) use self::{
    extents::{AxisExtents, add_extent},
    series_drawing::{for_each_position, line_positions},
};
use self::{frame::Frame, series_drawing::draw_series};
use crate::{
    canvas::Canvas,
    options::{PlotOptions, PlotSize},
    png_file::encode_png,
    sixel::encode_sixel,
};

/// Bytes that drawing needs beside the picture and its file: outlines of a part of a line, the encoder.
const BESIDE_BYTES: usize = 4 << 20;

/// The axis of the values of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YAxis {
    /// The left one.
    #[default]
    Left,
    /// The right one.
    Right,
}

/// A series of a graph.
#[derive(Clone, Debug, Default)]
pub struct PlotSeries {
    /// Its text in the key.
    pub label: String,
    /// The axis of its values.
    pub axis: YAxis,
    /// Its points, in time order. NaN is a gap; infinities are not drawn.
    pub points: PointColumns,
}

/// A text at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlotNote {
    /// The time.
    pub time_ms: i64,
    /// The text.
    pub text: String,
}

/// What a graph shows.
#[derive(Clone, Debug)]
pub struct Plot {
    /// First and last millisecond of the x axis; the last one is later.
    pub range_ms: (i64, i64),
    /// Time zone of the x axis.
    pub zone: TimeZone,
    /// How it is drawn.
    pub options: PlotOptions,
    /// The series, in the order of their colors.
    pub series: Vec<PlotSeries>,
    /// Texts at times.
    pub notes: Vec<PlotNote>,
}

impl PlotSize {
    /// Most bytes that a graph of this size needs, without its points: the picture and its file.
    #[must_use]
    pub const fn drawing_bytes(self) -> usize {
        // A row of noise takes three bytes a pixel in the file.
        Canvas::memory_bytes(self) / 4 * 7 + BESIDE_BYTES
    }
}

/// Steps of a drawing.
#[derive(Debug)]
enum DrawPhase {
    /// Looking for the least and greatest values, from this series on.
    Measure(usize),
    /// Drawing the series, from this one on.
    Series(usize, Box<Frame>),
    Done,
}

/// A graph that is being drawn.
#[derive(Debug)]
pub struct PlotDrawing {
    plot: Plot,
    canvas: Canvas,
    extents: AxisExtents,
    phase: DrawPhase,
}

impl PlotDrawing {
    /// Starts a drawing; `None` if there is no memory for the picture.
    #[must_use]
    pub fn new(plot: Plot) -> Option<Self> {
        let canvas = Canvas::new(plot.options.size, plot.options.background)?;
        let extents = AxisExtents::default();
        Some(Self { plot, canvas, extents, phase: DrawPhase::Measure(0) })
    }

    /// Goes on drawing, until about that number of points was looked at. Returns true if there is more.
    pub fn advance(&mut self, points: usize) -> bool {
        let mut left = points;
        loop {
            match std::mem::replace(&mut self.phase, DrawPhase::Done) {
                DrawPhase::Measure(at) => {
                    if let Some(series) = self.plot.series.get(at) {
                        add_extent(&mut self.extents, &self.plot, series);
                        self.phase = DrawPhase::Measure(at + 1);
                        left = left.saturating_sub(cost(series));
                    } else {
                        let frame = Frame::new(&self.plot, &self.extents);
                        frame.draw_below(&mut self.canvas, &self.plot);
                        self.phase = DrawPhase::Series(0, Box::new(frame));
                    }
                }
                DrawPhase::Series(at, frame) => {
                    if let Some(series) = self.plot.series.get(at) {
                        draw_series(&mut self.canvas, &frame, &self.plot, (at, series));
                        self.phase = DrawPhase::Series(at + 1, frame);
                        left = left.saturating_sub(cost(series));
                    } else {
                        frame.draw_above(&mut self.canvas, &self.plot);
                        return false;
                    }
                }
                DrawPhase::Done => return false,
            }
            if left == 0 {
                return true;
            }
        }
    }

    /// The picture as a PNG file. Draws what is left.
    pub fn into_png(mut self) -> io::Result<Vec<u8>> {
        while self.advance(usize::MAX) {}
        let is_transparent = self.plot.options.background.is_none();
        // The points are no longer needed; the file is.
        drop(self.plot);
        encode_png(self.canvas.pixmap(), is_transparent)
    }

    /// The picture as text that a terminal shows. Draws what is left.
    #[must_use]
    pub fn into_sixel(mut self) -> String {
        while self.advance(usize::MAX) {}
        encode_sixel(self.canvas.pixmap())
    }
}

/// Points of a series, and what a line costs at least.
fn cost(series: &PlotSeries) -> usize {
    /// Points that take as long as a short line.
    const LEAST: usize = 2_000;
    series.points.len() + LEAST
}

#[cfg(test)]
mod tests;
