//! Why a store could not be opened.

use std::{fmt, io, path::PathBuf};

use tsd_storage::{StorageError, Table};

use crate::LostRange;

/// A store that was not opened. Nothing on disk was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the directory.
    #[error("{} is in use by {}", directory.display(), Owner(*pid))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process, where it left its number.
        pid: Option<u32>,
    },
    /// The log is damaged, and damage was not accepted.
    #[error(
        "the log is damaged: {}; what cannot be read is lost if it is opened accepting damage",
        Places(lost)
    )]
    Damaged {
        /// Every place.
        lost: Vec<LostRange>,
    },
    /// The log holds rows of a table that the backend does not have.
    #[error("the log holds rows of table {0}, which does not exist")]
    NoSuchTable(Table),
    /// The file system failed.
    #[error("cannot read the log in {}", directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// The backend failed.
    #[error("the backend failed during the replay of the log")]
    Backend(#[source] StorageError),
    /// A thread could not be started, or ended early.
    #[error("cannot run the {0} thread")]
    Thread(&'static str),
}

struct Owner(Option<u32>);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

struct Places<'a>(&'a [LostRange]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (i, lost) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{lost}", if i == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, ", and {more} more places"),
        }
    }
}
