//! Errors of part files.

use std::{io, path::Path, sync::Arc};

use tsd_model::PackedRunError;
use tsd_storage::UnknownVersion;

/// A part that could not be written or read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// The operating system refused.
    #[error("{action} {file}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// Path of the file.
        file: Arc<str>,
        /// Its error.
        #[source]
        source: Arc<io::Error>,
    },
    /// Bytes of a part differ from those that were written.
    #[error("store file {file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// Path of the file.
        file: Arc<str>,
        /// Where the damaged block begins.
        offset: u64,
        /// What contradicts what.
        what: &'static str,
    },
    /// A file of another version.
    #[error(transparent)]
    UnknownVersion(#[from] UnknownVersion),
    /// A part of another table layout.
    #[error("part {file} has {what}, which this version does not read")]
    Unsupported {
        /// Path of the file.
        file: Arc<str>,
        /// What differs.
        what: String,
    },
    /// A part that was quarantined, and whose loss was not accepted.
    #[error(
        "store file {file} is damaged ({what}); its rows are lost; it is in quarantine, `tsdb quarantine \
         accept {name}` accepts this"
    )]
    Quarantined {
        /// Name by which its loss is accepted.
        name: Arc<str>,
        /// Path of the file, below the store's directory.
        file: Arc<str>,
        /// What is damaged.
        what: Arc<str>,
    },
    /// An output would use the reserve of the disk. Nothing was written.
    #[error("no space left on the data disk")]
    DiskFull,
    /// Merges are behind flushes.
    #[error("merges are behind")]
    Behind,
    /// The store is being closed.
    #[error("the merge was stopped")]
    Stopped,
    /// Rows that cannot be stored.
    #[error("a row cannot be stored: {0}")]
    Row(&'static str),
}

impl PartError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file: Arc<str> = path.display().to_string().into();
        move |error| Self::Io { action, file, source: Arc::new(error) }
    }

    /// True if the file is damaged, so that the part must be quarantined.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

/// A problem inside a block, which is intact: the part gives it a name and a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Summaries where a series has its chunks.
pub(crate) const MISPLACED: Malformed = Malformed("summaries among chunks");

impl From<PackedRunError> for Malformed {
    fn from(error: PackedRunError) -> Self {
        match error {
            PackedRunError::Damaged(what) | PackedRunError::NotPackable(what) => Self(what),
            _ => Self("packed points"),
        }
    }
}
