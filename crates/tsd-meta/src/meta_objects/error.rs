//! Errors of meta objects. Front ends choose the statuses and texts for clients.

use tsd_model::{JsonError, UidKind};
use tsd_storage::StorageError;

use crate::uid_error::UidError;

/// Cause why a meta object was not read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetaError {
    /// The UID does not have the width of its kind.
    #[error("a UID of {found} bytes for '{kind}', whose UIDs have {expected}")]
    WrongWidth {
        /// Kind of the UID.
        kind: UidKind,
        /// Bytes given.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The UID has no name.
    #[error("no such unique ID for '{kind}': {uid:?}")]
    NoSuchUid {
        /// Kind of the UID.
        kind: UidKind,
        /// Its bytes.
        uid: Vec<u8>,
    },
    /// The series has no stored object.
    #[error("the series has no stored TSMeta")]
    NotStored,
    /// Every attempt conflicted with another writer.
    #[error("conflicting edits of the meta object")]
    Contended,
    /// The cell is not a valid object.
    #[error("a stored meta object is invalid")]
    Unreadable(#[from] JsonError),
    /// A task panicked.
    #[error("the work failed: {0}")]
    Panicked(String),
    /// A name was not resolved.
    #[error(transparent)]
    Uid(#[from] UidError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
