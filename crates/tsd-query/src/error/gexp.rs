//! Graphite-style expressions that are invalid or have no result.

use crate::time::DurationError;

/// An expression of `/api/query/gexp` that is invalid or has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GexpError {
    /// Longer than allowed.
    TooLong {
        /// Most bytes.
        limit: usize,
    },
    /// Too many functions inside each other.
    TooDeep {
        /// Most functions inside each other.
        limit: usize,
    },
    /// The text does not follow the grammar.
    Grammar(String),
    /// There is no function of this name.
    UnknownFunction(String),
    /// Parameters are followed by an expression.
    ParameterBeforeInput(String),
    /// A function of sets has too few or too many sets.
    Sets {
        /// Fewest sets.
        min: usize,
        /// Most sets.
        max: usize,
        /// Sets given.
        given: usize,
    },
    /// Series that are combined have different numbers of points.
    DifferentLengths,
    /// `scale` without a factor.
    NoFactor,
    /// The factor has characters other than digits.
    Factor,
    /// The factor consists of digits but is not a number.
    FactorNumber,
    /// `alias` without a name.
    NoAlias,
    /// `timeShift` without an offset.
    NoOffset,
    /// The offset is not a duration.
    Offset(DurationError),
    /// A moving average without a window.
    NoWindow,
    /// The window is neither a number nor a duration.
    Window(String),
    /// The window is not positive.
    WindowNotPositive,
    /// The window has an unknown unit.
    WindowUnit {
        /// The unit.
        unit: String,
        /// The window.
        window: String,
    },
    /// A selection of series without a number.
    NoCount,
    /// The number of series has characters other than digits.
    Count(String),
    /// The number of series is too large.
    CountNumber,
    /// The number of series is not positive.
    CountNotPositive,
}
