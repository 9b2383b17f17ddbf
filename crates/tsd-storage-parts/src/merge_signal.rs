//! How flushes, merges and the thread that merges wait for each other. The thread itself is in `merger.rs`.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tsd_storage::Table;

use crate::{error::PartError, metrics::PartMetrics};

/// Sections of one span at which flushes stall.
const STALL_SECTIONS: usize = 64;

/// Longest stall; then the flush fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Called by a merge between two series; an error ends it.
pub(crate) type MergeCheckpoint<'a> = &'a mut dyn FnMut() -> Result<(), PartError>;

/// Synchronizes flushes with the thread.
#[derive(Debug, Default)]
pub(crate) struct MergeSignal {
    pub(crate) state: Mutex<SignalState>,
    pub(crate) changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct SignalState {
    pub(crate) requested: bool,
    pub(crate) stopped: bool,
    /// Flushes that wait.
    pub(crate) stalled: usize,
    /// Tables whose last merge failed.
    pub(crate) failures: BTreeMap<Table, MergeFailure>,
}

#[derive(Clone, Debug)]
pub(crate) struct MergeFailure {
    pub(crate) error: PartError,
    pub(crate) pause: Duration,
    pub(crate) retry_at: Instant,
}

impl MergeSignal {
    // No code panics while it owns the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait<'a>(
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

    /// Stalls a flush of a table while a span of it has too many sections.
    pub(crate) fn stall(
        &self,
        table: &Table,
        metrics: &PartMetrics,
        max_sections: impl Fn() -> usize,
    ) -> Result<(), PartError> {
        if max_sections() < STALL_SECTIONS {
            return Ok(());
        }
        metrics.stalls.increment(1);
        let deadline = Instant::now() + STALL_TIMEOUT;
        let mut state = self.lock();
        state.requested = true;
        state.stalled += 1;
        self.changed.notify_all();
        let result = loop {
            // Without the thread nothing is to wait for.
            if state.stopped || max_sections() < STALL_SECTIONS {
                break Ok(());
            }
            if let Some(failure) = state.failures.get(table) {
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

    /// False while the merges of a table pause after a failure.
    pub(crate) fn is_due(&self, table: &Table) -> bool {
        let state = self.lock();
        !state.stopped && state.failures.get(table).is_none_or(|f| f.retry_at <= Instant::now())
    }

    /// Ends a merge when the thread is to stop; pauses it while reads are in progress.
    pub(crate) fn checkpoint(
        &self,
        readers: usize,
        metrics: &PartMetrics,
        worked: Duration,
    ) -> Result<(), PartError> {
        let state = self.lock();
        if state.stopped {
            return Err(PartError::Stopped);
        }
        let pause = pause_after(worked, readers, state.stalled);
        if !pause.is_zero() {
            metrics.merge_pause_seconds.record(pause);
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
