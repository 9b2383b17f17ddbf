//! Signals between writers and the compactor.
//!
//! Writers stall while a tree has too many L0 runs, so that a slow disk slows down the log and not
//! the reads.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use metrics::Counter;
use tsd_storage::{StorageError, Table};

/// L0 runs at which writers stall.
const L0_STALL_RUNS: usize = 32;
/// Maximum duration of a stall; then the write fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Synchronizes writers with the compactor.
#[derive(Debug, Default)]
pub(crate) struct CompactionSignal {
    state: Mutex<CompactionState>,
    pub(crate) changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct CompactionState {
    pub(crate) requested: bool,
    pub(crate) stopped: bool,
    pub(crate) steps: u64,
    /// Tables whose last step or repair failed.
    pub(crate) failures: BTreeMap<Table, StepFailure>,
}

#[derive(Clone, Debug)]
pub(crate) struct StepFailure {
    pub(crate) error: StorageError,
    pub(crate) pause: Duration,
    pub(crate) retry_at: Instant,
}

impl CompactionSignal {
    // No code panics while it owns the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, CompactionState> {
        self.state.lock()
    }

    /// Requests a compaction after a write.
    pub(crate) fn request(&self) {
        self.lock().requested = true;
        self.changed.notify_all();
    }

    /// Stalls the writer while the tree of a table has too many L0 runs.
    pub(crate) fn stall_on_l0(
        &self,
        table: &Table,
        l0_runs: impl Fn() -> usize,
        stalls: &Counter,
    ) -> Result<(), StorageError> {
        if l0_runs() < L0_STALL_RUNS {
            return Ok(());
        }
        stalls.increment(1);
        let deadline = Instant::now() + STALL_TIMEOUT;
        let mut state = self.lock();
        state.requested = true;
        self.changed.notify_all();
        while l0_runs() >= L0_STALL_RUNS {
            if state.stopped {
                return Err(StorageError::Closed);
            }
            if let Some(failure) = state.failures.get(table) {
                return Err(failure.error.clone());
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(StorageError::Throttled("LSM compaction is behind"));
            }
            self.changed.wait_for(&mut state, remaining);
        }
        Ok(())
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Errors of the tables whose last step failed.
    pub(crate) fn failures(&self) -> Vec<(Table, StorageError)> {
        let state = self.lock();
        state.failures.iter().map(|(table, f)| (table.clone(), f.error.clone())).collect()
    }

    /// Number of completed steps.
    pub(crate) fn steps(&self) -> u64 {
        self.lock().steps
    }
}
