//! Size of a picture.

use super::option_error::PlotOptionProblem;

/// Size of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlotSize {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
}

impl Default for PlotSize {
    fn default() -> Self {
        Self { width: 1_024, height: 768 }
    }
}

impl PlotSize {
    /// Least width and height, as in OpenTSDB.
    pub const LEAST: u32 = 100;
    /// Greatest width and height: 64 MiB of pixels.
    pub const MOST: u32 = 4_096;

    /// Parses `WIDTHxHEIGHT`.
    pub(super) fn parse(text: &str) -> Result<Self, PlotOptionProblem> {
        let (width, height) = text.split_once('x').ok_or(PlotOptionProblem::Size)?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            // A number over 32 bits is still a number, but too large.
            is_number.then(|| text.parse().unwrap_or(u32::MAX)).ok_or(PlotOptionProblem::Size)
        };
        let size = Self { width: number(width)?, height: number(height)? };
        let range = Self::LEAST..=Self::MOST;
        if range.contains(&size.width) && range.contains(&size.height) {
            Ok(size)
        } else {
            Err(PlotOptionProblem::SizeLimit { least: Self::LEAST, most: Self::MOST })
        }
    }
}
