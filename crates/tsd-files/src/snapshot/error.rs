//! Errors of taking and using snapshots.

use std::{io, path::PathBuf};

use tsd_storage::StorageError;

use super::format::{LIST_FORMAT, SNAPSHOT_LIST};

/// A snapshot that was not taken, or cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The directory is not suitable for a new snapshot.
    #[error("{}: {what}", path.display())]
    Target {
        /// The directory.
        path: PathBuf,
        /// The reason.
        what: &'static str,
    },
    /// The store has damage that was not accepted.
    #[error(
        "the store has {} damaged file(s) in quarantine ({}); a snapshot would lack what they had: \
         `tsdb quarantine list` describes them; --allow-damage takes the snapshot without it",
        files.len(), files.join(", ")
    )]
    Damage {
        /// Names of the files.
        files: Vec<String>,
    },
    /// Another snapshot of the store is being taken.
    #[error("another snapshot of this store is in progress")]
    InProgress,
    /// The snapshot was cancelled.
    #[error("the snapshot was cancelled")]
    Cancelled,
    /// No list of files.
    #[error("{} is no snapshot: it has no {SNAPSHOT_LIST}, which is written last", path.display())]
    NoSnapshot {
        /// The directory.
        path: PathBuf,
    },
    /// The list of files is damaged.
    #[error("{} is damaged: {what}", path.display())]
    DamagedList {
        /// The list.
        path: PathBuf,
        /// The problem.
        what: &'static str,
    },
    /// Another version wrote the list.
    #[error("{} has format {found}; this version reads only {}", path.display(), LIST_FORMAT)]
    OtherFormat {
        /// The list.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// A file of a snapshot differs from the written file.
    #[error("{} of the snapshot is damaged: {what}", path.display())]
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The file system failed.
    #[error("{action} {}{}", path.display(), way_out(source))]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StorageError),
}

impl SnapshotError {
    /// The error of an attempt on a file.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Advice for the operator about an error.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (free some space on its disk, or name another one)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (the process that has the store open needs the right to write there)"
        }
        _ => "",
    }
}
