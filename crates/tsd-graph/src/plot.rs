//! Draws a graph of series to a picture.

mod colors;
mod contents;
mod extents;
mod frame;
mod key;
mod series_drawing;
mod series_positions;

use std::io;

use thiserror::Error;

pub use self::contents::{Plot, PlotNote, PlotSeries, YAxis};
pub(crate) use self::{
    extents::AxisExtents,
    series_positions::{ShownSeries, for_each_position, line_positions},
};
use self::{frame::Frame, series_drawing::draw_series};
use crate::{
    canvas::Canvas,
    options::{PlotOptions, PlotSize},
    pace::Pace,
    png_file::encode_png,
};

/// Bytes that drawing needs in addition to the picture and its file: outlines of a strip, the
/// encoder.
const BESIDE_BYTES: usize = 4 << 20;
/// Points whose memory is freed in the time of processing one point.
const FREED_POINTS: usize = 8;

impl PlotSize {
    /// Most bytes that a graph of this size needs, without its points: the picture and its file.
    #[must_use]
    pub const fn drawing_bytes(self) -> usize {
        // The file takes three bytes per pixel for a row of noise.
        Canvas::memory_bytes(self) / 4 * 7 + BESIDE_BYTES
    }
}

/// Reason why drawing failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrawError {
    /// Memory for the pixels could not be allocated.
    #[error("there is no memory for the picture")]
    NoMemory,
    /// The caller stopped the drawing.
    #[error("the drawing was stopped")]
    Stopped,
    /// The file could not be written to memory.
    #[error("the picture could not be encoded")]
    Encode(#[source] io::Error),
}

impl Plot {
    /// Draws the graph as a PNG file. After each piece of work, of about a millisecond, it calls `pause`; if
    /// that returns false, the drawing stops.
    pub fn draw_png(self, pause: &mut dyn FnMut() -> bool) -> Result<Vec<u8>, DrawError> {
        let pace = Pace::new(pause);
        let canvas = self.draw(&pace)?;
        let is_transparent = self.options.background.is_none();
        // The points are no longer needed, and the file needs the memory.
        for series in self.series {
            let _ = pace.goes_on(series.points.len() / FREED_POINTS);
            drop(series);
        }
        let file = encode_png(canvas.pixmap(), is_transparent, &pace);
        if pace.is_stopped() {
            return Err(DrawError::Stopped);
        }
        file.map_err(DrawError::Encode)
    }

    fn draw<'p>(&self, pace: &'p Pace<'p>) -> Result<Canvas<'p>, DrawError> {
        let PlotOptions { size, background, .. } = self.options;
        let mut canvas = Canvas::new(size, background, pace).ok_or(DrawError::NoMemory)?;
        let frame = Frame::new(self, &AxisExtents::of(self, pace));
        frame.draw_below(&mut canvas, self);
        for numbered in self.series.iter().enumerate() {
            draw_series(&mut canvas, &frame, self, numbered);
        }
        frame.draw_above(&mut canvas, self);
        if pace.is_stopped() { Err(DrawError::Stopped) } else { Ok(canvas) }
    }
}

#[cfg(test)]
mod tests;
