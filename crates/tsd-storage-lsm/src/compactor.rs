//! The thread that keeps the trees in shape.
//!
//! A step that fails is logged and tried again later; a step that would not have room is not begun.
//! Writers wait while a tree has too many runs at its top, so a slow disk slows the log instead of
//! readers without end.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use lsm_tree::{AbstractTree, compaction::Leveled};
use tsd_storage::StorageError;

use crate::table::TableStore;

/// Runs at the top of a tree that start a compaction.
const START_RUNS: u8 = 8;
/// Runs at the top of a tree at which writers wait.
const STALL_RUNS: usize = 32;
/// How long a writer waits for one run to go before it gives up.
const STALL_WAIT: Duration = Duration::from_secs(30);
/// Pause after a failed step.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// A step rewrites at most about this much.
const STEP_BYTES: u64 = 1 << 30;

/// How writers and the compactor tell each other.
#[derive(Debug, Default)]
pub(crate) struct CompactionSignal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    stopped: bool,
    steps: u64,
    /// Why the last step failed, until one succeeds.
    failed: Option<StorageError>,
}

impl CompactionSignal {
    // Nothing panics under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a tree has grown.
    pub(crate) fn request(&self) {
        self.lock().wanted = true;
        self.changed.notify_all();
    }

    /// Waits while the tree has too many runs at its top.
    pub(crate) fn wait_for_room(&self, table: &TableStore) -> Result<(), StorageError> {
        if table.tree.l0_run_count() < STALL_RUNS {
            return Ok(());
        }
        table.metrics.stalls.increment(1);
        let deadline = Instant::now() + STALL_WAIT;
        let mut state = self.lock();
        state.wanted = true;
        self.changed.notify_all();
        while table.tree.l0_run_count() >= STALL_RUNS {
            if state.stopped {
                return Err(StorageError::Closed);
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StorageError::Throttled("LSM compaction is behind"));
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
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

    /// Number of steps done.
    pub(crate) fn steps(&self) -> u64 {
        self.lock().steps
    }
}

/// Owner of the thread; dropping it stops the thread after its present step.
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
        let shared = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name("lsm-compactor".to_owned())
            .spawn(move || run(&tables, &shared))?;
        Ok(Self { signal, thread: Some(thread) })
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.signal.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the compactor died");
        }
    }
}

fn run(tables: &[Arc<TableStore>], signal: &CompactionSignal) {
    loop {
        let mut state = signal.lock();
        while !state.wanted && !state.stopped {
            state = signal.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped {
            return;
        }
        state.wanted = false;
        drop(state);
        for table in tables {
            while !signal.is_stopped() && step(table, signal) {}
        }
        let state = signal.lock();
        if state.failed.is_some() && !state.stopped {
            let (mut state, _) = signal
                .changed
                .wait_timeout_while(state, RETRY_PAUSE, |s| !s.stopped)
                .unwrap_or_else(PoisonError::into_inner);
            state.wanted = true;
        }
    }
}

/// Does what the tree needs most; says whether there may be more to do.
fn step(table: &TableStore, signal: &CompactionSignal) -> bool {
    let before = shape(table);
    let started = Instant::now();
    let done = table.space.check(table.tree.disk_space().min(STEP_BYTES)).and_then(|()| {
        // Whatever is visible is the newest: readers hold their version of the tree, not a number.
        let strategy = Arc::new(Leveled::default().with_l0_threshold(START_RUNS));
        table.tree.compact(strategy, table.seqno.get()).map_err(table.failed("compacting"))
    });
    let changed = done.is_ok() && shape(table) != before;
    let mut state = signal.lock();
    match done {
        Ok(()) => state.failed = None,
        Err(error) => {
            table.metrics.compaction_errors.increment(1);
            if state.failed.is_none() {
                tracing::warn!(table = %table.name, %error, "LSM compaction failed");
            }
            state.failed = Some(error);
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

/// Changes with every step that did something.
fn shape(table: &TableStore) -> u64 {
    table.tree.current_version().id()
}
