//! Pauses the flushes of memtables, so that the backend has the rows of all tables up to one commit.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tsd_storage::StorageError;

/// Coordinates the flusher with callers that pause it.
#[derive(Debug, Default)]
pub(crate) struct FlushPause {
    inner: Mutex<PauseState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PauseState {
    /// Callers that pause flushes or wait for it.
    pausing: usize,
    is_flushing: bool,
    /// A memtable is in the backend with some of its tables only, because the flush of others failed.
    is_partial: bool,
}

/// A round of flushes.
#[derive(Debug)]
pub(crate) struct FlushRound<'a>(&'a FlushPause);

/// Flushes are paused until this is dropped.
#[derive(Debug)]
pub(crate) struct PausedFlushes<'a> {
    pause: &'a FlushPause,
    since: Instant,
}

impl FlushPause {
    fn lock(&self) -> MutexGuard<'_, PauseState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a round of flushes, when they are not paused.
    pub(crate) fn begin_round(&self) -> FlushRound<'_> {
        let waited = self.changed.wait_while(self.lock(), |state| state.pausing > 0);
        waited.unwrap_or_else(PoisonError::into_inner).is_flushing = true;
        FlushRound(self)
    }

    /// Waits for the end of the present round and pauses flushes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Unavailable`] if a memtable is only partly in the backend.
    pub(crate) fn pause(&self) -> Result<PausedFlushes<'_>, StorageError> {
        let mut state = self.lock();
        state.pausing += 1;
        let waited = self.changed.wait_while(state, |state| state.is_flushing);
        let is_partial = waited.unwrap_or_else(PoisonError::into_inner).is_partial;
        let paused = PausedFlushes { pause: self, since: Instant::now() };
        if is_partial {
            let text = "the flush of a table fails, so the store has no consistent state now";
            return Err(StorageError::Unavailable(text.into()));
        }
        Ok(paused)
    }
}

impl FlushRound<'_> {
    /// Ends the round; `is_partial` says that a memtable is only partly in the backend.
    pub(crate) fn end(self, is_partial: bool) {
        self.0.lock().is_partial = is_partial;
    }
}

impl Drop for FlushRound<'_> {
    fn drop(&mut self) {
        self.0.lock().is_flushing = false;
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
        self.pause.lock().pausing -= 1;
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
            while pause.lock().pausing == 0 {
                std::thread::yield_now();
            }
            assert!(!is_paused.load(Ordering::SeqCst));
            round.end(false);
            // Waits for the pause, which was requested before.
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
