//! The merge thread of all stores of a process.
//!
//! A failed merge is retried after a growing pause, one without disk space after a constant pause. Reads in
//! progress get most of the processor. Flushes stall while a span has too many sections, so a slow disk slows
//! down the log rather than reads.

use std::{
    io,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_files::spawn_critical;
use tsd_storage::{HealthImpact, HealthProblem, StoreComponent, Table, error_chain};

use crate::{
    error::PartError,
    merge_signal::{MergeFailure, MergeSignal},
    store::PartStore,
};

/// Pause after the first failed merge of a store; doubled by each further one.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause. After a full disk, the pause stays at `RETRY_PAUSE`, since space can become free at any time.
const MAX_RETRY_PAUSE: Duration = Duration::from_mins(5);
/// Work of a merge between two checkpoints.
const WORK_SLICE: Duration = Duration::from_millis(5);
/// Longest time between two searches for merges. Spans close, rows become old, and quarantined files may become
/// readable without a signal.
const IDLE_PAUSE: Duration = Duration::from_mins(10);
/// Time between two rechecks of the quarantine.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
/// Number of series between two looks at the clock.
const CLOCK_SERIES: u32 = 16;

/// Owns the merge thread. Dropping it stops the thread, even in the middle of a merge.
#[derive(Debug)]
pub struct PartMerger {
    signal: Arc<MergeSignal>,
    thread: Option<JoinHandle<()>>,
}

impl PartMerger {
    /// Starts the thread for these stores. Each store may have one merger only.
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
        // The previous process may have stopped before a merge.
        signal.request();
        Ok(Self { signal, thread: Some(thread) })
    }

    /// Merges that are failing now.
    #[must_use]
    pub fn health(&self) -> Vec<HealthProblem> {
        let state = self.signal.lock();
        let problem = |(table, failure): (&Table, &MergeFailure)| {
            let reason = format!("merge of table {table}: {}", error_chain(&failure.error));
            HealthProblem::new(StoreComponent::Compaction, HealthImpact::Degraded, reason)
        };
        state.failures.iter().map(problem).collect()
    }
}

impl Drop for PartMerger {
    fn drop(&mut self) {
        self.signal.lock().stopped = true;
        self.signal.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread ends the process.
            let _ = thread.join();
        }
    }
}

fn run(stores: &[Arc<PartStore>], signal: &MergeSignal) {
    let mut rechecked: Option<Instant> = None;
    loop {
        let idle_since = Instant::now();
        let mut state = signal.lock();
        while !state.requested && !state.stopped {
            let retry_at = state.failures.values().map(|failure| failure.retry_at).min();
            let pause = retry_at.map(|at| at.saturating_duration_since(Instant::now()));
            match pause {
                Some(Duration::ZERO) => break,
                Some(pause) => signal.wait(&mut state, pause),
                None => signal.wait(&mut state, IDLE_PAUSE),
            }
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
        if rechecked.is_none_or(|at| at.elapsed() >= RECHECK_INTERVAL) {
            for store in stores {
                recheck(store, signal);
            }
            rechecked = Some(Instant::now());
        }
    }
}

/// Reads quarantined files again, at the pace of merges.
fn recheck(store: &PartStore, signal: &MergeSignal) {
    let mut slice = Instant::now();
    let result = store.recheck_quarantine(&mut || {
        let worked = slice.elapsed();
        if worked >= WORK_SLICE {
            signal.checkpoint(store.resources().readers(), worked)?;
            slice = Instant::now();
        }
        Ok(())
    });
    match result {
        Ok(_) | Err(PartError::Stopped) => {}
        Err(error) => {
            let error = error_chain(&error);
            tracing::warn!(table = %store.table(), error, "the quarantine could not be read again");
        }
    }
}

/// Runs the most urgent merge; returns true if there may be more merges.
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
            signal.checkpoint(store.resources().readers(), worked)?;
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
