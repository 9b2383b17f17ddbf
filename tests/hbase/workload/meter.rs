//! Counts of what a workload did, and its longest wait.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Counts from the beginning on.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    refused: AtomicU64,
    scans: AtomicU64,
    bad_scans: AtomicU64,
    failed_scans: AtomicU64,
    /// Longest wait of a writer, in microseconds, since the last look.
    longest: AtomicU64,
    /// Since when each writer waits for an answer.
    waiting: Mutex<Vec<Option<Instant>>>,
}

/// Counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Things written and acknowledged.
    pub(crate) acknowledged: u64,
    /// Writes that came back with an error, and were made again.
    pub(crate) refused: u64,
    /// Reads that were checked.
    pub(crate) scans: u64,
    /// Those of them with a wrong answer.
    pub(crate) bad_scans: u64,
    /// Reads that came back with an error instead of an answer.
    pub(crate) failed_scans: u64,
}

impl Meter {
    /// For so many writers.
    pub(crate) fn new(writers: usize) -> Self {
        Self { waiting: Mutex::new(vec![None; writers]), ..Self::default() }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Option<Instant>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A writer begins to wait, for one thing however often it asks for it.
    pub(crate) fn wait(&self, writer: usize) {
        self.waiting()[writer] = Some(Instant::now());
    }

    /// A writer has what it waited for.
    pub(crate) fn answered(&self, writer: usize) {
        if let Some(since) = self.waiting()[writer].take() {
            self.longest.fetch_max(since.elapsed().as_micros() as u64, SeqCst);
        }
    }

    /// A write failed.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, SeqCst);
    }

    /// A read was checked.
    pub(crate) fn read(&self, good: bool) {
        self.scans.fetch_add(1, SeqCst);
        self.bad_scans.fetch_add(u64::from(!good), SeqCst);
    }

    /// A read failed.
    pub(crate) fn failed_read(&self) {
        self.failed_scans.fetch_add(1, SeqCst);
    }

    /// Counts now, with what was acknowledged by now.
    pub(crate) fn counts(&self, acknowledged: u64) -> Counts {
        Counts {
            acknowledged,
            refused: self.refused.load(SeqCst),
            scans: self.scans.load(SeqCst),
            bad_scans: self.bad_scans.load(SeqCst),
            failed_scans: self.failed_scans.load(SeqCst),
        }
    }

    /// Longest wait of a writer since this was last asked, those that still wait included.
    pub(crate) fn take_longest(&self) -> Duration {
        let waiting = self.waiting();
        let now = waiting.iter().flatten().map(Instant::elapsed).max().unwrap_or_default();
        now.max(Duration::from_micros(self.longest.swap(0, SeqCst)))
    }
}
