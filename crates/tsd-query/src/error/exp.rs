//! Expressions over metrics that are invalid or have no result.

use crate::{error::QueryError, filter::FilterError};

/// A request of `/api/query/exp` that is invalid or has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpError {
    /// The request has no time.
    NoTime,
    /// The range, the aggregator or the downsampler is invalid.
    InvalidTime,
    /// The request has no metrics.
    NoMetrics,
    /// Two metrics have this id.
    DuplicateMetric(String),
    /// Two filters have this id.
    DuplicateFilter(String),
    /// An expression has the id of a metric or of another expression.
    DuplicateId(String),
    /// The metric at this index is invalid.
    Metric(usize),
    /// The filter at this index is invalid.
    Filter(usize),
    /// The expression at this index is invalid.
    Expression(usize),
    /// A metric uses a filter that does not exist.
    UnknownFilter {
        /// Id of the filter.
        filter: String,
        /// Id of the metric.
        metric: String,
    },
    /// A tag filter is invalid.
    TagFilter(FilterError),
    /// An expression uses an id that does not exist.
    MissingInput {
        /// The expression.
        expression: String,
        /// The id.
        variable: String,
    },
    /// An expression without variables.
    NoVariables,
    /// The text of an expression does not follow the grammar.
    Grammar(String),
    /// The expression with this id is too long, or nested too deeply.
    TooLarge(String),
    /// There is no set operator of this name.
    SetOperator(String),
    /// A fill policy is invalid.
    Fill(FillError),
    /// The metrics are no valid query.
    Query(Box<QueryError>),
    /// The expression with this id uses itself.
    SelfReference(String),
    /// The expression with this id is part of a cycle.
    Cycle(String),
    /// Series of the variables have no tags in common.
    NoIntersection(String),
    /// There are no results for this variable.
    NoResults(String),
    /// The value of an expression is not a number.
    NotANumber {
        /// Java's class of the value.
        class: &'static str,
        /// The expression.
        expression: String,
    },
}

/// An invalid fill policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillError {
    /// There is no policy of this name.
    Unknown(String),
    /// `zero` with a value other than 0.
    Zero,
    /// `null` with a value.
    Null,
    /// `none` or `nan` with a value.
    NotANumber,
}
