//! Rectangles of a picture.

use crate::strip::Position;

/// A rectangle, in pixels; `y` grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f32,
    pub(crate) top: f32,
    pub(crate) right: f32,
    pub(crate) bottom: f32,
}

impl Area {
    pub(crate) fn width(self) -> f32 {
        (self.right - self.left).max(0.0)
    }

    pub(crate) fn height(self) -> f32 {
        (self.bottom - self.top).max(0.0)
    }

    /// True if a position is inside.
    pub(crate) fn contains(self, (x, y): Position) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }

    /// The same area with its edges on the middles of pixels, where lines of one pixel are sharp.
    pub(crate) fn to_pixel_centers(self) -> Self {
        let center = |edge: f32| edge.floor() + 0.5;
        Self {
            left: center(self.left),
            top: center(self.top),
            right: center(self.right),
            bottom: center(self.bottom),
        }
    }

    /// The segment of a line inside the area (Liang and Barsky).
    pub(crate) fn clip(self, from: Position, to: Position) -> Option<(Position, Position)> {
        if self.contains(from) && self.contains(to) {
            return Some((from, to));
        }
        let (x, y) = (f64::from(from.0), f64::from(from.1));
        let (dx, dy) = (f64::from(to.0) - x, f64::from(to.1) - y);
        let (mut begin, mut end) = (0.0_f64, 1.0_f64);
        let edges = [
            (-dx, x - f64::from(self.left)),
            (dx, f64::from(self.right) - x),
            (-dy, y - f64::from(self.top)),
            (dy, f64::from(self.bottom) - y),
        ];
        for (direction, distance) in edges {
            if direction == 0.0 {
                if distance < 0.0 {
                    return None;
                }
            } else if direction < 0.0 {
                begin = begin.max(distance / direction);
            } else {
                end = end.min(distance / direction);
            }
        }
        if begin > end || !begin.is_finite() || !end.is_finite() {
            return None;
        }
        let at = |part: f64| (part.mul_add(dx, x) as f32, part.mul_add(dy, y) as f32);
        let from = if begin > 0.0 { at(begin) } else { from };
        let to = if end < 1.0 { at(end) } else { to };
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AREA: Area = Area { left: 10.0, top: 20.0, right: 110.0, bottom: 70.0 };

    #[test]
    fn lines_are_cut_at_edges() {
        let check = |from, to, expected| assert_eq!(AREA.clip(from, to), expected);
        check((20.0, 30.0), (30.0, 40.0), Some(((20.0, 30.0), (30.0, 40.0))));
        check((0.0, 30.0), (120.0, 30.0), Some(((10.0, 30.0), (110.0, 30.0))));
        check((50.0, 0.0), (50.0, 30.0), Some(((50.0, 20.0), (50.0, 30.0))));
        check((0.0, 0.0), (5.0, 100.0), None);
        check((0.0, 0.0), (120.0, 10.0), None);
    }

    proptest! {
        #[test]
        fn what_is_left_is_inside(
            x0 in -1e7..1e7_f32, y0 in -1e7..1e7_f32, x1 in -1e7..1e7_f32, y1 in -1e7..1e7_f32,
        ) {
            let wide = Area { left: 8.0, top: 18.0, right: 112.0, bottom: 72.0 };
            if let Some((from, to)) = AREA.clip((x0, y0), (x1, y1)) {
                prop_assert!(wide.contains(from) && wide.contains(to), "{from:?} {to:?}");
            }
        }
    }
}
