//! The interface of a log for committer and flusher, wherever the log is kept.
//!
//! A log is divided into sections. A section has the records of one memtable and is trimmed once their rows are
//! in the backend. A log outside of files may also have sections of earlier owners ([`FormerLog`]).
//!
//! Features that only a log in files has are in [`LocalFiles`](crate::local_files::LocalFiles): verification,
//! quarantine, continuity, survivor files.

use std::{fmt, sync::Weak};

use bytes::Bytes;
use tsd_storage::{HealthImpact, StorageError};

use crate::log::RecordGroup;

/// The end of a section of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// Number of the owner that wrote the section, if a log has several owners one after another. 0 in files,
    /// which have a single owner.
    pub incarnation: u64,
    /// Sequence number of the first record after the section.
    pub sequence: u64,
}

/// Logs that earlier owners left, oldest first.
#[derive(Debug, Default)]
pub struct FormerLogs {
    /// The logs.
    pub logs: Vec<FormerLog>,
    /// Last commit time of the trimmed records of these logs; `None` if nothing was trimmed.
    pub last_commit_ms: Option<i64>,
}

/// The log of an earlier owner. It is replayed into its own memtables and trimmed after their flush.
pub struct FormerLog {
    /// End of the log.
    pub position: LogPosition,
    /// Groups of the log in order, each in the format of [`RecordGroup::as_bytes`].
    pub groups: GroupIterator,
}

/// Iterates over the groups of a log. It blocks, and returns an error if a group cannot be read.
pub type GroupIterator = Box<dyn Iterator<Item = Result<Bytes, StorageError>> + Send>;

impl fmt::Debug for FormerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormerLog").field("position", &self.position).finish_non_exhaustive()
    }
}

/// Summary of a log whose rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLog {
    /// Number of replayed records.
    pub records: u64,
    /// Number of put cells and deleted columns in them.
    pub cells: u64,
    /// Last commit time in the log; `i64::MIN` for an empty log.
    pub last_commit_ms: i64,
}

/// Stores the rows of logs whose owners are gone. Its calls block.
pub trait LogRecoverer: fmt::Debug + Send + Sync {
    /// Writes the rows of a log to the backend, separately from the rows of the own log. Calls `confirm` before
    /// each step; its error stops the write. A caller may repeat the whole call.
    ///
    /// # Errors
    ///
    /// If the log cannot be read, or the backend does not accept all rows.
    fn store(
        &self,
        groups: GroupIterator,
        confirm: &dyn Fn() -> Result<(), StorageError>,
    ) -> Result<StoredLog, StorageError>;

    /// Makes all later commits have later times than this one.
    fn raise_commit_time(&self, last_commit_ms: i64);
}

/// Size of the section that is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionSize {
    /// Bytes of the section.
    pub bytes: u64,
    /// Bytes of its last segment.
    pub segment_bytes: u64,
    /// True if the section has no records to trim.
    pub is_empty: bool,
}

/// A log that makes groups of records durable in order, until they are trimmed.
///
/// The calls block. The committer thread appends and ends sections; the flusher thread trims.
pub trait CommitLog: fmt::Debug + Send + Sync {
    /// Location of the log, for errors and messages.
    fn name(&self) -> String;

    /// True if other daemons depend on the same service for their logs, and so fail together with this one.
    fn is_remote(&self) -> bool {
        false
    }

    /// True if another daemon has just reported that the service works for it, so that this one fails alone.
    fn others_work(&self) -> bool {
        false
    }

    /// Makes a group durable.
    ///
    /// # Errors
    ///
    /// After an error, the group stays unacknowledged, and the next group may be appended. A replay may still
    /// find the failed group.
    fn append(&self, group: &mut RecordGroup) -> Result<(), StorageError>;

    /// After a failed append, tries whether a group could be appended now.
    ///
    /// # Errors
    ///
    /// If it could not.
    fn probe(&self) -> Result<(), StorageError>;

    /// Fails if files or the table of the log were removed or replaced, so that a group would be lost. Must be
    /// cheap, because it is called every second.
    ///
    /// # Errors
    ///
    /// Names the missing file or table.
    fn check_files(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Size of the section that is being written.
    fn section_size(&self) -> SectionSize;

    /// Begins another segment of the section, if callers divide the log into segments.
    fn roll(&self) {}

    /// Ends the section that is being written. The next group begins another section.
    fn end_section(&self) -> LogPosition;

    /// Removes all sections up to `to`, whose rows are in the backend. `last_commit_ms` is the last commit time
    /// of the log.
    ///
    /// # Errors
    ///
    /// If a section could not be removed. The next call retries that, and a replay may find the section until
    /// then.
    fn trim(&self, to: LogPosition, last_commit_ms: i64) -> Result<(), StorageError>;

    /// Retries the removals that failed in [`Self::trim`].
    ///
    /// # Errors
    ///
    /// As [`Self::trim`].
    fn finish_trim(&self, last_commit_ms: i64) -> Result<(), StorageError>;

    /// Number of segments that are kept of ended sections.
    fn closed_segments(&self) -> u64;

    /// Fails if another process has taken the log over. That process flushes the rows of the memtables.
    ///
    /// # Errors
    ///
    /// If another process has, or if that is unknown now.
    fn confirm(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Why the log accepts no more groups until the process is restarted; `None` while it accepts them.
    fn problem(&self) -> Option<String> {
        None
    }

    /// A problem of the log that all daemons with this log have, and its impact; `None` without one.
    fn common_problem(&self) -> Option<(HealthImpact, String)> {
        None
    }

    /// Called once the store is open. The log uses `recoverer` to store the rows that other owners left.
    fn attach(&self, _recoverer: Weak<dyn LogRecoverer>) {}

    /// Metrics of the log without labels, as (name, value).
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Releases the log. This is the last call.
    fn close(&self) {}
}
