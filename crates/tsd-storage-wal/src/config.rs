//! Settings of the layer.

use std::{path::PathBuf, time::Duration};

use tsd_storage::{ClockMs, Table, system_clock_ms};

/// How a store is opened. Every bound has a counter or a gauge beside it.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// Directory of the log; made where it is missing, owned by one process.
    pub directory: PathBuf,
    /// Which tables are held.
    pub held: LoggedTables,
    /// Memory for held rows, over all generations. A quarter of it is one generation.
    pub memtable_bytes: usize,
    /// How long a row is held at most before it leaves. Over a shared backend rows begin to leave at
    /// three quarters of it and go on evenly.
    pub max_age: Duration,
    /// Log bytes after which a generation is frozen, however little memory it takes. The log takes
    /// no more than 18 times as much while the backend lags; then callers wait.
    pub segment_bytes: u64,
    /// Bytes of the log that are kept at most. A write beyond that fails with
    /// [`StorageError::Throttled`](tsd_storage::StorageError::Throttled) at once, instead of waiting
    /// for the backend. `None` sets no bound but that of `segment_bytes`.
    pub max_log_bytes: Option<u64>,
    /// Whether others write to the backend too, as in HBase. Then appends, increments,
    /// compare-and-sets and row compactions go to the backend itself, unless their column is held
    /// here, and a write that finds no room fails instead of waiting.
    pub shared_backend: bool,
    /// Bytes that may wait for the committer; callers wait beyond that.
    pub queue_bytes: usize,
    /// Calls that may wait for the committer; callers wait beyond that.
    pub queue_entries: usize,
    /// Bytes that are committed at once.
    pub group_bytes: usize,
    /// Whether to open a damaged log all the same, without what cannot be read.
    pub accept_damage: bool,
    /// Where commit times come from: they are the timestamps of cells that have none.
    pub clock: ClockMs,
}

/// Which tables the layer holds; calls to the others go straight to the backend.
///
/// A table that other processes write too (UIDs in a shared HBase) must not be held: a
/// compare-and-set on it has to be the backend's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedTables {
    /// All of them.
    All,
    /// These.
    Only(Vec<Table>),
}

impl LoggedTables {
    pub(crate) fn contains(&self, table: &Table) -> bool {
        match self {
            Self::All => true,
            Self::Only(tables) => tables.contains(table),
        }
    }

    /// Holds these tables too.
    pub(crate) fn extend(&mut self, more: Vec<Table>) {
        if let Self::Only(tables) = self {
            tables.extend(more);
        }
    }
}

impl WalConfig {
    /// Defaults: all tables held, in 128 MiB, for ten minutes at most.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            held: LoggedTables::All,
            memtable_bytes: 128 << 20,
            max_age: Duration::from_mins(10),
            segment_bytes: 64 << 20,
            max_log_bytes: None,
            shared_backend: false,
            queue_bytes: 16 << 20,
            queue_entries: 4096,
            group_bytes: 4 << 20,
            accept_damage: false,
            clock: system_clock_ms,
        }
    }

    /// Size at which a generation is frozen.
    pub(crate) const fn generation_bytes(&self) -> usize {
        // Over a shared backend rows are held for as long as they may be, so that they leave in few
        // pieces: one generation fills while the one before leaves.
        self.memtable_bytes / if self.shared_backend { 2 } else { GENERATIONS }
    }

    /// Age at which a generation is frozen.
    pub(crate) fn generation_age(&self) -> Duration {
        if self.shared_backend { self.max_age * 3 / 4 } else { self.max_age }
    }

    /// Time over which the rows of an old generation leave. Together with their age it stays a
    /// little below what is allowed.
    pub(crate) fn leave_within(&self) -> Option<Duration> {
        self.shared_backend.then(|| self.max_age / 5)
    }
}

/// A generation is frozen at this part of the memory.
const GENERATIONS: usize = 4;
/// Generations that wait for the flusher at most, unless a flush is asked for.
pub(crate) const MAX_FROZEN: usize = 16;
