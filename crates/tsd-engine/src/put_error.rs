//! Errors of points.
//!
//! Variants carry the data that front ends need for OpenTSDB's error texts.

use tsd_meta::UidError;
use tsd_model::{NameEncodeError, NameError, TimestampError};
use tsd_read::MetricForbidden;
use tsd_storage::StorageError;

/// Cause why a point was not stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The value is NaN or infinite.
    #[error("value is NaN or infinite")]
    NotFinite,
    /// The timestamp is not valid for a point of this kind.
    #[error(transparent)]
    BadTimestamp(#[from] TimestampError),
    /// The point has no tags.
    #[error("need at least one tag")]
    NoTags,
    /// The point has too many tags.
    #[error("too many tags: {count} maximum allowed: {max}")]
    TooManyTags {
        /// Tags of the point.
        count: usize,
        /// Most tags of a point.
        max: usize,
    },
    /// A name is invalid; the message is OpenTSDB's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A name has a letter above U+00FF.
    #[error(transparent)]
    UnmappableName(#[from] NameEncodeError),
    /// A name has no UID, and its kind is not auto-created ([`UidError::NoSuchName`]), or the assignment failed (all
    /// other errors). A storage failure is [`Self::Storage`].
    #[error(transparent)]
    Uid(UidError),
    /// The timestamp is before the cut-off of the metric's retention.
    #[error(
        "timestamp {time_secs} is too old: points of this metric before {cutoff_secs} are not kept \
         (tsd.storage.retention)"
    )]
    Expired {
        /// Timestamp of the point in epoch seconds.
        time_secs: u32,
        /// Cut-off in epoch seconds.
        cutoff_secs: u32,
    },
    /// The time series filter rejects the series.
    #[error(
        "the time series filter does not allow this series ({0}, tsd.timeseriesfilter.rules_file)"
    )]
    Filtered(String),
    /// The sender may not write the metric.
    #[error(transparent)]
    Forbidden(#[from] MetricForbidden),
    /// The series is new, and the sender has added as many series as it may; the text names the limit.
    #[error("{0}")]
    NewSeriesLimit(String),
    /// The interval of a rolled-up value is not configured.
    #[error("rollups are not configured")]
    NoRollups,
    /// A queue of the engine or of the storage, which the text names, stayed full. The point was not stored and may be
    /// sent again.
    #[error("too many points are waiting: {0}")]
    Throttled(&'static str),
    /// The storage failed. The point may have been stored, unless the error says otherwise.
    #[error(transparent)]
    Storage(StorageError),
    /// An actor panicked while it held the point, which may have been stored.
    #[error("an actor of the engine panicked while it held the point")]
    Lost,
    /// The engine is shut down.
    #[error("the engine is shut down")]
    Closed,
}

impl PutError {
    /// True if the cause is the store, not the point, so that the point may be sent again.
    #[must_use]
    pub const fn is_of_store(&self) -> bool {
        match self {
            Self::Storage(error) => !error.is_permanent(),
            Self::Throttled(_) | Self::Lost | Self::Closed => true,
            _ => false,
        }
    }
}

impl From<StorageError> for PutError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Closed => Self::Closed,
            StorageError::Throttled(cause) => Self::Throttled(cause),
            other => Self::Storage(other),
        }
    }
}

impl From<UidError> for PutError {
    fn from(error: UidError) -> Self {
        match error {
            UidError::Throttled => Self::Throttled("too many names are waiting for a UID"),
            UidError::Closed => Self::Closed,
            UidError::NewSeriesLimit(text) => Self::NewSeriesLimit(text),
            // The name may have a UID, so the point can be sent again.
            UidError::Storage(error) => error.into(),
            other => Self::Uid(other),
        }
    }
}

/// One point of a chunk that was not stored.
#[derive(Clone, Debug)]
pub struct PointFailure {
    /// Tag of the point.
    pub tag: u32,
    /// Its error.
    pub error: PutError,
    /// Metric and tags as the client sent them; `None` unless the error concerns a name.
    pub series: Option<Box<str>>,
}

impl PointFailure {
    /// A failure of a point whose series is no longer known.
    pub(crate) const fn new(tag: u32, error: PutError) -> Self {
        Self { tag, error, series: None }
    }
}

/// Result of a chunk.
#[derive(Clone, Debug, Default)]
pub struct CommitReport {
    /// Points that are durable.
    pub stored: usize,
    /// Points that failed, in order of their tags.
    pub failures: Vec<PointFailure>,
    /// Points without a result when the wait ended.
    pub timed_out: usize,
}
