//! Why a point was not stored.
//!
//! Variants carry what the front ends need to say it in OpenTSDB's words.

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
    /// A negative time, or one in milliseconds beyond 9999999999999.
    #[error("bad timestamp {0}")]
    BadTimestamp(i64),
    /// A point without tags.
    #[error("need at least one tag")]
    NoTags,
    /// More tags than are allowed.
    #[error("too many tags: {count} maximum allowed: {max}")]
    TooManyTags {
        /// Tags of the point.
        count: usize,
        /// Most that are allowed.
        max: usize,
    },
    /// A name that no entrance takes; the message is OpenTSDB's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A name with a letter the tables cannot hold.
    #[error(transparent)]
    UnmappableName(#[from] NameEncodeError),
    /// A name without a UID, and its kind must not be created by points
    /// ([`UidError::NoSuchName`]), or a UID that may not or could not be assigned (all others;
    /// OpenTSDB's telnet port says nothing of these). A store that failed is [`Self::Storage`].
    #[error(transparent)]
    Uid(UidError),
    /// A rolled-up value for a place the configuration does not have.
    #[error("rollups are not configured")]
    NoRollups,
    /// A queue of the engine or the store's log stayed full: the point was not stored and may be sent
    /// again.
    #[error("too many points are waiting")]
    Throttled,
    /// The store refused or lost the point. It may be stored or not, unless the error says so.
    #[error(transparent)]
    Storage(StorageError),
    /// A part of the engine failed while it held the point; it may be stored or not.
    #[error("the engine failed while it held the point")]
    Lost,
    /// The engine was shut down.
    #[error("the engine is shut down")]
    Closed,
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
            // The name may well have a UID: the point can be sent again.
            UidError::Storage(error) => error.into(),
            other => Self::Uid(other),
        }
    }
}

/// One point of a chunk that was not stored.
#[derive(Clone, Debug)]
pub struct PointFailure {
    /// The tag the point was given with.
    pub tag: u32,
    /// Why.
    pub error: PutError,
}

/// What became of a chunk.
#[derive(Clone, Debug, Default)]
pub struct CommitReport {
    /// Points that are durable.
    pub stored: usize,
    /// Points that failed, by rising tag.
    pub failures: Vec<PointFailure>,
    /// Points whose fate was not known when the wait ended.
    pub timed_out: usize,
}
