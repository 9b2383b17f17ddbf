//! Counters of a workload, and the longest wait of its writers.

use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

/// Counters since the workload started.
#[derive(Debug, Default)]
pub struct WorkloadStats {
    failed_writes: AtomicU64,
    reads: AtomicU64,
    wrong_reads: AtomicU64,
    failed_reads: AtomicU64,
    /// Longest wait of a writer, in microseconds, since it was last taken.
    longest_wait: AtomicU64,
    /// Start of each writer's present wait.
    waiting_since: Mutex<Vec<Option<Instant>>>,
}

/// A reading of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadCounts {
    /// Rows, updates or points written and acknowledged.
    pub acknowledged: u64,
    /// Writes that failed and were repeated.
    pub failed_writes: u64,
    /// Reads whose result was checked.
    pub reads: u64,
    /// Checked reads with a wrong result.
    pub wrong_reads: u64,
    /// Reads that failed.
    pub failed_reads: u64,
}

impl WorkloadStats {
    /// Counters of a workload with `writers` writers.
    #[must_use]
    pub fn new(writers: usize) -> Self {
        Self { waiting_since: Mutex::new(vec![None; writers]), ..Self::default() }
    }

    fn waiting_since(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        self.waiting_since.lock()
    }

    /// Records that a writer starts to wait; repeated attempts of one write are one wait.
    pub fn record_wait(&self, writer: usize) {
        self.waiting_since()[writer] = Some(Instant::now());
    }

    /// Records the acknowledgement that a writer waited for.
    pub fn record_acknowledgement(&self, writer: usize) {
        if let Some(since) = self.waiting_since()[writer].take() {
            self.longest_wait.fetch_max(since.elapsed().as_micros() as u64, SeqCst);
        }
    }

    /// Records a failed write.
    pub fn record_failed_write(&self) {
        self.failed_writes.fetch_add(1, SeqCst);
    }

    /// Records a checked read.
    pub fn record_read(&self, correct: bool) {
        self.reads.fetch_add(1, SeqCst);
        self.wrong_reads.fetch_add(u64::from(!correct), SeqCst);
    }

    /// Records a failed read.
    pub fn record_failed_read(&self) {
        self.failed_reads.fetch_add(1, SeqCst);
    }

    /// The current counters, with the caller's count of acknowledged operations.
    #[must_use]
    pub fn counts(&self, acknowledged: u64) -> WorkloadCounts {
        WorkloadCounts {
            acknowledged,
            failed_writes: self.failed_writes.load(SeqCst),
            reads: self.reads.load(SeqCst),
            wrong_reads: self.wrong_reads.load(SeqCst),
            failed_reads: self.failed_reads.load(SeqCst),
        }
    }

    /// Takes the longest wait of a writer since the last call, including current waits.
    #[must_use]
    pub fn take_longest_wait(&self) -> Duration {
        let waiting = self.waiting_since();
        let present = waiting.iter().flatten().map(Instant::elapsed).max().unwrap_or_default();
        present.max(Duration::from_micros(self.longest_wait.swap(0, SeqCst)))
    }
}
