//! Colors.

use super::option_error::PlotOptionProblem;

/// A color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color {
    /// Red.
    pub red: u8,
    /// Green.
    pub green: u8,
    /// Blue.
    pub blue: u8,
}

impl Color {
    /// White.
    pub const WHITE: Self = Self::rgb(0xff_ff_ff);
    /// Black.
    pub const BLACK: Self = Self::rgb(0);

    pub(crate) const fn rgb(rgb: u32) -> Self {
        Self { red: (rgb >> 16) as u8, green: (rgb >> 8) as u8, blue: rgb as u8 }
    }

    /// Parses `xRRGGBB`.
    pub(super) fn parse(text: &str) -> Result<Self, PlotOptionProblem> {
        let digits = text.strip_prefix(['x', 'X']).ok_or(PlotOptionProblem::Color)?;
        if digits.len() != 6 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(PlotOptionProblem::Color);
        }
        u32::from_str_radix(digits, 16).map(Self::rgb).map_err(|_| PlotOptionProblem::Color)
    }

    /// A mixture of two colors; `part` is the share of `other`, 0 to 1.
    pub(crate) fn mix(self, other: Self, part: f32) -> Self {
        let mix =
            |a: u8, b: u8| (f32::from(a) + (f32::from(b) - f32::from(a)) * part).round() as u8;
        Self {
            red: mix(self.red, other.red),
            green: mix(self.green, other.green),
            blue: mix(self.blue, other.blue),
        }
    }

    /// Perceived brightness, 0 to 1.
    pub(crate) fn brightness(self) -> f32 {
        let [red, green, blue] = [self.red, self.green, self.blue].map(|c| f32::from(c) / 255.0);
        0.299 * red + 0.587 * green + 0.114 * blue
    }
}
