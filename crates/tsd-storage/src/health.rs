//! Problems that a store has now, for status pages, readiness checks and alerts.
//!
//! A store reports what it knows from its own work: no call reads data to find out.

use std::{fmt, sync::Arc};

/// The part of a store that has a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorePart {
    /// Commits to the write-ahead log.
    Commit,
    /// Flushes of memtables to the backend.
    Flush,
    /// Compactions of files.
    Compaction,
    /// Connections to a remote backend.
    Backend,
    /// Free space of the data disk.
    Disk,
    /// Stored data: a file is damaged, missing or in quarantine.
    Data,
    /// Removing expired points.
    Retention,
}

impl StorePart {
    /// Every part.
    pub const ALL: [Self; 7] = [
        Self::Commit,
        Self::Flush,
        Self::Compaction,
        Self::Backend,
        Self::Disk,
        Self::Data,
        Self::Retention,
    ];

    /// The value of the label `part`, and the key in `/api/status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Backend => "backend",
            Self::Disk => "disk",
            Self::Data => "data",
            Self::Retention => "retention",
        }
    }
}

impl fmt::Display for StorePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a problem prevents; the greatest of all problems is the state of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthImpact {
    /// Reads and writes succeed, but background work is behind or fails.
    Degraded,
    /// Reads of some data fail; writes succeed.
    SomeReadsFail,
    /// Writes are rejected; reads succeed.
    WritesRejected,
    /// Neither reads nor writes succeed.
    Unavailable,
}

/// A problem that a store has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthProblem {
    /// Where it is.
    pub part: StorePart,
    /// What it prevents.
    pub impact: HealthImpact,
    /// What is wrong, with the file, table or server concerned and the operating system's error.
    pub reason: Arc<str>,
}

impl HealthImpact {
    /// The impact in `/api/status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Degraded => "degraded",
            Self::SomeReadsFail => "some reads fail",
            Self::WritesRejected => "writes are rejected",
            Self::Unavailable => "unavailable",
        }
    }
}

impl HealthProblem {
    /// A problem of a part of the store.
    pub fn new(part: StorePart, impact: HealthImpact, reason: impl Into<Arc<str>>) -> Self {
        Self { part, impact, reason: reason.into() }
    }
}
