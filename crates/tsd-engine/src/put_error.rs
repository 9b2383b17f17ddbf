//! Errors of points.
//!
//! Variants carry what the front ends need for OpenTSDB's error texts.

use tsd_model::{NameEncodeError, NameError};
use tsd_storage::StorageError;

use crate::uid::UidError;

/// Why one point was not stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// NaN or an infinity.
    #[error("value is NaN or infinite")]
    NotFinite,
    /// A negative time, or a time in milliseconds above 9999999999999.
    #[error("bad timestamp {0}")]
    BadTimestamp(i64),
    /// A point without tags.
    #[error("need at least one tag")]
    NoTags,
    /// Too many tags.
    #[error("too many tags: {count} maximum allowed: {max}")]
    TooManyTags {
        /// Tags of the point.
        count: usize,
        /// Maximum.
        max: usize,
    },
    /// An invalid name; the message is OpenTSDB's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A name with a letter above U+00FF.
    #[error(transparent)]
    UnmappableName(#[from] NameEncodeError),
    /// A name without a UID whose kind is not auto-created ([`UidError::NoSuchName`]), or a failed
    /// assignment (all others). A storage failure is [`Self::Storage`].
    #[error(transparent)]
    Uid(UidError),
    /// A time before the cut-off of the retention of the metric.
    #[error(
        "timestamp {time_secs} is too old: points of this metric before {cutoff_secs} are not kept \
         (tsd.storage.retention)"
    )]
    Expired {
        /// Epoch seconds.
        time_secs: u32,
        /// Epoch seconds.
        cutoff_secs: u32,
    },
    /// The time series filter refuses the series.
    #[error(
        "the time series filter does not allow this series ({0}, tsd.timeseriesfilter.rules_file)"
    )]
    Filtered(String),
    /// A rolled-up value for an interval that is not configured.
    #[error("rollups are not configured")]
    NoRollups,
    /// A queue of the engine or the storage's log stayed full. The point was not stored and may be
    /// sent again.
    #[error("too many points are waiting")]
    Throttled,
    /// The storage failed. The point may be stored or not, unless the error states it.
    #[error(transparent)]
    Storage(StorageError),
    /// An actor panicked while it held the point, which may be stored or not.
    #[error("an actor of the engine panicked while it held the point")]
    Lost,
    /// The engine is shut down.
    #[error("the engine is shut down")]
    Closed,
}

impl PutError {
    /// True if the store, not the point, is the cause: the point may be sent again.
    #[must_use]
    pub const fn is_of_store(&self) -> bool {
        match self {
            Self::Storage(error) => !error.is_permanent(),
            Self::Throttled | Self::Lost | Self::Closed => true,
            _ => false,
        }
    }
}

impl From<StorageError> for PutError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Closed => Self::Closed,
            StorageError::Throttled(_) => Self::Throttled,
            other => Self::Storage(other),
        }
    }
}

impl From<UidError> for PutError {
    fn from(error: UidError) -> Self {
        match error {
            UidError::Throttled => Self::Throttled,
            UidError::Closed => Self::Closed,
            // The name may have a UID: the point can be sent again.
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
    /// Metric and tags as sent, where they are still known: if the error concerns a name.
    pub series: Option<Box<str>>,
}

impl PointFailure {
    /// A failure of a point whose series is not known any more.
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
