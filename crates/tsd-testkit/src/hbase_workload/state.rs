//! Shared state of the tasks of a workload: rows, counters and found problems. The tasks are in
//! `readers.rs` and `writers.rs`.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use hbase_rs::OperationError;

use super::{
    ack_tracker::AckTracker, error_chain::error_chain, scan_check::ScanReport, stats::WorkloadStats,
};

/// Writers of rows: two of batches, one of single rows. Writers of atomic updates follow them.
pub(super) const ROW_WRITERS: usize = 3;

/// Problems that are kept.
const MAX_PROBLEMS: usize = 100;

/// State shared by the tasks of a workload.
#[derive(Debug)]
pub(super) struct WorkloadState {
    pub(super) rows: AckTracker,
    pub(super) updates: AckTracker,
    pub(super) stats: WorkloadStats,
    pub(super) stopped: AtomicBool,
    /// Pause between the writes of one writer.
    pub(super) pause: Duration,
    /// The first problems found.
    pub(super) problems: Mutex<Vec<String>>,
}

impl WorkloadState {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    pub(super) fn report(&self, problem: String) {
        let mut problems = self.problems.lock();
        if problems.len() < MAX_PROBLEMS {
            problems.push(problem);
        }
    }

    pub(super) fn record_failed_write(&self, operation: &str, error: &OperationError) {
        self.stats.record_failed_write();
        self.report(format!("{operation}: {}", error_chain(error)));
    }

    pub(super) fn record_failed_read(&self, operation: &str, error: &OperationError) {
        self.stats.record_failed_read();
        self.report(format!("{operation}: {}", error_chain(error)));
    }

    pub(super) fn record_scan(&self, report: &ScanReport) {
        self.stats.record_read(report.is_correct());
        if !report.is_correct() {
            self.report(format!("scan: {report:?}"));
        }
    }
}
