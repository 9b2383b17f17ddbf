//! Settings of the log and its memtables.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tsd_files::DiskSpace;
use tsd_storage::{ByteBudget, ClockMs, Table, system_clock_ms};

/// Settings of a store. Every limit has a counter or a gauge in the metrics.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// Directory of the log. It is created if missing. Only one process may use it.
    pub directory: PathBuf,
    /// Tables whose writes go through the log.
    pub logged: LoggedTables,
    /// Whether other processes write to the backend.
    pub backend: BackendSharing,
    /// Limit on the bytes of all memtables together.
    pub memtable_bytes: usize,
    /// Longest time between the commit of a row and its flush.
    pub max_age: Duration,
    /// Segment length in bytes at which the log begins another segment.
    pub segment_bytes: u64,
    /// Limit on the log in bytes, for a [`BackendSharing::MultiWriter`] backend. A write beyond it fails with
    /// [`StorageError::Throttled`](tsd_storage::StorageError::Throttled). `None`: only `memtable_bytes` limits
    /// the log.
    pub max_log_bytes: Option<u64>,
    /// For a [`BackendSharing::MultiWriter`] backend: how long the flushes of one table may fail while other
    /// tables succeed. After that, the rows of the table are stored separately from the log.
    pub stuck_after: Duration,
    /// Disk of the log, shared with the backend if that uses the same disk. A write that would use its reserve
    /// fails with [`StorageError::DiskFull`](tsd_storage::StorageError::DiskFull); deletes may use the reserve.
    /// `None`: only the system limits the log.
    pub space: Option<Arc<DiskSpace>>,
    /// Limit on the bytes of writes that wait for the committer. Beyond it, callers wait. Callers that queue
    /// points for this store share the budget.
    pub budget: ByteBudget,
    /// Longest cell that the backend stores, in bytes with its key. A longer cell is rejected at the write rather
    /// than at the flush of its row. [`usize::MAX`] means no limit.
    pub max_cell_bytes: usize,
    /// Bytes of records that are written and synced in one group.
    pub group_bytes: usize,
    /// Minimum time from one group to the next, unless half of the bytes of a group are there. It is for a log
    /// whose cost is per group. A group after a pause does not wait. Zero disables the wait.
    pub group_interval: Duration,
    /// Opens a damaged log and skips its unreadable records.
    pub accept_damage: bool,
    /// Source of commit times. A cell without a timestamp gets its commit time.
    pub clock: ClockMs,
}

/// Who writes to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendSharing {
    /// Only this process, as with an embedded store. The log order decides between two writes of a column. Writes
    /// wait while log or memory is full.
    Exclusive,
    /// Other processes, too, as with HBase. The commit time decides between two writes of a column. The backend
    /// executes appends, increments and compare-and-sets. Writes are rejected while log or memory is full.
    MultiWriter,
}

/// Tables whose writes go through the log. Calls on other tables go to the backend directly.
///
/// A table on which several processes execute compare-and-sets (UIDs in a shared HBase) must not be logged,
/// because only the backend can execute them atomically.
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

    /// True unless exactly one table is logged.
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
    /// Default settings: an exclusive backend, all tables logged, memtables of 128 MiB, a maximum age of ten
    /// minutes.
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
