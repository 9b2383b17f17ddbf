//! Metrics of the log. Gauges are computed by `WalStorage::gauges`.

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    histogram,
};

/// Registered handles: an update is an atomic operation without a lookup.
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
    pub(crate) conditional_retries: Counter,
    pub(crate) rotations: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_failures: Counter,
    pub(crate) flush_seconds: Histogram,
    pub(crate) flushed_cells: Counter,
    pub(crate) rejected_rows: Counter,
    pub(crate) dead_letter_rows: Counter,
    pub(crate) rejected_writes: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_metrics();
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
            segments: counter!("tsd_wal_segments_created_total"),
            queue_waits: counter!("tsd_wal_queue_waits_total"),
            stalls: counter!("tsd_wal_stalls_total"),
            stall_seconds: histogram!("tsd_wal_stall_seconds"),
            conditional_retries: counter!("tsd_wal_conditional_retries_total"),
            rotations: counter!("tsd_wal_memtable_rotations_total"),
            flushes: counter!("tsd_wal_flushes_total"),
            flush_failures: counter!("tsd_wal_flush_failures_total"),
            flush_seconds: histogram!("tsd_wal_flush_seconds"),
            flushed_cells: counter!("tsd_wal_flushed_cells_total"),
            rejected_rows: counter!("tsd_wal_rejected_rows_total"),
            dead_letter_rows: counter!("tsd_wal_dead_letter_rows_total"),
            rejected_writes: counter!("tsd_wal_rejected_writes_total"),
        }
    }
}

/// Registers the descriptions of all metrics of this crate. Idempotent.
pub fn describe_metrics() {
    for (name, text) in [
        ("tsd_wal_cells_total", "Cells written to the log."),
        ("tsd_wal_commit_failures_total", "Record groups that could not be made durable."),
        ("tsd_wal_commits_total", "Record groups made durable."),
        (
            "tsd_wal_conditional_retries_total",
            "Conditional writes that read the backend again because of a flush.",
        ),
        (
            "tsd_wal_dead_letter_rows_total",
            "Rows rejected permanently by the backend and written to a dead-letter file.",
        ),
        ("tsd_wal_disk_full_total", "Writes that failed because a disk was full."),
        ("tsd_wal_flush_failures_total", "Flush attempts that failed; each is retried."),
        ("tsd_wal_flushed_cells_total", "Cells flushed to the backend."),
        ("tsd_wal_flushes_total", "Memtables flushed to the backend."),
        ("tsd_wal_memtable_rotations_total", "Memtables closed for writes."),
        ("tsd_wal_queue_waits_total", "Writes that waited for a place in the commit queue."),
        ("tsd_wal_records_total", "Records written to the log."),
        ("tsd_wal_rejected_rows_total", "Rows rejected by the backend; each is retried."),
        ("tsd_wal_rejected_writes_total", "Writes rejected because log or memory were full."),
        ("tsd_wal_segments_created_total", "Log segments created."),
        ("tsd_wal_stalls_total", "Times that commits waited for a flush."),
        ("tsd_wal_sync_failures_total", "Syncs of the log that failed."),
        ("tsd_wal_written_bytes_total", "Bytes written to the log."),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_wal_active_segment_bytes", Unit::Bytes, "Size of the active memtable's segments."),
        ("tsd_wal_backend_unavailable", Unit::Count, "1 while the backend accepts no rows."),
        ("tsd_wal_closed_segments", Unit::Count, "Segments that wait for a flush."),
        ("tsd_wal_immutable_memtables", Unit::Count, "Memtables that wait for a flush."),
        ("tsd_wal_log_bytes", Unit::Bytes, "Size of the unflushed log."),
        ("tsd_wal_log_limit_bytes", Unit::Bytes, "Bound of the unflushed log."),
        ("tsd_wal_memtable_bytes", Unit::Bytes, "Size of all memtables."),
        ("tsd_wal_memtable_limit_bytes", Unit::Bytes, "Bound of all memtables."),
        ("tsd_wal_memtable_pool_bytes", Unit::Bytes, "Free memory pooled for memtables."),
        ("tsd_wal_memtable_rows", Unit::Count, "Rows in the memtables."),
        ("tsd_wal_oldest_unflushed_seconds", Unit::Seconds, "Age of the oldest unflushed change."),
        ("tsd_wal_queue_bytes", Unit::Bytes, "Size of the writes in the commit queue."),
        ("tsd_wal_queue_entries", Unit::Count, "Writes in the commit queue."),
        ("tsd_wal_rejected_rows", Unit::Count, "Rows that the backend rejects at present."),
    ] {
        describe_gauge!(name, unit, text);
    }
    for (name, unit, text) in [
        ("tsd_wal_commit_records", Unit::Count, "Records per group."),
        ("tsd_wal_commit_seconds", Unit::Seconds, "Time to make a record group durable."),
        ("tsd_wal_flush_seconds", Unit::Seconds, "Time to flush a memtable."),
        ("tsd_wal_stall_seconds", Unit::Seconds, "Time that commits waited for a flush."),
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
