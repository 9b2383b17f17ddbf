//! What this crate counts.

use metrics::{Counter, Histogram, counter, histogram};

/// Handles, taken once: a call then costs an atomic operation and no look-up.
pub(crate) struct Metrics {
    pub(crate) records: Counter,
    pub(crate) cells: Counter,
    pub(crate) bytes: Counter,
    pub(crate) commits: Counter,
    pub(crate) commit_seconds: Histogram,
    pub(crate) commit_records: Histogram,
    pub(crate) sync_seconds: Histogram,
    pub(crate) sync_failures: Counter,
    pub(crate) commit_failures: Counter,
    pub(crate) disk_full: Counter,
    pub(crate) segments: Counter,
    pub(crate) queue_waits: Counter,
    pub(crate) stalls: Counter,
    pub(crate) stall_seconds: Histogram,
    pub(crate) retries: Counter,
    pub(crate) freezes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_failures: Counter,
    pub(crate) flush_seconds: Histogram,
    pub(crate) flushed_cells: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            records: counter!("tsd_wal_records_total"),
            cells: counter!("tsd_wal_cells_total"),
            bytes: counter!("tsd_wal_written_bytes_total"),
            commits: counter!("tsd_wal_commits_total"),
            commit_seconds: histogram!("tsd_wal_commit_seconds"),
            commit_records: histogram!("tsd_wal_commit_records"),
            sync_seconds: histogram!("tsd_wal_sync_seconds"),
            sync_failures: counter!("tsd_wal_sync_failures_total"),
            commit_failures: counter!("tsd_wal_commit_failures_total"),
            disk_full: counter!("tsd_wal_disk_full_total"),
            segments: counter!("tsd_wal_segments_made_total"),
            queue_waits: counter!("tsd_wal_queue_waits_total"),
            stalls: counter!("tsd_wal_stalls_total"),
            stall_seconds: histogram!("tsd_wal_stall_seconds"),
            retries: counter!("tsd_wal_conditional_retries_total"),
            freezes: counter!("tsd_wal_freezes_total"),
            flushes: counter!("tsd_wal_flushes_total"),
            flush_failures: counter!("tsd_wal_flush_failures_total"),
            flush_seconds: histogram!("tsd_wal_flush_seconds"),
            flushed_cells: counter!("tsd_wal_flushed_cells_total"),
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
