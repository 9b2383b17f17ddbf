//! The thread that merges, for all stores of a process.
//!
//! A merge that failed is tried again after a pause that grows; one without disk space waits for some.
//! While reads are in progress the thread leaves them most of the processor. Flushes stall while a span
//! has too many sections: a slow disk slows down the log rather than reads.

use std::{
    io,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_storage::{HealthImpact, HealthProblem, StorePart, Table, error_chain, spawn_critical};

use crate::{
    error::PartError,
    merge_signal::{MergeFailure, MergeSignal},
    store::PartStore,
};

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
            while signal.is_due(store.table()) && step(store, signal) {}
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
            signal.checkpoint(store.resources().readers(), store.metrics(), worked)?;
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
