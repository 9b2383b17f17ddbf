//! Requests that are not queries.

use crate::{filter::FilterError, request::DownsampleError, time::DurationError};

/// A sub query of a URI that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriError {
    /// The parameter is empty.
    Empty,
    /// Fewer than two parts.
    TooFewParts {
        /// Name of the parameter.
        parameter: &'static str,
        /// Its value.
        text: String,
    },
    /// More than five parts.
    TooManyParts {
        /// Name of the parameter.
        parameter: &'static str,
        /// Its value.
        text: String,
    },
    /// An empty option between colons.
    EmptyOption,
    /// Percentiles without brackets.
    Percentiles(String),
    /// A percentile that is not a number.
    Percentile(String),
    /// A brace is not closed.
    OpenBrace(String),
    /// An entry between braces is no filter.
    Tag {
        /// True in the braces by which series are grouped.
        group_by: bool,
        /// The entry.
        entry: String,
        /// Why it is no filter.
        problem: TagEntryError,
    },
}

/// Why an entry between braces is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagEntryError {
    /// It is not `key=value`.
    NoPair,
    /// The filter is invalid.
    Filter(FilterError),
}

/// A body that is JSON and has no query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyQueryError {
    /// A filter is invalid.
    Filter(FilterError),
    /// There is no value filter of this type.
    UnknownValueFilter(String),
    /// The options of a rate have no such field.
    UnknownRateOption(String),
}

/// Invalid options of a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateError {
    /// The text is too short.
    TooShort(String),
    /// Too many values.
    TooManyParts(usize),
    /// The greatest value of the counter is not a number.
    CounterMax(String),
    /// The reset value is not a number.
    ResetValue(String),
}

/// An invalid time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// A number that is not a time.
    Invalid {
        /// The text of the time.
        text: String,
        /// What is wrong with it.
        problem: TimeProblem,
    },
    /// A relative time without a valid duration.
    Duration(DurationError),
    /// A calendar text of no known length.
    DateLength(String),
    /// A calendar text that does not follow its pattern.
    Date(String),
    /// A calendar text in an unknown time zone.
    Zone(String),
}

/// What is wrong with the number of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeProblem {
    /// More digits than a number has.
    TooLong(String),
    /// A sign without digits.
    OnlySign,
    /// A character that is no digit.
    Character(char),
    /// Too large.
    Overflow,
    /// Too small.
    Underflow,
    /// Negative.
    Negative,
    /// A fraction that is not of seconds in milliseconds.
    Fraction,
}

/// A query that is incomplete or contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The list of sub queries is absent.
    AbsentQueries,
    /// The list of sub queries is empty.
    NoQueries,
    /// No start time.
    NoStart,
    /// The end is before the start.
    EndBeforeStart {
        /// Start, in epoch milliseconds.
        start_ms: i64,
        /// End, in epoch milliseconds.
        end_ms: i64,
    },
    /// A time that no row can have, in epoch milliseconds.
    Timestamp(i64),
    /// The time zone does not exist.
    UnknownZone,
    /// A sub query without an aggregator.
    NoAggregator,
    /// There is no aggregator of this name.
    UnknownAggregator(String),
    /// A sub query with neither a metric nor TSUIDs.
    NoSource,
    /// An invalid downsampling specification.
    Downsample(DownsampleError),
    /// A histogram query with value filters.
    HistogramValueFilter,
    /// A histogram query with an aggregator other than the sum.
    HistogramAggregator,
    /// A histogram query that is downsampled by something other than the sum.
    HistogramDownsample,
    /// A percentile that is not between 0 and 100, as OpenTSDB prints it.
    HistogramPercentile(String),
}
