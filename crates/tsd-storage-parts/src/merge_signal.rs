//! Synchronizes flushes, merges and the merge thread, which is in `merger.rs`.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tsd_storage::Table;

use crate::{error::PartError, metrics::PartMetrics};

/// Number of sections in one span at which flushes stall.
const STALL_SECTIONS: usize = 64;

/// Longest stall. After it, the flush fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Called by a merge between two series. An error stops the merge.
pub(crate) type MergeCheckpoint<'a> = &'a mut dyn FnMut() -> Result<(), PartError>;

/// State that flushes and the merge thread share.
#[derive(Debug, Default)]
pub(crate) struct MergeSignal {
    pub(crate) state: Mutex<SignalState>,
    pub(crate) changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct SignalState {
    pub(crate) requested: bool,
    pub(crate) stopped: bool,
    /// Number of flushes that wait.
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock()
    }

    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, SignalState>, pause: Duration) {
        self.changed.wait_for(state, pause);
    }

    /// Requests merges after a flush.
    pub(crate) fn request(&self) {
        self.lock().requested = true;
        self.changed.notify_all();
    }

    /// Stalls a flush while a span of the table has too many sections. Fails if merges of the table fail, or
    /// after 30 seconds.
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
            // Without the merge thread, waiting is useless.
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
            self.wait(&mut state, remaining);
        };
        state.stalled -= 1;
        result
    }

    /// False while merges of a table pause after a failure.
    pub(crate) fn is_due(&self, table: &Table) -> bool {
        let state = self.lock();
        !state.stopped && state.failures.get(table).is_none_or(|f| f.retry_at <= Instant::now())
    }

    /// Stops a merge when the thread must stop; pauses it while reads are in progress.
    pub(crate) fn checkpoint(&self, readers: usize, worked: Duration) -> Result<(), PartError> {
        let state = self.lock();
        if state.stopped {
            return Err(PartError::Stopped);
        }
        let pause = pause_after(worked, readers, state.stalled);
        if !pause.is_zero() {
            let deadline = Instant::now() + pause;
            let mut state = state;
            while !state.stopped && state.stalled == 0 {
                let remaining = deadline.saturating_duration_since(Instant::now());
                if remaining.is_zero() {
                    break;
                }
                self.wait(&mut state, remaining);
            }
        }
        Ok(())
    }
}

/// Pause of a merge after some work. While reads are in progress, a merge gets a quarter of a core. While a flush
/// waits for it, it does not pause.
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
