//! Why a put body or one of its points was refused, in OpenTSDB's words.

use tsd_model::HistogramError;

use crate::{ApiError, HistogramValueError, JsonError, PointError, PutErrorKind, RollupError};

/// A body of which nothing is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutBodyError {
    /// Nothing but blanks.
    #[error("Missing request content")]
    Blank,
    /// Neither `{` nor `[` comes first.
    #[error("The JSON must start as an object or an array")]
    NotAContainer,
    /// An empty array.
    #[error("No datapoints found in content")]
    NoPoints,
    /// The JSON is broken, or a field has a type it cannot have.
    #[error("Unable to parse the given JSON")]
    Json(#[from] JsonError),
}

impl From<PutBodyError> for ApiError {
    fn from(error: PutBodyError) -> Self {
        match &error {
            PutBodyError::Json(json) => Self::bad_json(json.to_string()),
            _ => Self::new(400, error.to_string()),
        }
    }
}

/// A point that was not stored. `Display` is the `error` of the reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PutPointError {
    /// `null` in place of a point.
    #[error("Unexpected null datapoint encountered in set.")]
    NullPoint,
    /// No metric.
    #[error("Metric name was empty")]
    EmptyMetric,
    /// No time, or one that is not above zero.
    #[error("Invalid timestamp")]
    InvalidTimestamp,
    /// No value.
    #[error("Empty value")]
    EmptyValue,
    /// No tags.
    #[error("Missing tags")]
    MissingTags,
    /// A rolled-up point that tells neither an interval nor an aggregator over series.
    #[error("Missing interval")]
    MissingInterval,
    /// An interval without an aggregator over time.
    #[error("Missing aggregator")]
    MissingAggregator,
    /// A histogram without buckets and without bytes.
    #[error("Histogram buckets cannot be null or empty if 'value' is empty.")]
    NoBuckets,
    /// Bytes of a histogram with the id of a codec that no byte holds.
    #[error("Invalid type. Must be from 0 to 255.")]
    BadCodecId,
    /// A bucket whose key is not two bounds.
    #[error("Unable to parse bucket bounds: {0}")]
    BucketBounds(String),
    /// A histogram no table can take.
    #[error(transparent)]
    Histogram(HistogramValueError),
    /// A rolled-up point no table can take.
    #[error(transparent)]
    Rollup(Box<RollupError>),
    /// A value that is no number.
    #[error("Unable to parse value to a number")]
    UnreadableValue,
    /// A point no table can take. Boxed, since a body may be nothing but refused points.
    #[error(transparent)]
    Point(Box<PointError>),
    /// A name without a UID, which must not get one.
    #[error("Unknown metric")]
    UnknownName,
    /// Storage has no room right now.
    #[error("Please throttle")]
    Throttled,
    /// Looking up a UID took too long.
    #[error("Timeout exception")]
    TimedOut,
    /// A filter's veto, no UIDs left, or what nobody foresaw.
    #[error("Unexpected exception")]
    Unexpected,
    /// The write failed.
    #[error("Storage exception: {0}")]
    Storage(String),
    /// No answer within `sync_timeout`.
    #[error("Write timedout")]
    WriteTimedOut,
}

impl From<PointError> for PutPointError {
    fn from(fault: PointError) -> Self {
        Self::Point(Box::new(fault))
    }
}

impl From<RollupError> for PutPointError {
    fn from(fault: RollupError) -> Self {
        match fault {
            RollupError::Point(fault) => fault.into(),
            // OpenTSDB does not foresee it here.
            RollupError::UnknownInterval(_) => Self::Unexpected,
            other => Self::Rollup(Box::new(other)),
        }
    }
}

impl From<HistogramValueError> for PutPointError {
    fn from(fault: HistogramValueError) -> Self {
        match fault {
            HistogramValueError::UnknownCodec(_)
            | HistogramValueError::Unreadable(HistogramError::TooShort(_)) => {
                Self::Histogram(fault)
            }
            HistogramValueError::Unreadable(_) => Self::Unexpected,
        }
    }
}

impl PutPointError {
    /// Which counter of `rpc.errors` this error belongs to.
    #[must_use]
    pub fn kind(&self) -> PutErrorKind {
        match self {
            Self::UnreadableValue => PutErrorKind::InvalidValue,
            Self::UnknownName => PutErrorKind::UnknownMetric,
            Self::Throttled | Self::TimedOut | Self::Storage(_) | Self::WriteTimedOut => {
                PutErrorKind::Storage
            }
            _ => PutErrorKind::IllegalArgument,
        }
    }

    /// Whether the point was refused while it was checked, not by storage afterwards. Only such
    /// refusals make the status of a detailed reply 400.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        !matches!(self, Self::Storage(_) | Self::WriteTimedOut)
    }
}
