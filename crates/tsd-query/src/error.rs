//! Causes why a query has no result, with their data.
//!
//! `tsd-protocol` maps each cause to OpenTSDB's status and text, on which some clients match.
//! [`std::fmt::Display`] shows the cause for logs and tests.

mod gexp;
mod request;

use std::{fmt, time::Duration};

use tsd_model::{
    ConflictingPoint, HistogramError, PackedRunError, RowError, SeriesKeyError, UidKind,
};

pub use self::{
    gexp::GexpError,
    request::{
        BodyQueryError, RateError, RequestError, TagEntryError, TimeError, TimeProblem, UriError,
    },
};
use crate::filter::{FilterError, ValueFilterError};

/// A query that cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// A sub query of a URI cannot be parsed.
    Uri(UriError),
    /// A body is JSON, but has no query.
    Body(BodyQueryError),
    /// The options of a rate are invalid.
    Rate(RateError),
    /// A value filter is invalid.
    ValueFilter(ValueFilterError),
    /// A time is invalid.
    Time(TimeError),
    /// The query is incomplete, or contradicts itself.
    Request(RequestError),
    /// An expression of `/api/query/exp` is invalid, or has no result.
    Exp(ExpError),
    /// An expression of `/api/query/gexp` is invalid, or has no result.
    Gexp(GexpError),
    /// A name, UID or TSUID does not exist or is invalid.
    Series(SeriesError),
    /// The configured rollups have no cells for the query.
    Rollup(RollupError),
    /// Stored data cannot be read, or have no result.
    Data(DataError),
    /// A limit is reached.
    Limit(LimitError),
    /// The same client already runs the same query.
    Duplicate {
        /// Address of the client.
        endpoint: String,
    },
    /// An operator cancelled the query.
    CancelledByOperator,
    /// The query has ended, so its remaining tasks stop. No client sees this error.
    Ended,
}

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
    /// The metrics do not form a valid query.
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

/// A name, UID or TSUID that does not exist or is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesError {
    /// A name of a query has no UID.
    NoSuchName {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// A UID of the newest points has no name.
    NoSuchUid {
        /// Kind of the UID.
        kind: UidKind,
        /// Bytes of the UID.
        uid: Vec<u8>,
    },
    /// A filter has an empty tag value.
    EmptyTagValue,
    /// TSUIDs of one sub query have different metrics.
    MixedMetrics {
        /// UID of the first metric, as sent.
        first: String,
        /// Another metric UID.
        other: String,
    },
    /// A TSUID is too short, or ends within a UID.
    TsuidLength(String),
    /// A TSUID is not in hexadecimal digits.
    TsuidDigits(String),
    /// A TSUID has a metric only.
    TsuidWithoutTags,
    /// A TSUID of the newest points has no metric, no tags, or ends within a UID.
    TsuidIncomplete,
    /// A request for newest points with a range names a metric without tags.
    MissingTags,
    /// UIDs do not form a series.
    Key(SeriesKeyError),
    /// A series look-up has a tag with neither key nor value.
    EmptyLookupTag,
    /// A name or UID of a series look-up does not exist.
    NotFound {
        /// Step of the look-up that failed.
        lookup: LookupStep,
        /// The name or UID.
        missing: MissingName,
    },
    /// The metric whose series are to be counted does not exist.
    NoSuchMetric(String),
    /// The store has no series index, which counts series.
    NoSeriesIndex,
}

/// Part of a series look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupStep {
    /// The names of the request.
    Names,
    /// The names of the series found.
    Tsuids,
}

/// A name without a UID, or a UID without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingName {
    /// The name has no UID.
    Name {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// The UID has no name.
    Uid {
        /// Kind of the UID.
        kind: UidKind,
        /// Bytes of the UID.
        uid: Vec<u8>,
    },
}

/// Rollups that cannot serve a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollupError {
    /// The query requests pre-aggregates, but rollups are not configured.
    NotConfigured,
    /// The function of this name has no cells.
    NoCells(String),
    /// Standard deviations cannot be computed from cells.
    Deviation,
}

/// Stored data that cannot be read, or whose result is not a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataError {
    /// A row cannot be decoded.
    Row(Box<RowError>),
    /// A row has several values of one instant.
    Conflict(Box<PointConflict>),
    /// The points of a block cannot be decoded.
    Block(PackedRunError),
    /// A histogram cannot be decoded.
    Histogram(HistogramError),
    /// Percentiles or buckets of a metric whose points are numbers; has the name of the metric, or
    /// TSUIDs.
    NoHistograms(String),
    /// An aggregate is infinite.
    Infinite {
        /// True for negative infinity.
        negative: bool,
    },
    /// The fill policy has no value for missing points.
    NoFillValue,
}

/// Several values of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointConflict {
    /// The error of the row.
    pub error: RowError,
    /// Name of the metric, or its UID in hexadecimal digits.
    pub metric: String,
    /// Tags; UIDs replace unknown names.
    pub tags: Vec<(String, String)>,
    /// The instant, in epoch milliseconds.
    pub time_ms: i64,
    /// The newest points of the instant; empty for rollups.
    pub points: Vec<ConflictingPoint>,
}

/// A limit that a query has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// Data points read by a sub query, or filled.
    DataPoints {
        /// The limit.
        limit: u64,
    },
    /// Bytes read by a sub query.
    Bytes {
        /// The limit, in MiB.
        limit_mb: u64,
    },
    /// Bytes read by a query of a client with a limit of its own.
    ClientBytes {
        /// The limit, in bytes.
        limit: u64,
        /// Setting of the limit.
        key: &'static str,
    },
    /// Memory of the query.
    Memory {
        /// The limit, in MiB.
        limit_mb: u64,
        /// Setting of the limit.
        key: &'static str,
    },
    /// Memory of all queries, within a computation.
    TotalMemory {
        /// The limit, in MiB.
        limit_mb: u64,
        /// Setting of the limit.
        key: &'static str,
    },
    /// Time.
    Time {
        /// The limit.
        limit: Duration,
        /// Time since the start of the query.
        elapsed: Duration,
    },
    /// Sub queries of a query.
    SubQueries {
        /// Number of sub queries.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// Points of the window of a moving average.
    MovingAverage,
    /// Rows read by a look-up of series.
    LookupRows {
        /// The limit.
        limit: u64,
    },
}

impl QueryError {
    /// A name without a UID.
    #[must_use]
    pub fn no_such_name(kind: UidKind, name: &str) -> Self {
        Self::Series(SeriesError::NoSuchName { kind, name: name.to_owned() })
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for QueryError {}

macro_rules! causes {
    ($($variant:ident: $cause:ty),+ $(,)?) => {
        $(impl From<$cause> for QueryError {
            fn from(cause: $cause) -> Self {
                Self::$variant(cause)
            }
        })+
    };
}

causes! {
    Uri: UriError,
    Body: BodyQueryError,
    Rate: RateError,
    ValueFilter: ValueFilterError,
    Time: TimeError,
    Request: RequestError,
    Exp: ExpError,
    Gexp: GexpError,
    Series: SeriesError,
    Rollup: RollupError,
    Data: DataError,
    Limit: LimitError,
}
