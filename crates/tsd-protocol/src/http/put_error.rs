//! Errors of put bodies and of their points. `Display` is OpenTSDB's text.

use tsd_model::HistogramError;

use crate::{ApiError, HistogramValueError, JsonError, PointError, PutErrorKind, RollupError};

/// A rejected body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutBodyError {
    /// Only whitespace.
    #[error("Missing request content")]
    Blank,
    /// The body does not start with `{` or `[`.
    #[error("The JSON must start as an object or an array")]
    NotAContainer,
    /// An empty array.
    #[error("No datapoints found in content")]
    NoPoints,
    /// Invalid JSON, or a field with a wrong type.
    #[error("Unable to parse the given JSON")]
    Json(#[from] JsonError),
    /// There is not enough memory for the points of the body.
    #[error("No memory is left for the points of the body")]
    NoMemory,
}

impl From<PutBodyError> for ApiError {
    fn from(error: PutBodyError) -> Self {
        match &error {
            PutBodyError::Json(json) => Self::bad_json(json.to_string()),
            PutBodyError::NoMemory => Self::overloaded(&error.to_string()),
            _ => Self::new(400, error.to_string()),
        }
    }
}

/// A point that was not stored. `Display` is the `error` of the response.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PutPointError {
    /// `null` instead of a point.
    #[error("Unexpected null datapoint encountered in set.")]
    NullPoint,
    /// No metric.
    #[error("Metric name was empty")]
    EmptyMetric,
    /// A time that is missing or not positive.
    #[error("Invalid timestamp")]
    InvalidTimestamp,
    /// No value.
    #[error("Empty value")]
    EmptyValue,
    /// No tags.
    #[error("Missing tags")]
    MissingTags,
    /// A rolled-up point without interval and without group-by aggregator.
    #[error("Missing interval")]
    MissingInterval,
    /// An interval without an aggregator over time.
    #[error("Missing aggregator")]
    MissingAggregator,
    /// A histogram without buckets and without value.
    #[error("Histogram buckets cannot be null or empty if 'value' is empty.")]
    NoBuckets,
    /// An encoded histogram whose codec id does not fit a byte.
    #[error("Invalid type. Must be from 0 to 255.")]
    BadCodecId,
    /// A bucket key that is not two bounds.
    #[error("Unable to parse bucket bounds: {0}")]
    BucketBounds(String),
    /// An invalid histogram.
    #[error(transparent)]
    Histogram(HistogramValueError),
    /// An invalid rolled-up point.
    #[error(transparent)]
    Rollup(Box<RollupError>),
    /// A value that is not a number.
    #[error("Unable to parse value to a number")]
    UnreadableValue,
    /// An invalid point. Boxed, since a body may consist of rejected points.
    #[error(transparent)]
    Point(Box<PointError>),
    /// A name without a UID that may not be created.
    #[error("Unknown metric")]
    UnknownName,
    /// The write queues are full.
    #[error("Please throttle")]
    Throttled,
    /// A tag of the point contradicts the tag in the request header (`tsd.http.header_tag`). OpenTSDB
    /// ignores the header.
    #[error(
        "tag {sent} contradicts {header} of the request header (tsd.http.header_tag); send the point \
         without it or with the value of the header"
    )]
    HeaderTag {
        /// The tag of the point, `k=v`.
        sent: String,
        /// The tag of the header, `k=v`.
        header: String,
    },
    /// An error that OpenTSDB does not expect. Its text ends before the reason.
    #[error("Unexpected exception: {0}")]
    Unexpected(String),
    /// A name cannot get a UID: all UIDs are assigned, or the UID filter rejects the name. OpenTSDB's
    /// text ends before the reason.
    #[error("Unexpected exception: {0}")]
    NoUid(String),
    /// The point is older than the retention of its metric. OpenTSDB has no retention of its own.
    #[error("Invalid timestamp: {0}")]
    Expired(String),
    /// The time series filter rejects the series. OpenTSDB drops the point and reports it as stored.
    #[error("Filtered: {0}")]
    Filtered(String),
    /// The user may not write the metric. OpenTSDB has no rights by metric.
    #[error("Forbidden: {0}")]
    Forbidden(String),
    /// The series is new, and the sender has added as many series as it may. OpenTSDB has no such limit.
    #[error("Too many new series: {0}")]
    NewSeriesLimit(String),
    /// The write failed.
    #[error("Storage exception: {0}")]
    Storage(String),
    /// The store can never accept the point; for example, its cell exceeds the size limit.
    #[error("Storage exception: {0}")]
    Unstorable(String),
    /// Not stored within `sync_timeout`.
    #[error("Write timedout")]
    WriteTimedOut,
}

impl From<PointError> for PutPointError {
    fn from(error: PointError) -> Self {
        Self::Point(Box::new(error))
    }
}

impl From<RollupError> for PutPointError {
    fn from(error: RollupError) -> Self {
        match error {
            RollupError::Point(error) => error.into(),
            RollupError::UnknownInterval(_) => Self::Unexpected(error.to_string()),
            other => Self::Rollup(Box::new(other)),
        }
    }
}

impl From<HistogramValueError> for PutPointError {
    fn from(error: HistogramValueError) -> Self {
        match error {
            HistogramValueError::UnknownCodec(_)
            | HistogramValueError::Unreadable(HistogramError::TooShort(_)) => {
                Self::Histogram(error)
            }
            HistogramValueError::Unreadable(_) => Self::Unexpected(error.to_string()),
        }
    }
}

impl PutPointError {
    /// Returns the `rpc.errors` counter of this error.
    #[must_use]
    pub fn kind(&self) -> PutErrorKind {
        match self {
            Self::UnreadableValue => PutErrorKind::InvalidValue,
            Self::UnknownName => PutErrorKind::UnknownMetric,
            Self::Throttled | Self::Storage(_) | Self::WriteTimedOut => PutErrorKind::Storage,
            _ => PutErrorKind::IllegalArgument,
        }
    }

    /// Returns true if the point was rejected by validation and not by storage. Only such
    /// rejections make the status of a detailed response 400.
    #[must_use]
    pub(crate) fn is_rejection(&self) -> bool {
        !matches!(self, Self::Storage(_) | Self::WriteTimedOut)
    }
}
