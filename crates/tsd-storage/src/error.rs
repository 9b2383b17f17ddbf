//! Why a store did not do what it was asked, and what to do about it.

use std::{io, sync::Arc};

use crate::{BatchError, Table};

/// A call that a store did not complete. Cheap to clone: one failed group commit answers many.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// No such table.
    #[error("table {0} does not exist")]
    NoSuchTable(Table),
    /// The cells have a form that cannot be stored.
    #[error("invalid cells")]
    InvalidBatch(#[from] BatchError),
    /// An increment met a value that is not 8 bytes.
    #[error("the column is not a counter: {length} bytes")]
    NotACounter {
        /// Bytes found.
        length: usize,
    },
    /// A queue or buffer is full; the same call may pass later.
    #[error("throttled: {0}")]
    Throttled(&'static str),
    /// The store did not answer in time.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The backend, or the part of it that holds the rows, could not be reached or was not ready; the
    /// same call may pass later.
    #[error("unavailable: {0}")]
    Unavailable(Arc<str>),
    /// What the call builds on was changed since it was read; nothing was done. It may pass once it is
    /// read again.
    #[error("changed since it was read")]
    Changed,
    /// The disk is full: nothing was written, reads go on, writes pass again when there is room.
    #[error("no space left on the data disk")]
    DiskFull,
    /// Stored bytes are damaged.
    #[error("damaged data: {0}")]
    Damaged(Arc<str>),
    /// The file system failed.
    #[error("{what}")]
    Io {
        /// What was being done, with the path.
        what: Arc<str>,
        /// What the system reported.
        source: Arc<io::Error>,
    },
    /// The backend does not take these cells, however often they are put: one is too large, say.
    #[error("{0}")]
    Refused(Arc<str>),
    /// The backend failed.
    #[error("{0}")]
    Backend(Arc<str>),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// What to do after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The same call may pass after a pause.
    RetryLater,
    /// The same call fails again.
    GiveUp,
}

impl StorageError {
    /// An I/O failure, sorted: a full disk is told apart.
    #[must_use]
    pub fn io(what: impl Into<Arc<str>>, source: io::Error) -> Self {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            Self::DiskFull
        } else {
            Self::Io { what: what.into(), source: Arc::new(source) }
        }
    }

    /// Whether what was put cannot be stored, by anything but a change of the store's own limits.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::InvalidBatch(_))
    }

    /// Says what to do next. Retry loops ask here and nowhere else.
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
