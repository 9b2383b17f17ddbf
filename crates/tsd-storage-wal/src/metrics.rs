//! Metrics of the log. Gauges are computed by `WalStorage::gauges`.

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    histogram,
};

/// Declares [`Metrics`] and the descriptions of its counters and histograms.
macro_rules! handles {
    (
        counters { $($counter:ident: $counter_name:literal, $counter_text:literal;)* }
        histograms { $($histogram:ident: $histogram_name:literal, $unit:ident, $text:literal;)* }
    ) => {
        /// Registered handles: an update is an atomic operation without a lookup.
        #[derive(Debug)]
        pub(crate) struct Metrics {
            $(pub(crate) $counter: Counter,)*
            $(pub(crate) $histogram: Histogram,)*
        }

        impl Metrics {
            pub(crate) fn new() -> Self {
                describe_metrics();
                Self {
                    $($counter: counter!($counter_name),)*
                    $($histogram: histogram!($histogram_name),)*
                }
            }

            fn describe() {
                $(describe_counter!($counter_name, $counter_text);)*
                $(describe_histogram!($histogram_name, Unit::$unit, $text);)*
            }
        }
    };
}

handles! {
    counters {
        records: "tsd_wal_records_total", "Records written to the log.";
        cells: "tsd_wal_cells_total", "Cells written to the log.";
        bytes: "tsd_wal_written_bytes_total", "Bytes written to the log.";
        commits: "tsd_wal_commits_total", "Record groups made durable.";
        sync_failures: "tsd_wal_sync_failures_total", "Syncs of the log that failed.";
        commit_failures:
            "tsd_wal_commit_failures_total", "Record groups that could not be made durable.";
        group_waits:
            "tsd_wal_group_waits_total", "Groups that waited for requests of senders of the last group.";
        disk_full: "tsd_wal_disk_full_total", "Writes that failed because a disk was full.";
        segments: "tsd_wal_segments_created_total", "Log segments created.";
        stalls: "tsd_wal_stalls_total", "Times that commits waited for a flush.";
        conditional_retries:
            "tsd_wal_conditional_retries_total",
            "Conditional writes that read the backend again because of a flush.";
        rotations: "tsd_wal_memtable_rotations_total", "Memtables closed for writes.";
        flushes: "tsd_wal_flushes_total", "Memtables flushed to the backend.";
        flush_failures:
            "tsd_wal_flush_failures_total", "Flush attempts that failed; each is retried.";
        trim_failures:
            "tsd_wal_trim_failures_total",
            "Times that flushed segments of the log were not removed; each is retried.";
        flushed_cells: "tsd_wal_flushed_cells_total", "Cells flushed to the backend.";
        relocated_rows:
            "tsd_wal_relocated_rows_total",
            "Rows of tables that cannot be flushed, copied from the log to files of their own.";
        relocation_failures:
            "tsd_wal_relocation_failures_total",
            "Times that such rows were not copied, mostly for lack of disk space; each is retried.";
        rejected_rows:
            "tsd_wal_rejected_rows_total", "Rows rejected by the backend; each is retried.";
        dead_letter_rows:
            "tsd_wal_dead_letter_rows_total",
            "Rows rejected permanently by the backend and written to a dead-letter file.";
        rejected_writes:
            "tsd_wal_rejected_writes_total", "Writes rejected because log or memory were full, or the log was unavailable.";
    }
    histograms {
        commit_seconds:
            "tsd_wal_commit_seconds", Seconds, "Time to make a record group durable.";
        commit_records: "tsd_wal_commit_records", Count, "Records per group.";
        sync_seconds: "tsd_wal_sync_seconds", Seconds, "Time of a sync of the log.";
        stall_seconds:
            "tsd_wal_stall_seconds", Seconds, "Time that commits waited for a flush.";
        flush_seconds: "tsd_wal_flush_seconds", Seconds, "Time to flush a memtable.";
        flush_pause_seconds:
            "tsd_wal_flush_pause_seconds", Seconds, "Time that a snapshot paused flushes.";
    }
}

/// Registers the descriptions of all metrics of this crate. Idempotent.
pub fn describe_metrics() {
    Metrics::describe();
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
        ("tsd_wal_rejected_rows", Unit::Count, "Rows that the backend rejects at present."),
        (
            "tsd_wal_stuck_tables",
            Unit::Count,
            "Tables whose rows cannot be flushed while those of others can.",
        ),
        ("tsd_wal_survivor_bytes", Unit::Bytes, "Size of the files of relocated rows."),
    ] {
        describe_gauge!(name, unit, text);
    }
}
