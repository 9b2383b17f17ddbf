//! Errors of a store and how a caller recovers from them.

use std::{error::Error, fmt::Write, io, sync::Arc};

use tsd_model::PackedRunError;
use tsd_runtime::Outdated;

use crate::{BatchError, Table, UnknownVersion, UnreadableRows};

/// An error of a call of a store. Cheap to clone: one failed group commit fails many calls.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The table does not exist.
    #[error("table {0} does not exist")]
    NoSuchTable(Table),
    /// The cells cannot be encoded.
    #[error("invalid cells")]
    InvalidBatch(#[from] BatchError),
    /// The value to increment is not 8 bytes long.
    #[error("the column is not a counter: {length} bytes")]
    NotACounter {
        /// Length of the value, in bytes.
        length: usize,
    },
    /// A queue or buffer is full; a later retry may succeed.
    #[error("throttled: {0}")]
    Throttled(&'static str),
    /// The store did not respond in time.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The backend, or its server for the rows, is unreachable or not ready; a later retry may
    /// succeed.
    #[error("unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The row was changed since the call's read version; nothing was written. The call may succeed
    /// after a new read.
    #[error("changed since it was read")]
    Changed,
    /// The disk is full, and nothing was written. Reads succeed; writes succeed after space is
    /// freed.
    #[error("no space left on the data disk")]
    DiskFull,
    /// Stored bytes are corrupt.
    #[error("damaged data: {0}")]
    Damaged(Arc<str>),
    /// Stored rows that the call needs cannot be read. Other rows of the same time are readable.
    #[error("{0}")]
    Unreadable(Arc<UnreadableRows>),
    /// Another release has written a file. The file is intact, so accepting a loss does not help.
    #[error(transparent)]
    UnknownVersion(Arc<UnknownVersion>),
    /// The file system failed.
    #[error("{what}: {error}")]
    Io {
        /// The operation, with the path.
        what: Arc<str>,
        /// The error of the operating system. It is part of the text, and therefore not a source.
        error: Arc<io::Error>,
    },
    /// The backend permanently rejects these cells; a cell over its size limit, for example.
    #[error("{0}")]
    Rejected(Arc<str>),
    /// The backend failed in another way.
    #[error("{0}")]
    Backend(Arc<str>),
    /// The daemon stood still after it had received the write, and has not made it. The write may have been sent
    /// again and corrected meanwhile.
    #[error("not stored: the daemon stood still after it had received the write")]
    StoodStill,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// How to continue after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The same call may succeed after a pause.
    RetryLater,
    /// The same call will fail again.
    GiveUp,
}

impl StorageError {
    /// Classifies an I/O error: a full disk is [`Self::DiskFull`], any other error [`Self::Io`].
    #[must_use]
    pub fn io(what: impl Into<Arc<str>>, source: io::Error) -> Self {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            Self::DiskFull
        } else {
            Self::Io { what: what.into(), error: Arc::new(source) }
        }
    }

    /// An error of the backend that no retry overcomes, or of an invalid request to it.
    #[must_use]
    pub fn backend(error: &dyn Error) -> Self {
        Self::Backend(error_chain(error).into())
    }

    /// True if the same cells can never be stored while the limits of the store stay as they are.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::InvalidBatch(_))
    }

    /// True if the same write may succeed later without a change of the cells or settings: the
    /// store is full, busy or unreachable, or its file system fails for now.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Throttled(_)
                | Self::Timeout(_)
                | Self::Unavailable(_)
                | Self::DiskFull
                | Self::Io { .. }
        )
    }

    /// Classifies the error for retry loops.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        match self {
            Self::Throttled(_)
            | Self::Timeout(_)
            | Self::Unavailable(_)
            | Self::Changed
            | Self::DiskFull => Recovery::RetryLater,
            _ => Recovery::GiveUp,
        }
    }
}

impl From<PackedRunError> for StorageError {
    fn from(error: PackedRunError) -> Self {
        Self::Damaged(error.to_string().into())
    }
}

impl From<Outdated> for StorageError {
    fn from(reason: Outdated) -> Self {
        match reason {
            Outdated::StoodStill => Self::StoodStill,
            Outdated::Late => Self::Timeout("the deadline of the write passed before it was made"),
        }
    }
}

impl From<UnknownVersion> for StorageError {
    fn from(error: UnknownVersion) -> Self {
        Self::UnknownVersion(Arc::new(error))
    }
}

/// The text of an error and of its sources.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string does not fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_names_its_cause_once() {
        let error = StorageError::io("opening x", io::Error::other("too many open files"));
        assert_eq!(error.to_string(), "opening x: too many open files");
        assert_eq!(error_chain(&error), error.to_string());
    }
}
