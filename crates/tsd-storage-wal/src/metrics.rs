//! What this crate counts.

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    histogram,
};

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
    pub(crate) refused: Counter,
    pub(crate) set_aside: Counter,
    pub(crate) throttled: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe();
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
            refused: counter!("tsd_wal_refused_rows_total"),
            set_aside: counter!("tsd_wal_set_aside_rows_total"),
            throttled: counter!("tsd_wal_throttled_total"),
        }
    }
}

fn describe() {
    for (name, text) in [
        ("tsd_wal_cells_total", "Cells written to the log."),
        ("tsd_wal_commit_failures_total", "Groups of records that could not be made durable."),
        ("tsd_wal_commits_total", "Groups of records made durable."),
        (
            "tsd_wal_conditional_retries_total",
            "Conditional calls that read again because a flush came between.",
        ),
        ("tsd_wal_disk_full_total", "Commits that failed for want of room on disk."),
        ("tsd_wal_flush_failures_total", "Attempts to flush that failed; each is repeated."),
        ("tsd_wal_flushed_cells_total", "Cells handed to the backend."),
        ("tsd_wal_flushes_total", "Generations of held rows handed to the backend."),
        ("tsd_wal_freezes_total", "Generations of held rows closed to writes."),
        ("tsd_wal_queue_waits_total", "Calls that waited for room in the log's queue."),
        ("tsd_wal_records_total", "Records written to the log."),
        ("tsd_wal_refused_rows_total", "Rows that the backend refused; each is tried again."),
        ("tsd_wal_set_aside_rows_total", "Rows refused for good, written to files beside the log."),
        ("tsd_wal_segments_made_total", "Segments of the log made."),
        ("tsd_wal_stalls_total", "Times the log waited for a flush."),
        ("tsd_wal_sync_failures_total", "Syncs of the log that failed."),
        ("tsd_wal_throttled_total", "Writes refused because log or memory were full."),
        ("tsd_wal_written_bytes_total", "Bytes written to the log."),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_wal_backend_away", Unit::Count, "1 while the backend takes no rows."),
        ("tsd_wal_frozen_segments", Unit::Count, "Segments that are full and not yet flushed."),
        ("tsd_wal_generations", Unit::Count, "Generations of held rows, with the open one."),
        ("tsd_wal_log_bytes", Unit::Bytes, "Size of the log, as far as it waits for the backend."),
        ("tsd_wal_log_limit_bytes", Unit::Bytes, "Bound of the log."),
        ("tsd_wal_memtable_bytes", Unit::Bytes, "Size of the rows held in memory."),
        ("tsd_wal_memtable_limit_bytes", Unit::Bytes, "Bound of the rows held in memory."),
        (
            "tsd_wal_memtable_spare_bytes",
            Unit::Bytes,
            "Memory of rows that have left, kept for those to come.",
        ),
        ("tsd_wal_memtable_rows", Unit::Count, "Rows held in memory."),
        ("tsd_wal_oldest_seconds", Unit::Seconds, "Age of the oldest change that is held."),
        ("tsd_wal_open_segment_bytes", Unit::Bytes, "Size of the segment being written."),
        ("tsd_wal_queue_bytes", Unit::Bytes, "Size of the calls waiting for the log."),
        ("tsd_wal_refused_rows", Unit::Count, "Rows that the backend refuses now."),
        ("tsd_wal_queue_entries", Unit::Count, "Calls waiting for the log."),
    ] {
        describe_gauge!(name, unit, text);
    }
    for (name, unit, text) in [
        ("tsd_wal_commit_records", Unit::Count, "Records in a group."),
        ("tsd_wal_commit_seconds", Unit::Seconds, "Time to make a group of records durable."),
        ("tsd_wal_flush_seconds", Unit::Seconds, "Time to hand a generation to the backend."),
        ("tsd_wal_stall_seconds", Unit::Seconds, "Time the log waited for a flush."),
        ("tsd_wal_sync_seconds", Unit::Seconds, "Time of a sync of the log."),
    ] {
        describe_histogram!(name, unit, text);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
