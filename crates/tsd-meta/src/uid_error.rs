//! Why a name has no UID.

use tsd_model::{MAX_NAME_BYTES, UidKind};
use tsd_storage::StorageError;

/// Cause why a name was not resolved, or got no UID.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UidError {
    /// The name has no UID and may not get one.
    #[error("no such name for '{kind}': '{name}'")]
    NoSuchName {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// The UID has no name.
    #[error("no such unique ID for '{kind}': {uid:?}")]
    NoSuchUid {
        /// Kind of the UID.
        kind: UidKind,
        /// Its bytes.
        uid: Vec<u8>,
    },
    /// The target name of an assignment or rename has a UID already.
    #[error("the {kind} name '{name}' already has UID {uid:?}")]
    NameTaken {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// Its UID.
        uid: Vec<u8>,
    },
    /// The name is empty or has an invalid character.
    #[error("illegal name '{name}' for '{kind}'")]
    IllegalName {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// The first invalid character; `None` if the name is empty.
        character: Option<char>,
    },
    /// The name is longer than [`MAX_NAME_BYTES`].
    #[error("the name for '{kind}' has {length} bytes, more than {MAX_NAME_BYTES}")]
    NameTooLong {
        /// Kind of the name.
        kind: UidKind,
        /// Its length, in bytes.
        length: usize,
    },
    /// The UID filter rejects the name.
    #[error("Blocked by UID filter. kind='{kind}' name='{name}'")]
    BlockedByFilter {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// The name is new, and its sender may not create names of this kind.
    #[error("the sender may not create names of '{kind}': '{name}'")]
    CreationForbidden {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// The series is new, and its metric has reached the limit on series.
    #[error(
        "metric '{metric}' has {limit} series, the most it may have (tsd.limits.series_per_metric): \
         a new series is refused"
    )]
    SeriesLimit {
        /// The metric.
        metric: String,
        /// Most series of a metric.
        limit: u64,
    },
    /// The series is new, and its sender has added as many series as it may; the text names the limit and the time at
    /// which the next one is accepted.
    #[error("{0}")]
    NewSeriesLimit(String),
    /// Every UID of the kind's width is assigned.
    #[error("All Unique IDs for {kind} on {width} bytes are already assigned!")]
    AllAssigned {
        /// The kind.
        kind: UidKind,
        /// Width of its UIDs.
        width: usize,
    },
    /// Names already had the numbers tried, although the counter was below them.
    #[error("Failed to assign an ID for kind='{kind}' name='{name}': the numbers tried were taken")]
    NumbersTaken {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// Every random UID tried was taken.
    #[error("Failed to assign random ID for kind='{kind}' name='{name}' after {attempts} attempts")]
    RandomExhausted {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// Attempts made.
        attempts: u32,
    },
    /// The stored UID does not have the configured width.
    #[error("the {kind} name '{name}' has a UID of {found} bytes, not {expected}")]
    WrongWidth {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The name or UID is being renamed or deleted.
    #[error("the {kind} name '{name}' is being changed")]
    BeingChanged {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// The name was renamed or deleted, but a node of the cluster may still use its former UID.
    #[error(
        "the {kind} name '{name}' is changed, but other nodes may use its former UID: {reason}; drop \
         their caches (/api/dropcaches)"
    )]
    NotForgotten {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// Nodes that have not answered, with reasons.
        reason: String,
    },
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Too many names wait for a UID.
    #[error("too many names are waiting for a UID")]
    Throttled,
    /// The UID actor panicked while it processed the name.
    #[error("the UID actor panicked")]
    Lost,
    /// The engine is shut down.
    #[error("the engine is shut down")]
    Closed,
}
