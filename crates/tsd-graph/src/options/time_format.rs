//! Format of times, as in strftime.

use jiff::{Zoned, fmt::strtime};

use super::option_error::PlotOptionProblem;

/// Most bytes of a format.
const MAX_BYTES: usize = 64;

/// A format of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeFormat(String);

impl TimeFormat {
    /// Parses a format: conversions of strftime between letters, digits and separators.
    pub(super) fn parse(text: &str) -> Result<Self, PlotOptionProblem> {
        if text.is_empty() {
            return Err(PlotOptionProblem::TimeFormat);
        }
        PlotOptionProblem::check_text(text, MAX_BYTES, " %-_./:,+")?;
        if has_long_width(text) {
            return Err(PlotOptionProblem::TimeFormat);
        }
        let example = Zoned::default();
        strtime::format(text, &example).map_err(|_| PlotOptionProblem::TimeFormat)?;
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn fixed(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// Renders a time.
    pub(crate) fn render(&self, time: &Zoned) -> String {
        strtime::format(&self.0, time).unwrap_or_default()
    }
}

/// True if a conversion has a width of more than two digits, which would make labels too long.
fn has_long_width(text: &str) -> bool {
    let mut bytes = text.bytes();
    while bytes.any(|b| b == b'%') {
        let digits = bytes.clone().take_while(|b| !b.is_ascii_alphabetic() && *b != b'%').count();
        if digits > 2 {
            return true;
        }
        // The character of the conversion, which may be a percent sign.
        bytes.nth(digits);
    }
    false
}
