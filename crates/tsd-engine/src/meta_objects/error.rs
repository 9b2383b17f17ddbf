//! Why a meta object was not read or written. Statuses and texts for clients are not the engine's.

use tsd_model::{JsonError, UidKind};
use tsd_storage::StorageError;

use crate::uid::UidError;

/// Why a meta object was not read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// A UID of another width than those of its kind.
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
    /// The cell is no valid object.
    #[error("a stored meta object is invalid")]
    Unreadable(#[from] JsonError),
    /// A task of the work panicked.
    #[error("the work failed: {0}")]
    Panicked(String),
    /// A name was not resolved.
    #[error(transparent)]
    Uid(#[from] UidError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
