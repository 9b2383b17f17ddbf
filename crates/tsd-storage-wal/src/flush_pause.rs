//! Pauses the flushes of memtables, so that the backend has the rows of all tables up to the same commit.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

use tsd_storage::StorageError;

/// Coordinates the flusher with callers that pause it.
#[derive(Debug, Default)]
pub(crate) struct FlushPause {
    inner: Mutex<PauseState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PauseState {
    /// Number of callers that pause flushes, or wait to pause them.
    pausing: usize,
    is_flushing: bool,
    /// True if only some tables of a memtable are in the backend, because flushes of others failed.
    is_partial: bool,
}

/// A round of flushes. Dropping it ends the round.
#[derive(Debug)]
pub(crate) struct FlushRound<'a>(&'a FlushPause);

/// Keeps flushes paused until it is dropped.
#[derive(Debug)]
pub(crate) struct PausedFlushes<'a> {
    pause: &'a FlushPause,
    since: Instant,
}

impl FlushPause {
    /// Begins a round of flushes once they are not paused.
    pub(crate) fn begin_round(&self) -> FlushRound<'_> {
        let mut state = self.inner.lock();
        self.changed.wait_while(&mut state, |state| state.pausing > 0);
        state.is_flushing = true;
        FlushRound(self)
    }

    /// Waits for the end of the present round, then pauses flushes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Unavailable`] if only some tables of a memtable are in the backend.
    pub(crate) fn pause(&self) -> Result<PausedFlushes<'_>, StorageError> {
        let mut state = self.inner.lock();
        state.pausing += 1;
        self.changed.wait_while(&mut state, |state| state.is_flushing);
        let is_partial = state.is_partial;
        drop(state);
        let paused = PausedFlushes { pause: self, since: Instant::now() };
        if is_partial {
            let text = "the flush of a table fails, so the store has no consistent state now";
            return Err(StorageError::Unavailable(text.into()));
        }
        Ok(paused)
    }
}

impl FlushRound<'_> {
    /// Ends the round. `is_partial` is true if only some tables of a memtable are in the backend.
    pub(crate) fn end(self, is_partial: bool) {
        self.0.inner.lock().is_partial = is_partial;
    }
}

impl Drop for FlushRound<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().is_flushing = false;
        self.0.changed.notify_all();
    }
}

impl PausedFlushes<'_> {
    /// How long flushes have been paused.
    pub(crate) fn duration(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for PausedFlushes<'_> {
    fn drop(&mut self) {
        self.pause.inner.lock().pausing -= 1;
        self.pause.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_pause_waits_for_the_round_and_the_next_round_for_the_pause() {
        let pause = FlushPause::default();
        let round = pause.begin_round();
        let is_paused = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let paused = pause.pause().unwrap();
                is_paused.store(true, Ordering::SeqCst);
                drop(paused);
            });
            while pause.inner.lock().pausing == 0 {
                std::thread::yield_now();
            }
            assert!(!is_paused.load(Ordering::SeqCst));
            round.end(false);
            // Waits for the pause, which was requested earlier.
            pause.begin_round().end(false);
            assert!(is_paused.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_memtable_that_is_partly_flushed_is_no_state() {
        let pause = FlushPause::default();
        pause.begin_round().end(true);
        let error = pause.pause().unwrap_err().to_string();
        assert!(error.contains("no consistent state"), "{error}");
        pause.begin_round().end(false);
        drop(pause.pause().unwrap());
    }
}
