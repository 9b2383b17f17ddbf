//! The background thread of LSM compaction.
//!
//! A failed step is logged and retried later; a step without enough disk space is not started.
//! Writers stall while a tree has too many L0 runs: a slow disk slows down the log rather than
//! reads.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use lsm_tree::{AbstractTree, compaction::Leveled};
use tsd_storage::{StorageError, spawn_critical};

use crate::table::TableStore;

/// L0 runs that trigger a compaction.
const L0_COMPACTION_RUNS: u8 = 8;
/// L0 runs at which writers stall.
const L0_STALL_RUNS: usize = 32;
/// Maximum duration of a stall; then the write fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed step.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Approximate maximum of the bytes that one step rewrites.
const STEP_BYTES: u64 = 1 << 30;

/// Synchronizes writers with the compactor.
#[derive(Debug, Default)]
pub(crate) struct CompactionSignal {
    state: Mutex<CompactionState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CompactionState {
    requested: bool,
    stopped: bool,
    steps: u64,
    /// Error of the last step, until one succeeds.
    last_error: Option<StorageError>,
}

impl CompactionSignal {
    // No code panics while it owns the lock.
    fn lock(&self) -> MutexGuard<'_, CompactionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a compaction after a write.
    pub(crate) fn request(&self) {
        self.lock().requested = true;
        self.changed.notify_all();
    }

    /// Stalls the writer while the tree has too many L0 runs.
    pub(crate) fn stall_on_l0(&self, table: &TableStore) -> Result<(), StorageError> {
        if table.tree.l0_run_count() < L0_STALL_RUNS {
            return Ok(());
        }
        table.metrics.stalls.increment(1);
        let deadline = Instant::now() + STALL_TIMEOUT;
        let mut state = self.lock();
        state.requested = true;
        self.changed.notify_all();
        while table.tree.l0_run_count() >= L0_STALL_RUNS {
            if state.stopped {
                return Err(StorageError::Closed);
            }
            if let Some(error) = &state.last_error {
                return Err(error.clone());
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(StorageError::Throttled("LSM compaction is behind"));
            }
            state = self
                .changed
                .wait_timeout(state, remaining)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Ok(())
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Number of completed steps.
    pub(crate) fn steps(&self) -> u64 {
        self.lock().steps
    }
}

/// Owner of the thread; dropping it stops the thread after the current step.
#[derive(Debug)]
pub(crate) struct Compactor {
    signal: Arc<CompactionSignal>,
    thread: Option<JoinHandle<()>>,
}

impl Compactor {
    pub(crate) fn start(
        tables: Vec<Arc<TableStore>>,
        signal: Arc<CompactionSignal>,
    ) -> std::io::Result<Self> {
        let thread_signal = Arc::clone(&signal);
        let thread = spawn_critical("lsm-compactor", move || run(&tables, &thread_signal))?;
        Ok(Self { signal, thread: Some(thread) })
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.signal.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic ends the process.
            let _ = thread.join();
        }
    }
}

fn run(tables: &[Arc<TableStore>], signal: &CompactionSignal) {
    loop {
        let mut state = signal.lock();
        while !state.requested && !state.stopped {
            state = signal.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped {
            return;
        }
        state.requested = false;
        drop(state);
        for table in tables {
            while !signal.is_stopped() && step(table, signal) {}
        }
        let state = signal.lock();
        if state.last_error.is_some() && !state.stopped {
            let (mut state, _) = signal
                .changed
                .wait_timeout_while(state, RETRY_PAUSE, |s| !s.stopped)
                .unwrap_or_else(PoisonError::into_inner);
            state.requested = true;
        }
    }
}

/// Runs the most urgent compaction of the tree; returns true if there may be another one.
fn step(table: &TableStore, signal: &CompactionSignal) -> bool {
    let before = version_id(table);
    let started = Instant::now();
    let result = table.space.check(table.tree.disk_space().min(STEP_BYTES)).and_then(|()| {
        // Readers own a version of the tree, not a sequence number: only the newest cells are
        // needed.
        let strategy = Arc::new(Leveled::default().with_l0_threshold(L0_COMPACTION_RUNS));
        table.tree.compact(strategy, table.seqno.get()).map_err(table.failed("compacting"))
    });
    let changed = result.is_ok() && version_id(table) != before;
    let mut state = signal.lock();
    match result {
        Ok(()) => state.last_error = None,
        Err(error) => {
            table.metrics.compaction_errors.increment(1);
            if state.last_error.is_none() {
                tracing::warn!(table = %table.name, %error, "LSM compaction failed");
            }
            state.last_error = Some(error);
        }
    }
    if changed {
        state.steps += 1;
        table.metrics.compaction_seconds.record(started.elapsed());
    }
    drop(state);
    signal.changed.notify_all();
    changed
}

/// Changes with every effective step.
fn version_id(table: &TableStore) -> u64 {
    table.tree.current_version().id()
}
