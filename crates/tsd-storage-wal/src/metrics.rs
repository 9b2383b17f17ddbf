//! Metrics of the log. Gauges are computed by `WalStorage::gauges`.

tsd_storage::metrics_table! {
    /// Registered handles.
    #[derive(Debug)]
    pub(crate) struct Metrics {
        counters {
            bytes: "tsd_wal_written_bytes_total", "Bytes written to the log.";
            commits: "tsd_wal_commits_total", "Record groups made durable.";
            sync_failures: "tsd_wal_sync_failures_total", "Syncs of the log that failed.";
            commit_failures: "tsd_wal_commit_failures_total",
                "Record groups that could not be made durable.";
            disk_full: "tsd_wal_disk_full_total", "Writes that failed because a disk was full.";
            stalls: "tsd_wal_stalls_total", "Times that commits waited for a flush.";
            flush_failures: "tsd_wal_flush_failures_total",
                "Flush attempts that failed; each is retried.";
            trim_failures: "tsd_wal_trim_failures_total",
                "Times that flushed segments of the log were not removed; each is retried.";
            relocation_failures: "tsd_wal_relocation_failures_total",
                "Times that rows which cannot be flushed were not copied to a file, mostly for lack of disk space; each is retried.";
            rejected_rows: "tsd_wal_rejected_rows_total",
                "Rows rejected by the backend; each is retried.";
            dead_letter_rows: "tsd_wal_dead_letter_rows_total",
                "Rows rejected permanently by the backend and written to a dead-letter file.";
            rejected_writes: "tsd_wal_rejected_writes_total",
                "Writes rejected because log or memory were full, or the log was unavailable.";
            outdated_writes: "tsd_wal_outdated_writes_total",
                "Writes dropped because their deadline had passed, or because the daemon stood still after it had received them.";
        }
        histograms {
            commit_seconds: "tsd_wal_commit_seconds", Seconds,
                "Time to make a record group durable.";
            sync_seconds: "tsd_wal_sync_seconds", Seconds, "Time of a sync of the log.";
            stall_seconds: "tsd_wal_stall_seconds", Seconds,
                "Time that commits waited for a flush.";
            flush_seconds: "tsd_wal_flush_seconds", Seconds, "Time to flush a memtable.";
            flush_pause_seconds: "tsd_wal_flush_pause_seconds", Seconds,
                "Time that a snapshot paused flushes.";
        }
    }
    computed {
        gauges {
            "tsd_wal_backend_unavailable", Count, "1 while the backend accepts no rows.";
            "tsd_wal_closed_segments", Count, "Segments that wait for a flush.";
            "tsd_wal_immutable_memtables", Count, "Memtables that wait for a flush.";
            "tsd_wal_files_missing", Count,
                "1 while files or directories of the log or the store, or the log table, are removed or replaced, so that writes are refused.";
            "tsd_wal_log_bytes", Bytes, "Size of the unflushed log.";
            "tsd_wal_log_limit_bytes", Bytes, "Bound of the unflushed log.";
            "tsd_wal_memtable_bytes", Bytes, "Size of all memtables.";
            "tsd_wal_memtable_limit_bytes", Bytes, "Bound of all memtables.";
            "tsd_wal_memtable_rows", Count, "Rows in the memtables.";
            "tsd_wal_memtable_summaries", Count,
                "Rows of the memtables whose points reads have summarized.";
            "tsd_wal_oldest_unflushed_seconds", Seconds, "Age of the oldest unflushed change.";
            "tsd_wal_rejected_rows", Count, "Rows that the backend rejects at present.";
            "tsd_wal_stuck_tables", Count,
                "Tables whose rows cannot be flushed while those of others can.";
            "tsd_wal_survivor_bytes", Bytes, "Size of the files of relocated rows.";
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self::describe();
        Self::with_labels(&[])
    }
}

/// Registers the descriptions of all metrics of this crate. Idempotent.
pub fn describe_metrics() {
    Metrics::describe();
}
