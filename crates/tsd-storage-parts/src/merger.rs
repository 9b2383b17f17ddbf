//! The thread that merges, for all stores of a process.
//!
//! A merge that failed is tried again after a pause that grows; one without disk space waits for some.
//! While reads are in progress the thread leaves them most of the processor. Flushes stall while a span
//! has too many sections: a slow disk slows down the log rather than reads.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_storage::{HealthImpact, HealthProblem, StorePart, Table, error_chain, spawn_critical};

use crate::{error::PartError, store::PartStore};

/// Sections of one span at which flushes stall.
const STALL_SECTIONS: usize = 64;
/// Longest stall; then the flush fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after the first failed merge of a store; doubled by each further one.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause, except for lack of disk space, which ends at any time.
const MAX_RETRY_PAUSE: Duration = Duration::from_mins(5);
/// Work of a merge between two looks at what else goes on.
const WORK_SLICE: Duration = Duration::from_millis(5);
/// Longest time without a look for merges: spans close, and rows become old.
const IDLE_PAUSE: Duration = Duration::from_mins(10);
/// Series between two looks at the clock.
const CLOCK_SERIES: u32 = 16;

/// Called by a merge between two series; an error ends it.
pub(crate) type MergeCheckpoint<'a> = &'a mut dyn FnMut() -> Result<(), PartError>;

/// Synchronizes flushes with the thread.
#[derive(Debug, Default)]
pub(crate) struct MergeSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    requested: bool,
    stopped: bool,
    /// Flushes that wait.
    stalled: usize,
    /// Tables whose last merge failed.
    failures: BTreeMap<Table, MergeFailure>,
}

#[derive(Clone, Debug)]
struct MergeFailure {
    error: PartError,
    pause: Duration,
    retry_at: Instant,
}

/// Owner of the thread; dropping it stops the thread, in the middle of a merge.
#[derive(Debug)]
pub struct PartMerger {
    signal: Arc<MergeSignal>,
    thread: Option<JoinHandle<()>>,
}

impl PartMerger {
    /// Starts the thread for these stores, each in one merger only.
    ///
    /// # Errors
    ///
    /// The system's error if no thread can be started.
    pub fn start(stores: Vec<Arc<PartStore>>) -> io::Result<Self> {
        let signal = Arc::new(MergeSignal::default());
        for store in &stores {
            store.attach(&signal);
        }
        let thread_signal = Arc::clone(&signal);
        let thread = spawn_critical("part-merger", move || run(&stores, &thread_signal))?;
        // The process before this one may have stopped before a merge.
        signal.request();
        Ok(Self { signal, thread: Some(thread) })
    }

    /// The merges that fail for now.
    #[must_use]
    pub fn health(&self) -> Vec<HealthProblem> {
        let state = self.signal.lock();
        let problem = |(table, failure): (&Table, &MergeFailure)| {
            let reason = format!("merge of table {table}: {}", error_chain(&failure.error));
            HealthProblem::new(StorePart::Compaction, HealthImpact::Degraded, reason)
        };
        state.failures.iter().map(problem).collect()
    }
}

impl Drop for PartMerger {
    fn drop(&mut self) {
        self.signal.lock().stopped = true;
        self.signal.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic ends the process.
            let _ = thread.join();
        }
    }
}

impl MergeSignal {
    // No code panics while it owns the lock.
    fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, SignalState>,
        pause: Duration,
    ) -> MutexGuard<'a, SignalState> {
        self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Requests merges after a flush.
    pub(crate) fn request(&self) {
        self.lock().requested = true;
        self.changed.notify_all();
    }

    /// Stalls a flush while a span of the store has too many sections.
    pub(crate) fn stall(&self, store: &PartStore) -> Result<(), PartError> {
        if store.max_sections() < STALL_SECTIONS {
            return Ok(());
        }
        store.metrics().stalls.increment(1);
        let deadline = Instant::now() + STALL_TIMEOUT;
        let mut state = self.lock();
        state.requested = true;
        state.stalled += 1;
        self.changed.notify_all();
        let result = loop {
            // Without the thread nothing is to wait for.
            if state.stopped || store.max_sections() < STALL_SECTIONS {
                break Ok(());
            }
            if let Some(failure) = state.failures.get(store.table()) {
                break Err(failure.error.clone());
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break Err(PartError::Behind);
            }
            state = self.wait(state, remaining);
        };
        state.stalled -= 1;
        result
    }

    /// False while the store pauses after a failure.
    fn is_due(&self, store: &PartStore) -> bool {
        let state = self.lock();
        !state.stopped
            && state.failures.get(store.table()).is_none_or(|f| f.retry_at <= Instant::now())
    }

    /// Ends a merge when the thread is to stop; pauses it while reads are in progress.
    fn checkpoint(&self, store: &PartStore, worked: Duration) -> Result<(), PartError> {
        let state = self.lock();
        if state.stopped {
            return Err(PartError::Stopped);
        }
        let pause = pause_after(worked, store.resources().readers(), state.stalled);
        if !pause.is_zero() {
            store.metrics().merge_pause_seconds.record(pause);
            let deadline = Instant::now() + pause;
            let mut state = state;
            while !state.stopped && state.stalled == 0 {
                let remaining = deadline.saturating_duration_since(Instant::now());
                if remaining.is_zero() {
                    break;
                }
                state = self.wait(state, remaining);
            }
        }
        Ok(())
    }
}

/// How long a merge pauses after some work: with reads in progress it has a quarter of a core, and none
/// of the pauses while a flush waits for it.
fn pause_after(worked: Duration, readers: usize, stalled: usize) -> Duration {
    if readers == 0 || stalled > 0 { Duration::ZERO } else { worked * 3 }
}

fn run(stores: &[Arc<PartStore>], signal: &MergeSignal) {
    loop {
        let idle_since = Instant::now();
        let mut state = signal.lock();
        while !state.requested && !state.stopped {
            let retry_at = state.failures.values().map(|failure| failure.retry_at).min();
            let pause = retry_at.map(|at| at.saturating_duration_since(Instant::now()));
            state = match pause {
                Some(Duration::ZERO) => break,
                Some(pause) => signal.wait(state, pause),
                None => signal.wait(state, IDLE_PAUSE),
            };
            if idle_since.elapsed() >= IDLE_PAUSE {
                break;
            }
        }
        if state.stopped {
            return;
        }
        state.requested = false;
        drop(state);
        for store in stores {
            while signal.is_due(store) && step(store, signal) {}
        }
    }
}

/// Runs the most urgent merge; returns true if there may be more to do.
fn step(store: &PartStore, signal: &MergeSignal) -> bool {
    let started = Instant::now();
    let mut slice = Instant::now();
    let mut series = 0_u32;
    let merges = store.stats().merges;
    let result = store.merge_step(&mut || {
        series = series.wrapping_add(1);
        if !series.is_multiple_of(CLOCK_SERIES) {
            return Ok(());
        }
        let worked = slice.elapsed();
        if worked >= WORK_SLICE {
            signal.checkpoint(store, worked)?;
            slice = Instant::now();
        }
        Ok(())
    });
    let mut state = signal.lock();
    let more = match result {
        Ok(merged) => {
            state.failures.remove(store.table());
            if store.stats().merges > merges {
                store.metrics().merge_seconds.record(started.elapsed());
            }
            merged
        }
        Err(PartError::Stopped) => false,
        Err(error) => {
            store.metrics().merge_errors.increment(1);
            let last = state.failures.get(store.table()).map(|failure| failure.pause);
            if last.is_none() {
                tracing::warn!(table = %store.table(), error = %error_chain(&error), "merge failed");
            }
            let pause = match (&error, last) {
                (PartError::DiskFull, _) | (_, None) => RETRY_PAUSE,
                (_, Some(last)) => (last * 2).min(MAX_RETRY_PAUSE),
            };
            let retry_at = Instant::now() + pause;
            state.failures.insert(store.table().clone(), MergeFailure { error, pause, retry_at });
            false
        }
    };
    drop(state);
    signal.changed.notify_all();
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_yield_to_reads_but_not_while_a_flush_waits() {
        let worked = Duration::from_millis(5);
        assert_eq!(pause_after(worked, 0, 0), Duration::ZERO);
        assert_eq!(pause_after(worked, 1, 0), Duration::from_millis(15));
        assert_eq!(pause_after(worked, 4, 1), Duration::ZERO);
    }
}
