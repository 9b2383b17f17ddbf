//! Markers of points: small pictures that are drawn once for each color.

use tiny_skia::{FillRule, LineCap, Paint, PathBuilder, Pixmap, Stroke, Transform};

use crate::options::Color;

/// Pixels from the middle of a marker to the edge of its picture.
pub(super) const HALF_SIZE: i32 = 4;

/// Shapes of markers, in gnuplot's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerShape {
    Plus,
    Cross,
    Square,
    FilledCircle,
    Triangle,
    Diamond,
    FilledSquare,
    Circle,
    Dot,
}

impl MarkerShape {
    /// The shape of a series.
    pub(crate) fn of_series(number: usize) -> Self {
        const SHAPES: [MarkerShape; 7] = [
            MarkerShape::Plus,
            MarkerShape::Cross,
            MarkerShape::Square,
            MarkerShape::FilledCircle,
            MarkerShape::Triangle,
            MarkerShape::Diamond,
            MarkerShape::FilledSquare,
        ];
        SHAPES.get(number % SHAPES.len()).copied().unwrap_or(Self::Plus)
    }
}

/// A marker in a color.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    pub(super) picture: Pixmap,
}

impl Marker {
    pub(crate) fn new(shape: MarkerShape, color: Color) -> Option<Self> {
        let size = (2 * HALF_SIZE + 1) as u32;
        let mut picture = Pixmap::new(size, size)?;
        let mut paint = Paint::default();
        paint.set_color_rgba8(color.red, color.green, color.blue, 255);
        let middle = HALF_SIZE as f32 + 0.5;
        let mut path = PathBuilder::new();
        let mut polygon = |corners: &[(f32, f32)], closed: bool| {
            for (at, (x, y)) in corners.iter().enumerate() {
                if at == 0 {
                    path.move_to(middle + x, middle + y);
                } else {
                    path.line_to(middle + x, middle + y);
                }
            }
            if closed {
                path.close();
            }
        };
        let mut is_filled = false;
        match shape {
            MarkerShape::Plus => {
                polygon(&[(-3.0, 0.0), (3.0, 0.0)], false);
                polygon(&[(0.0, -3.0), (0.0, 3.0)], false);
            }
            MarkerShape::Cross => {
                polygon(&[(-2.5, -2.5), (2.5, 2.5)], false);
                polygon(&[(-2.5, 2.5), (2.5, -2.5)], false);
            }
            MarkerShape::Square => {
                polygon(&[(-2.0, -2.0), (2.0, -2.0), (2.0, 2.0), (-2.0, 2.0)], true);
            }
            MarkerShape::FilledSquare => {
                is_filled = true;
                polygon(&[(-2.5, -2.5), (2.5, -2.5), (2.5, 2.5), (-2.5, 2.5)], true);
            }
            MarkerShape::Triangle => {
                polygon(&[(0.0, -3.0), (3.0, 2.0), (-3.0, 2.0)], true);
            }
            MarkerShape::Diamond => {
                polygon(&[(0.0, -3.0), (3.0, 0.0), (0.0, 3.0), (-3.0, 0.0)], true);
            }
            MarkerShape::Circle => path.push_circle(middle, middle, 3.0),
            MarkerShape::FilledCircle => {
                is_filled = true;
                path.push_circle(middle, middle, 2.5);
            }
            MarkerShape::Dot => {
                is_filled = true;
                // Two pixels, since the color of a single pixel is not recognisable.
                polygon(&[(-0.5, -0.5), (1.5, -0.5), (1.5, 1.5), (-0.5, 1.5)], true);
            }
        }
        let path = path.finish()?;
        let identity = Transform::identity();
        if is_filled {
            picture.fill_path(&path, &paint, FillRule::Winding, identity, None);
        } else {
            let stroke = Stroke { width: 1.0, line_cap: LineCap::Butt, ..Stroke::default() };
            picture.stroke_path(&path, &paint, &stroke, identity, None);
        }
        Some(Self { picture })
    }
}
