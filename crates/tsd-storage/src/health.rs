//! Problems that a store has now, for status pages, readiness checks and alerts.
//!
//! A store reports problems that it has met in its own work; no call reads data to find problems.

use std::{fmt, sync::Arc};

/// The component of a store that has a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreComponent {
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

impl StoreComponent {
    /// Every component.
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

impl fmt::Display for StoreComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Impact of a problem; the greatest impact of all problems is the state of the store.
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
    /// Component of the store with the problem.
    pub component: StoreComponent,
    /// Impact of the problem.
    pub impact: HealthImpact,
    /// The problem, with its file, table or server and the operating system's error.
    pub reason: Arc<str>,
    /// Other daemons on the same data have the problem too, so a load balancer has nowhere better to send clients.
    pub is_common: bool,
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
    /// A problem of a component of the store, which other daemons need not have.
    pub fn new(
        component: StoreComponent,
        impact: HealthImpact,
        reason: impl Into<Arc<str>>,
    ) -> Self {
        Self { component, impact, reason: reason.into(), is_common: false }
    }

    /// The problem, marked as one that other daemons on the same data have too if `is_common` is true.
    #[must_use]
    pub fn common_if(self, is_common: bool) -> Self {
        Self { is_common, ..self }
    }
}
