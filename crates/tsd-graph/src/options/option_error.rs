//! Errors of the options of a graph.

use thiserror::Error;

/// Most characters of a value that an error repeats.
const SHOWN_CHARS: usize = 64;

/// An option with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("Invalid {name} (\"{shown}\"): {problem}")]
pub struct PlotOptionError {
    /// Name of the option.
    pub name: &'static str,
    /// The beginning of the value, with control characters escaped.
    pub shown: String,
    /// Problem of the value.
    pub problem: PlotOptionProblem,
}

impl PlotOptionError {
    pub(super) fn new(name: &'static str, value: &str, problem: PlotOptionProblem) -> Self {
        let mut shown = String::new();
        for c in value.chars().take(SHOWN_CHARS) {
            if c.is_control() {
                shown.extend(c.escape_default());
            } else {
                shown.push(c);
            }
        }
        if value.chars().nth(SHOWN_CHARS).is_some() {
            shown.push('…');
        }
        Self { name, shown, problem }
    }
}

impl PlotOptionProblem {
    /// Fails if a text is longer than `most_bytes` or has characters other than letters, digits and
    /// `others`.
    pub(super) fn check_text(text: &str, most_bytes: usize, others: &str) -> Result<(), Self> {
        if text.len() > most_bytes {
            return Err(Self::TooLong(most_bytes));
        }
        let illegal = text.chars().find(|c| !c.is_alphanumeric() && !others.contains(*c));
        illegal.map_or(Ok(()), |c| Err(Self::Character(c)))
    }
}

/// Problem of the value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlotOptionProblem {
    /// A back-tick, which executes a command in gnuplot.
    #[error("back-ticks are not allowed")]
    BackTick,
    /// A character that is not allowed.
    #[error("illegal character: {}", .0.escape_default())]
    Character(char),
    /// A text over the limit of bytes.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// Not a size.
    #[error("it must be WIDTHxHEIGHT in pixels")]
    Size,
    /// A width or height that is not allowed.
    #[error("width and height must be {least} to {most} pixels")]
    SizeLimit {
        /// Least pixels.
        least: u32,
        /// Most pixels.
        most: u32,
    },
    /// Not a range.
    #[error("it must be [MIN:MAX], two numbers of which either may be absent")]
    Range,
    /// A range whose ends are equal or too far apart.
    #[error("the range is empty or too large")]
    RangeLimit,
    /// A range for a logarithmic axis with an end that is not positive.
    #[error("the range of a logarithmic axis must be positive")]
    LogRange,
    /// Not a format of numbers.
    #[error("it is not a format of numbers: {0}")]
    NumberFormat(&'static str),
    /// Not a format of times.
    #[error("it must be a format of times, as in strftime")]
    TimeFormat,
    /// Not a place of the key.
    #[error("it must be a placement of the key, such as \"out center top horiz box\"")]
    Key,
    /// Not a color.
    #[error("it must be a hexadecimal color such as xFFFFFF")]
    Color,
    /// Not a style.
    #[error("it must be one of linespoint, lines, points, circles, dots")]
    Style,
    /// Not a smoothing.
    #[error("it must be unique or csplines")]
    Smoothing,
}
