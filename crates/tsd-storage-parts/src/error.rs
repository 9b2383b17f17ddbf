//! Errors of part files.

use std::{io, path::Path, sync::Arc};

use tsd_model::PackedRunError;
use tsd_storage::UnknownVersion;

/// A failed write or read of a part.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// An operation on a file failed.
    #[error("{action} {file}")]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// Path of the file.
        file: Arc<str>,
        /// The error of the operating system.
        #[source]
        source: Arc<io::Error>,
    },
    /// Bytes of a part differ from the bytes that were written.
    #[error("store file {file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// Path of the file.
        file: Arc<str>,
        /// Offset of the damaged block.
        offset: u64,
        /// The check that failed.
        what: &'static str,
    },
    /// The file has another format version.
    #[error(transparent)]
    UnknownVersion(#[from] UnknownVersion),
    /// The part has another table layout.
    #[error("part {file} has {what}, which this version does not read")]
    Unsupported {
        /// Path of the file.
        file: Arc<str>,
        /// The property that differs.
        what: String,
    },
    /// The part is in quarantine, and its loss is not accepted.
    #[error(
        "store file {file} is damaged ({what}); its rows are lost; it is in quarantine, `tsdb quarantine \
         accept {name}` accepts this"
    )]
    Quarantined {
        /// Name by which its loss is accepted.
        name: Arc<str>,
        /// Path of the file, below the store's directory.
        file: Arc<str>,
        /// Description of the damage.
        what: Arc<str>,
    },
    /// A read needs a damaged block of a live section.
    #[error(
        "store file {file} is damaged ({what}); a read needs its block at byte {offset}; it is in quarantine, \
         `tsdb quarantine accept {name}` accepts the loss"
    )]
    QuarantinedBlock {
        /// Name by which its loss is accepted.
        name: Arc<str>,
        /// Path of the file, below the store's directory.
        file: Arc<str>,
        /// Description of the damage.
        what: Arc<str>,
        /// Number of the file.
        number: u64,
        /// Where the block begins.
        offset: u64,
    },
    /// The output would use the reserve of the disk. Nothing was written.
    #[error("no space left on the data disk")]
    DiskFull,
    /// Merges lag behind flushes.
    #[error("merges are behind")]
    Behind,
    /// The store is being closed.
    #[error("the merge was stopped")]
    Stopped,
    /// The row cannot be stored.
    #[error("a row cannot be stored: {0}")]
    Row(&'static str),
}

impl PartError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file: Arc<str> = path.display().to_string().into();
        move |error| Self::Io { action, file, source: Arc::new(error) }
    }

    /// True if the file is damaged, so that its part must be quarantined.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

/// A malformed intact block. The part adds the file and the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// A block of chunks has summaries.
pub(crate) const MISPLACED: Malformed = Malformed("summaries among chunks");

impl From<PackedRunError> for Malformed {
    fn from(error: PackedRunError) -> Self {
        match error {
            PackedRunError::Damaged(what) | PackedRunError::NotPackable(what) => Self(what),
            _ => Self("packed points"),
        }
    }
}
