//! What callers, the committer and the flusher have in common.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, oneshot, watch};
use tsd_storage::{StorageError, Table};

use crate::{
    WalConfig,
    files::LogDir,
    memtable::{Generation, Memtable, SpareBlocks, TableId},
    metrics::Metrics,
};

/// State of an open store.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: WalConfig,
    pub(crate) dir: Arc<dyn LogDir>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memtable: Memtable,
    pub(crate) spare: Arc<SpareBlocks>,
    pub(crate) tables: Tables,
    pub(crate) flushing: Flushing,
    pub(crate) queue_bytes: Arc<Semaphore>,
    pub(crate) queue_entries: Arc<Semaphore>,
    pub(crate) closed: AtomicBool,
    /// Segments that wait for a flush, and bytes of the open one.
    pub(crate) segments: AtomicU64,
    pub(crate) segment_bytes: AtomicU64,
    /// Bytes of the segments that wait for a flush.
    pub(crate) frozen_bytes: AtomicU64,
    /// The last commit time that was given.
    pub(crate) last_commit: AtomicI64,
    /// Whether the last round of flushes failed as a whole.
    pub(crate) away: AtomicBool,
    /// Pieces that the backend took.
    pub(crate) passed: AtomicU64,
    /// Rows that the backend refuses.
    pub(crate) refused_rows: AtomicU64,
    /// How the last flush failed, if it did.
    pub(crate) flush_failed: watch::Sender<Option<StorageError>>,
}

impl Shared {
    /// Whether the last flush failed for want of space.
    pub(crate) fn is_backend_full(&self) -> bool {
        matches!(*self.flush_failed.borrow(), Some(StorageError::DiskFull))
    }

    /// Whether the backend does not take rows now.
    pub(crate) fn is_backend_away(&self) -> bool {
        self.away.load(Ordering::Relaxed) || self.is_backend_full()
    }

    /// Age of the oldest change that is held.
    pub(crate) fn oldest_seconds(&self) -> f64 {
        let view = self.memtable.view();
        let first = view.generations.iter().filter_map(|g| g.first_commit_ms()).min();
        first.map_or(0.0, |first_ms| {
            (self.config.clock)().saturating_sub(first_ms).max(0) as f64 / 1_000.0
        })
    }

    /// Bytes of the log, as far as it is not in the backend yet.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.frozen_bytes.load(Ordering::Relaxed) + self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Notes how a flush ended.
    pub(crate) fn note_flush(&self, failed: Option<StorageError>) {
        if failed.is_some() || self.flush_failed.borrow().is_some() {
            self.flush_failed.send_replace(failed);
            self.flushing.wake();
        }
    }

    pub(crate) fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }
}

/// Held tables that were met, numbered as they came.
#[derive(Debug, Default)]
pub(crate) struct Tables(RwLock<Vec<Table>>);

impl Tables {
    pub(crate) fn id(&self, table: &Table) -> Option<TableId> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.iter().position(|t| t == table).map(TableId)
    }

    /// Numbers a table that exists.
    pub(crate) fn add(&self, table: &Table) -> TableId {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let at = tables.iter().position(|t| t == table).unwrap_or_else(|| {
            tables.push(table.clone());
            tables.len() - 1
        });
        TableId(at)
    }

    pub(crate) fn all(&self) -> Vec<Table> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A generation on its way to the backend, with the segments that hold it.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) generation: Arc<Generation>,
    pub(crate) segments: Vec<FrozenSegment>,
    /// Bytes of the segments.
    pub(crate) bytes: u64,
    /// The rows leave evenly over this time; else at once.
    pub(crate) leave_within: Option<Duration>,
}

/// A segment that goes when its generation is flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrozenSegment {
    pub(crate) segment: u64,
    /// Put aside rather than removed: its damage was accepted, its bytes may still be of use.
    pub(crate) damaged: bool,
}

/// Queue between the committer, who freezes, and the flusher.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    state: Mutex<FlushState>,
    changed: Condvar,
    /// Says to calls of the backend that they need not end.
    stopped: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct FlushState {
    frozen: VecDeque<Frozen>,
    waiters: Vec<(u64, oneshot::Sender<()>)>,
    stopping: bool,
    /// Somebody began to wait for a flush.
    hurry: bool,
}

impl FlushState {
    fn is_waited_for(&mut self) -> bool {
        self.waiters.retain(|(_, waiter)| !waiter.is_closed());
        !self.waiters.is_empty()
    }
}

impl Flushing {
    fn lock(&self) -> MutexGuard<'_, FlushState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over a generation.
    pub(crate) fn push(&self, frozen: Frozen) {
        self.lock().frozen.push_back(frozen);
        self.changed.notify_all();
    }

    /// Waits for the oldest generation; `None` once stopped.
    pub(crate) fn next(&self) -> Option<Frozen> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(frozen) = state.frozen.front() {
                return Some(frozen.clone());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for generations behind the first `known`, for `how_long` at most, or until somebody waits
    /// for a flush. `None` once stopped.
    pub(crate) fn next_after(&self, known: usize, how_long: Duration) -> Option<Vec<Frozen>> {
        let nothing_new = |state: &mut FlushState| {
            !state.stopping && state.frozen.len() <= known && !std::mem::take(&mut state.hurry)
        };
        let state = self.lock();
        let state = if how_long == Duration::MAX {
            self.changed.wait_while(state, nothing_new).unwrap_or_else(PoisonError::into_inner)
        } else {
            let waited = self.changed.wait_timeout_while(state, how_long, nothing_new);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        (!state.stopping).then(|| state.frozen.iter().skip(known).cloned().collect())
    }

    /// Sleeps, unless generations pile up or somebody waits for a flush. Returns whether it was
    /// stopped.
    pub(crate) fn rest_until(&self, due: Instant) -> bool {
        let how_long = due.saturating_duration_since(Instant::now());
        let may_rest = |state: &mut FlushState| {
            !state.stopping && !state.is_waited_for() && state.frozen.len() < 2
        };
        let waited = self.changed.wait_timeout_while(self.lock(), how_long, may_rest);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    /// Whether somebody waits for a flush.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.lock().is_waited_for()
    }

    /// Completes when it is stopped.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stopped = self.stopped.subscribe();
        async move {
            // An error means that nobody is left to stop it, nor to wait.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }
    }

    /// The oldest generation is flushed.
    pub(crate) fn done(&self, generation: u64) {
        let mut state = self.lock();
        state.frozen.pop_front();
        let waiters = std::mem::take(&mut state.waiters);
        for (until, waiter) in waiters {
            if until <= generation {
                let _ = waiter.send(());
            } else {
                state.waiters.push((until, waiter));
            }
        }
        self.changed.notify_all();
    }

    /// Answers when all that is frozen now is flushed.
    pub(crate) fn wait_for_all(&self, waiter: oneshot::Sender<()>) {
        let mut state = self.lock();
        match state.frozen.back().map(|frozen| frozen.generation.id()) {
            Some(last) => {
                state.waiters.push((last, waiter));
                state.hurry = true;
                self.changed.notify_all();
            }
            None => {
                let _ = waiter.send(());
            }
        }
    }

    /// Waits until something changed or time has passed, unless `ready` says there is no need.
    /// Returns whether it was stopped.
    pub(crate) fn wait_until(&self, ready: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        while !state.stopping && !ready() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.stopping
    }

    /// As [`Self::wait_until`], for `how_long` at most.
    pub(crate) fn wait_until_for(&self, how_long: Duration, ready: impl Fn() -> bool) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), how_long, |state| !state.stopping && !ready());
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    /// Sleeps; returns whether it was stopped.
    pub(crate) fn pause(&self, how_long: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, how_long, |state| !state.stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    /// Has those who wait look again.
    pub(crate) fn wake(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        // Nobody will answer them.
        state.waiters.clear();
        drop(state);
        self.stopped.send_replace(true);
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }
}
