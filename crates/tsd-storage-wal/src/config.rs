//! Settings of the log and its memtables.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tsd_storage::{ByteBudget, ClockMs, DiskSpace, Table, system_clock_ms};

/// Settings of a store. Every bound has a counter or a gauge in the metrics.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// Directory of the log. It is created if missing and used by one process at a time.
    pub directory: PathBuf,
    /// Tables whose writes go through the log.
    pub logged: LoggedTables,
    /// Who else writes to the backend.
    pub backend: BackendSharing,
    /// Bound of all memtables together, in bytes.
    pub memtable_bytes: usize,
    /// Longest time between the commit of a row and its flush.
    pub max_age: Duration,
    /// Segment length in bytes at which the log begins another segment.
    pub segment_bytes: u64,
    /// Bound of the log in bytes, for a [`BackendSharing::MultiWriter`] backend: a write beyond it
    /// fails with [`StorageError::Throttled`](tsd_storage::StorageError::Throttled). `None`: the
    /// log is bounded by `memtable_bytes` alone.
    pub max_log_bytes: Option<u64>,
    /// How long the flushes of one table of a [`BackendSharing::MultiWriter`] backend fail, while
    /// those of others do not, until its rows are kept apart from the log of the others.
    pub stuck_after: Duration,
    /// Disk of the log; shared with the backend if that is on the same disk. Writes that would use
    /// its reserve fail with [`StorageError::DiskFull`](tsd_storage::StorageError::DiskFull);
    /// deletes may use it. `None`: only the system limits the log.
    pub space: Option<Arc<DiskSpace>>,
    /// Bound of the writes that wait for the committer; callers wait beyond that. Shared with those
    /// who queue points for this store.
    pub budget: ByteBudget,
    /// Longest cell that the backend stores, bytes with its key: a longer one is refused when it is written, not
    /// when its row is flushed. [`usize::MAX`]: any is stored.
    pub max_cell_bytes: usize,
    /// Bytes of records that are written and synced together.
    pub group_bytes: usize,
    /// Shortest time from one group to the next, unless that has half of its bytes: for a log whose cost is by
    /// the group. A group after a pause does not wait. Zero: groups do not wait.
    pub group_interval: Duration,
    /// Opens a damaged log without its unreadable records.
    pub accept_damage: bool,
    /// Source of commit times. A cell without a timestamp gets the time of its commit.
    pub clock: ClockMs,
}

/// Who writes to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendSharing {
    /// This process only, as with an embedded store. The log order decides between two writes of
    /// a column, and a write waits while log or memory are full.
    Exclusive,
    /// Other processes too, as with HBase. The commit time decides between two writes of a column,
    /// appends, increments and compare-and-sets are executed by the backend, and a write is
    /// rejected while log or memory are full.
    MultiWriter,
}

/// Tables whose writes go through the log; calls on other tables go to the backend directly.
///
/// A table with compare-and-sets by several processes (UIDs in a shared HBase) must not be logged:
/// only the backend can execute them atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedTables {
    /// All tables.
    All,
    /// These tables.
    Only(Vec<Table>),
}

impl LoggedTables {
    pub(crate) fn contains(&self, table: &Table) -> bool {
        match self {
            Self::All => true,
            Self::Only(tables) => tables.contains(table),
        }
    }

    /// True unless it is one table.
    pub(crate) const fn has_several(&self) -> bool {
        match self {
            Self::All => true,
            Self::Only(tables) => tables.len() > 1,
        }
    }

    pub(crate) fn extend(&mut self, more: Vec<Table>) {
        if let Self::Only(tables) = self {
            tables.extend(more);
        }
    }
}

impl WalConfig {
    /// Defaults: an exclusive backend, all tables logged, memtables of 128 MiB, a maximum age of
    /// ten minutes.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            logged: LoggedTables::All,
            backend: BackendSharing::Exclusive,
            memtable_bytes: 128 << 20,
            max_age: Duration::from_mins(10),
            segment_bytes: 64 << 20,
            max_log_bytes: None,
            stuck_after: Duration::from_mins(1),
            space: None,
            budget: ByteBudget::new(16 << 20),
            max_cell_bytes: usize::MAX,
            group_bytes: 4 << 20,
            group_interval: Duration::ZERO,
            accept_damage: false,
            clock: system_clock_ms,
        }
    }
}
