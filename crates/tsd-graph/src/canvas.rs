//! A picture in memory, with the few shapes that a graph needs.

mod area;
mod font;
mod marker;

use tiny_skia::{
    ColorU8, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, PixmapPaint,
    PremultipliedColorU8, Rect, Stroke, StrokeDash, Transform,
};

pub(crate) use self::{
    area::Area,
    font::{CAP_HEIGHT, LINE_HEIGHT, shown_text, text_width, visible},
    marker::{Marker, MarkerShape},
};
use crate::{
    options::{Color, PlotSize},
    pace::Pace,
    strip::Position,
};

/// Bytes of a pixel.
const PIXEL_BYTES: usize = 4;
/// Pixels that are filled in the time of a point.
const FILLED_PIXELS: usize = 8;
/// Rows of an area that are filled at once.
const BAND_HEIGHT: f32 = 32.0;
/// Pixels of a line that are drawn at once.
const LONG_RUN: f32 = 4_096.0;
// Work of a pixel of a line, in points.
const LINE_PIXEL_WORK: usize = 2;
const DASHED_PIXEL_WORK: usize = 8;
const CORNER_WORK: usize = 20;
const MARKER_WORK: usize = 100;
const LETTER_WORK: usize = 200;
/// Work of outlines and markers from which a picture is crowded. This is a total line length of two thousand
/// widths, or tens of thousands of markers.
const CROWDED_WORK: usize = if cfg!(test) { 400_000 } else { 4_000_000 };

/// Point of a text that is at the given position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextAnchor {
    Start,
    Middle,
    End,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineStroke {
    pub(crate) color: Color,
    pub(crate) width: f32,
    pub(crate) is_dashed: bool,
}

impl LineStroke {
    pub(crate) const fn thin(color: Color) -> Self {
        Self { color, width: 1.0, is_dashed: false }
    }
}

/// A picture that is being drawn. After a stop, nothing is added.
#[derive(Debug)]
pub(crate) struct Canvas<'p> {
    pixmap: Pixmap,
    pace: &'p Pace<'p>,
    /// Work of its outlines and markers.
    outline_work: usize,
}

impl<'p> Canvas<'p> {
    /// Bytes of a picture of that size.
    pub(crate) const fn memory_bytes(size: PlotSize) -> usize {
        size.width as usize * size.height as usize * PIXEL_BYTES
    }

    /// A picture of one color; `None` is transparent.
    pub(crate) fn new(
        size: PlotSize,
        background: Option<Color>,
        pace: &'p Pace<'p>,
    ) -> Option<Self> {
        let mut pixmap = Pixmap::new(size.width, size.height)?;
        // A transparent picture is also filled. The first write to a page maps it, which takes longer than drawing,
        // and a column of pixels would map a page for each row.
        let pixel = background.map_or(PremultipliedColorU8::TRANSPARENT, pixel);
        for row in pixmap.pixels_mut().chunks_mut(size.width as usize) {
            if !pace.goes_on(row.len() / FILLED_PIXELS) {
                break;
            }
            row.fill(pixel);
        }
        Some(Self { pixmap, pace, outline_work: 0 })
    }

    pub(crate) const fn pixmap(&self) -> &Pixmap {
        &self.pixmap
    }

    pub(crate) const fn pace(&self) -> &'p Pace<'p> {
        self.pace
    }

    /// True if more lines and markers could not be distinguished.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.outline_work >= CROWDED_WORK
    }

    /// Fills an area; `opacity` is 0 to 1.
    pub(crate) fn fill(&mut self, area: Area, color: Color, opacity: f32) {
        let paint = paint(color, opacity);
        let mut top = area.top;
        while top < area.bottom {
            // Bands end on whole pixels, so that they do not overlap.
            let bottom = (top.floor() + BAND_HEIGHT).min(area.bottom);
            let work = (area.width() * (bottom - top)) as usize / FILLED_PIXELS;
            if !self.pace.goes_on(work) {
                return;
            }
            if let Some(rect) = Rect::from_ltrb(area.left, top, area.right, bottom) {
                self.pixmap.fill_rect(rect, &paint, Transform::identity(), None);
            }
            top = bottom;
        }
    }

    /// Fills the pixels of a column from `top` to `bottom`, both inclusive.
    pub(crate) fn column(&mut self, column: u32, (top, bottom): (u32, u32), color: Color) {
        let width = self.pixmap.width();
        if column >= width || bottom < top || !self.pace.goes_on((bottom - top) as usize) {
            return;
        }
        let pixel = pixel(color);
        let first = top as usize * width as usize + column as usize;
        let pixels = self.pixmap.pixels_mut().iter_mut().skip(first).step_by(width as usize);
        for slot in pixels.take((bottom - top) as usize + 1) {
            *slot = pixel;
        }
    }

    /// Draws the border of an area, a pixel wide.
    pub(crate) fn frame(&mut self, area: Area, color: Color) {
        let area = area.to_pixel_centers();
        let (left_top, right_top) = ((area.left, area.top), (area.right, area.top));
        let (left_bottom, right_bottom) = ((area.left, area.bottom), (area.right, area.bottom));
        let corners = [left_top, right_top, right_bottom, left_bottom, left_top];
        self.stroke(&corners, LineStroke::thin(color), LineCap::Square);
    }

    /// Draws a straight line.
    pub(crate) fn line(&mut self, from: Position, to: Position, stroke: LineStroke) {
        self.stroke(&[from, to], stroke, LineCap::Butt);
    }

    /// Draws the segments of a line that are inside an area.
    pub(crate) fn strip(&mut self, positions: &[Position], area: Area, stroke: LineStroke) {
        let mut run: Vec<Position> = Vec::with_capacity(positions.len());
        let mut length = 0.0;
        for pair in positions.windows(2) {
            let [from, to] = pair else { continue };
            let Some((from, to)) = area.clip(*from, *to) else { continue };
            if run.last() != Some(&from) || length > LONG_RUN {
                self.stroke(&run, stroke, LineCap::Round);
                run.clear();
                run.push(from);
                length = 0.0;
            }
            run.push(to);
            length += distance(from, to);
        }
        self.stroke(&run, stroke, LineCap::Round);
    }

    fn stroke(&mut self, positions: &[Position], stroke: LineStroke, cap: LineCap) {
        let [first, rest @ ..] = positions else { return };
        let work = stroke_work(positions, stroke);
        if rest.is_empty() || !self.pace.goes_on(work) {
            return;
        }
        self.outline_work = self.outline_work.saturating_add(work);
        let mut path = PathBuilder::with_capacity(positions.len(), positions.len());
        path.move_to(first.0, first.1);
        for (x, y) in rest {
            path.line_to(*x, *y);
        }
        let Some(path) = path.finish() else { return };
        let dash = if stroke.is_dashed { StrokeDash::new(vec![2.0, 3.0], 0.0) } else { None };
        let skia = Stroke {
            width: stroke.width,
            line_cap: cap,
            // At this width any corner is a single pixel, so the cheapest shape is enough.
            line_join: LineJoin::Bevel,
            dash,
            ..Stroke::default()
        };
        let paint = paint(stroke.color, 1.0);
        self.pixmap.stroke_path(&path, &paint, &skia, Transform::identity(), None);
    }

    /// Draws a marker whose middle is at a position.
    pub(crate) fn marker(&mut self, marker: &Marker, (x, y): Position) {
        if !self.pace.goes_on(MARKER_WORK) {
            return;
        }
        self.outline_work = self.outline_work.saturating_add(MARKER_WORK);
        let (x, y) = (x.round() as i32 - marker::HALF_SIZE, y.round() as i32 - marker::HALF_SIZE);
        let (picture, paint) = (marker.picture.as_ref(), PixmapPaint::default());
        self.pixmap.draw_pixmap(x, y, picture, &paint, Transform::identity(), None);
    }

    /// Draws a text whose base line is at a position.
    pub(crate) fn text(&mut self, text: &str, at: Position, anchor: TextAnchor, color: Color) {
        let shift = match anchor {
            TextAnchor::Start => 0.0,
            TextAnchor::Middle => text_width(text) / 2.0,
            TextAnchor::End => text_width(text),
        };
        // On whole pixels the horizontal parts of letters are sharp.
        let (x, y) = ((at.0 - shift).round(), at.1.round());
        self.glyphs(text, Transform::from_translate(x, y), color);
    }

    /// Draws a text that runs upwards; the middle of its base line is at a position.
    pub(crate) fn vertical_text(&mut self, text: &str, at: Position, color: Color) {
        let y = (at.1 + text_width(text) / 2.0).round();
        let transform = Transform::from_row(0.0, -1.0, 1.0, 0.0, at.0.round(), y);
        self.glyphs(text, transform, color);
    }

    fn glyphs(&mut self, text: &str, transform: Transform, color: Color) {
        if !self.pace.goes_on(text.len() * LETTER_WORK) {
            return;
        }
        if let Some(path) = font::text_path(text) {
            let paint = paint(color, 1.0);
            self.pixmap.fill_path(&path, &paint, FillRule::Winding, transform, None);
        }
    }
}

/// Work of a line, from its length in pixels.
fn stroke_work(positions: &[Position], stroke: LineStroke) -> usize {
    let parts = positions.windows(2).map(|pair| match pair {
        [from, to] => distance(*from, *to),
        _ => 0.0,
    });
    let length = parts.sum::<f32>() as usize;
    let by_length = if stroke.is_dashed { DASHED_PIXEL_WORK } else { LINE_PIXEL_WORK };
    length * by_length + positions.len() * CORNER_WORK
}

fn distance(from: Position, to: Position) -> f32 {
    let (x, y) = (to.0 - from.0, to.1 - from.1);
    // Not `hypot`, which needs glibc 2.35. Pixels do not overflow.
    (x * x + y * y).sqrt()
}

fn pixel(color: Color) -> PremultipliedColorU8 {
    ColorU8::from_rgba(color.red, color.green, color.blue, u8::MAX).premultiply()
}

fn paint(color: Color, opacity: f32) -> Paint<'static> {
    let alpha = (opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
    let mut paint = Paint::default();
    paint.set_color_rgba8(color.red, color.green, color.blue, alpha);
    paint.anti_alias = true;
    paint
}
