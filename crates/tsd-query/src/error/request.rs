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
        /// Value of the parameter.
        text: String,
    },
    /// More than five parts.
    TooManyParts {
        /// Name of the parameter.
        parameter: &'static str,
        /// Value of the parameter.
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
    /// Text between colons that is neither an option nor a word.
    UnknownOption(String),
    /// Text after the braces of a metric.
    TextBehindFilters(String),
    /// An entry between braces is not a filter.
    Tag {
        /// True for the group-by braces.
        group_by: bool,
        /// The entry.
        entry: String,
        /// Reason why the entry is not a filter.
        problem: TagEntryError,
    },
}

/// Reason why an entry between braces is not a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagEntryError {
    /// It is not `key=value`.
    NoPair,
    /// The filter is invalid.
    Filter(FilterError),
}

/// A JSON body without a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyQueryError {
    /// A filter is invalid.
    Filter(FilterError),
    /// The type of a value filter is unknown.
    UnknownValueFilter(String),
    /// A field of the rate options is unknown.
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
        /// Problem of the text.
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

/// Problem of the number of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeProblem {
    /// More digits than a number has.
    TooLong(String),
    /// A sign without digits.
    OnlySign,
    /// A character that is not a digit.
    Character(char),
    /// Too large.
    Overflow,
    /// Too small.
    Underflow,
    /// Negative.
    Negative,
    /// A fraction other than milliseconds of seconds.
    Fraction,
}

/// A query that is incomplete or contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The list of sub queries is absent or empty.
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
    /// A time outside the range of rows, in epoch milliseconds.
    Timestamp(i64),
    /// The time zone does not exist.
    UnknownZone,
    /// A sub query without an aggregator.
    NoAggregator,
    /// The name of the aggregator is unknown.
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
