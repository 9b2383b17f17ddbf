//! The log as committer and flusher use it, wherever it is kept.
//!
//! A log is divided into sections: one has the records of one memtable, and is trimmed once their rows are
//! in the backend. A log that is not in files may have sections of earlier owners too ([`FormerLog`]). What only a log in files has (verification, quarantine, continuity, survivor files)
//! stays with the files ([`LocalFiles`](crate::local_files::LocalFiles)).

use std::{fmt, sync::Weak};

use bytes::Bytes;
use tsd_storage::StorageError;

use crate::log::RecordGroup;

/// The end of a section of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// Which of the owners of the log, one after the other, has written the section; 0 in files, which
    /// have one.
    pub incarnation: u64,
    /// Sequence number of the first record after the section.
    pub sequence: u64,
}

/// What the earlier owners of a log have left, oldest first.
#[derive(Debug, Default)]
pub struct FormerLogs {
    /// The logs.
    pub logs: Vec<FormerLog>,
    /// The last commit time of what was trimmed of them; `None` if nothing was.
    pub last_commit_ms: Option<i64>,
}

/// The log of an earlier owner. It is replayed into memtables of its own, and trimmed after their flush.
pub struct FormerLog {
    /// Its end.
    pub position: LogPosition,
    /// Its groups in their order, each as [`RecordGroup::as_bytes`] was.
    pub groups: GroupIterator,
}

/// Groups of a log. It blocks, and ends with an error if not all of them can be read.
pub type GroupIterator = Box<dyn Iterator<Item = Result<Bytes, StorageError>> + Send>;

impl fmt::Debug for FormerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormerLog").field("position", &self.position).finish_non_exhaustive()
    }
}

/// What is known of a log after its rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLog {
    /// Records replayed.
    pub records: u64,
    /// Cells put and columns deleted by them.
    pub cells: u64,
    /// The last commit time in the log; `i64::MIN` without any.
    pub last_commit_ms: i64,
}

/// Stores the rows of logs whose owners are gone, beside those of the own log. Its calls block.
pub trait LogRecoverer: fmt::Debug + Send + Sync {
    /// Writes the rows of a log to the backend, apart from those of the own log. `confirm` is called before each
    /// part, and ends it by an error. It may be repeated from the beginning.
    ///
    /// # Errors
    ///
    /// If the log cannot be read, or the backend does not take all rows.
    fn store(
        &self,
        groups: GroupIterator,
        confirm: &dyn Fn() -> Result<(), StorageError>,
    ) -> Result<StoredLog, StorageError>;

    /// Commits from now on have later times than this one.
    fn raise_commit_time(&self, last_commit_ms: i64);
}

/// Size of the section that is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionSize {
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of its last segment.
    pub segment_bytes: u64,
    /// True if there is nothing to trim.
    pub is_empty: bool,
}

/// A log that makes groups of records durable, in order, until they are trimmed.
///
/// The calls block. The committer thread appends and ends sections, the flusher thread trims.
pub trait CommitLog: fmt::Debug + Send + Sync {
    /// Where the log is, for errors and messages.
    fn name(&self) -> String;

    /// Makes a group durable.
    ///
    /// # Errors
    ///
    /// The group is not acknowledged then, and the next one may be appended. A replay may find the group all
    /// the same.
    fn append(&self, group: &mut RecordGroup) -> Result<(), StorageError>;

    /// Tries whether a group could be appended, after one could not.
    ///
    /// # Errors
    ///
    /// If it could not.
    fn probe(&self) -> Result<(), StorageError>;

    /// Size of the section that is being written.
    fn section_size(&self) -> SectionSize;

    /// Begins another segment of the section, if the log is divided into segments by its users.
    fn roll(&self) {}

    /// Ends the section that is being written; the next group begins another.
    fn end_section(&self) -> LogPosition;

    /// Forgets all sections up to `to`, whose rows are in the backend; `last_commit_ms` is the last commit
    /// time of the log.
    ///
    /// # Errors
    ///
    /// Why something is kept. The next call does it, and a replay may find it until then.
    fn trim(&self, to: LogPosition, last_commit_ms: i64) -> Result<(), StorageError>;

    /// Tries again what a call of [`Self::trim`] could not do.
    ///
    /// # Errors
    ///
    /// As [`Self::trim`].
    fn finish_trim(&self, last_commit_ms: i64) -> Result<(), StorageError>;

    /// Number of segments of ended sections that are kept.
    fn closed_segments(&self) -> u64;

    /// Fails if another process has taken the log over: what memtables have is flushed by that one.
    ///
    /// # Errors
    ///
    /// If it has, or if that cannot be found out now.
    fn confirm(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Why the log takes no more groups until the process is restarted; `None` while it does.
    fn problem(&self) -> Option<String> {
        None
    }

    /// The store is open: by `recoverer` the log stores what other owners have left.
    fn attach(&self, _recoverer: Weak<dyn LogRecoverer>) {}

    /// Metrics of the log without labels, as (name, value).
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Releases the log; nothing is called after this.
    fn close(&self) {}
}
