//! Errors of opening a store.

use std::{fmt, io, path::PathBuf};

use tsd_storage::{StorageError, Table, UnknownVersion};

use crate::LostRange;

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses the directory.
    #[error("{} is in use by {}", directory.display(), ProcessName(*pid))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process id of the other process, if known.
        pid: Option<u32>,
    },
    /// The log is damaged, and [`WalConfig::accept_damage`](crate::WalConfig::accept_damage) is not set. Nothing
    /// on disk was changed.
    #[error(
        "the log is damaged or incomplete: {}; these records are lost if it is opened with damage \
         accepted",
        RangeList(lost)
    )]
    Damaged {
        /// All damaged ranges.
        lost: Vec<LostRange>,
    },
    /// Another release wrote a file of the log. No consent opens it, because nothing is lost: that release can
    /// read the file. Nothing on disk was changed.
    #[error(transparent)]
    UnknownVersion(UnknownVersion),
    /// The log contains rows of a table that the backend does not have.
    #[error("the log contains rows of table {0}, which does not exist")]
    NoSuchTable(Table),
    /// A file system error.
    #[error("cannot read the log in {}", directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The backend failed during the replay, and was not just busy, unavailable or full.
    #[error("the backend failed during the replay of the log")]
    Backend(#[source] StorageError),
    /// A thread could not be started, or panicked.
    #[error("cannot run the {0} thread")]
    Thread(&'static str),
}

struct ProcessName(Option<u32>);

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

struct RangeList<'a>(&'a [LostRange]);

impl fmt::Display for RangeList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_LISTED: usize = 5;
        for (i, lost) in self.0.iter().take(MAX_LISTED).enumerate() {
            write!(f, "{}{lost}", if i == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}
