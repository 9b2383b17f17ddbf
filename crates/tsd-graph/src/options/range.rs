//! Ranges of axes.

use super::option_error::PlotOptionProblem;

/// Greatest absolute value of an end, so that the length of an axis stays finite.
pub(crate) const GREATEST_END: f64 = 8e307;
/// Greatest absolute value of a requested end, so that larger numbers exist.
const GREATEST_REQUESTED: f64 = 1e300;

/// Ends of an axis; the points determine absent ends. If the first end is greater, the axis is
/// reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AxisRange {
    /// Value at the bottom.
    pub from: Option<f64>,
    /// Value at the top.
    pub to: Option<f64>,
}

impl AxisRange {
    /// Parses `[FROM:TO]`. Either number may be absent, `*` or in double quotes.
    pub(super) fn parse(text: &str) -> Result<Self, PlotOptionProblem> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let (from, to) =
            inner.and_then(|inner| inner.split_once(':')).ok_or(PlotOptionProblem::Range)?;
        let range = Self { from: end(from)?, to: end(to)? };
        if let (Some(from), Some(to)) = (range.from, range.to)
            && (from - to).abs() <= f64::EPSILON * 16.0 * from.abs().max(to.abs())
        {
            return Err(PlotOptionProblem::RangeLimit);
        }
        Ok(range)
    }

    /// True if each given end is positive.
    pub(super) fn is_positive(self) -> bool {
        [self.from, self.to].into_iter().flatten().all(|end| end > 0.0)
    }
}

fn end(text: &str) -> Result<Option<f64>, PlotOptionProblem> {
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let text = quoted.unwrap_or(text);
    if text.is_empty() || text == "*" {
        return Ok(None);
    }
    // Rust also parses names of numbers, which gnuplot does not know.
    if !text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) {
        return Err(PlotOptionProblem::Range);
    }
    let end: f64 = text.parse().map_err(|_| PlotOptionProblem::Range)?;
    if end.abs() > GREATEST_REQUESTED {
        return Err(PlotOptionProblem::RangeLimit);
    }
    Ok(Some(end))
}
