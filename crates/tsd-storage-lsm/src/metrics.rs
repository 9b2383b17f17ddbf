//! The `tsd_lsm_*` metrics. Handles are created once, when the store is opened.

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    histogram,
};

/// Metrics of one table.
#[derive(Clone, Debug)]
pub(crate) struct TableMetrics {
    /// Rows written by ingestion.
    pub(crate) rows: Counter,
    /// Bytes of entries written.
    pub(crate) entry_bytes: Counter,
    /// Duration of ingestions.
    pub(crate) ingest_seconds: Histogram,
    /// Failed ingestions.
    pub(crate) ingest_errors: Counter,
    /// Rows read by gets and scans.
    pub(crate) read_rows: Counter,
    /// Duration of the steps of LSM compaction.
    pub(crate) compaction_seconds: Histogram,
    /// Steps that failed or lacked disk space.
    pub(crate) compaction_errors: Counter,
    /// Ingestions that stalled on LSM compaction.
    pub(crate) stalls: Counter,
    /// Reads that failed at a damaged file.
    pub(crate) damaged_reads: Counter,
}

impl TableMetrics {
    pub(crate) fn new(table: &str) -> Self {
        let labels = [("table", table.to_owned())];
        Self {
            rows: counter!("tsd_lsm_ingested_rows_total", &labels),
            entry_bytes: counter!("tsd_lsm_ingested_bytes_total", &labels),
            ingest_seconds: histogram!("tsd_lsm_ingestion_seconds", &labels),
            ingest_errors: counter!("tsd_lsm_ingestion_errors_total", &labels),
            read_rows: counter!("tsd_lsm_read_rows_total", &labels),
            compaction_seconds: histogram!("tsd_lsm_compaction_step_seconds", &labels),
            compaction_errors: counter!("tsd_lsm_compaction_errors_total", &labels),
            stalls: counter!("tsd_lsm_ingestion_stalls_total", &labels),
            damaged_reads: counter!("tsd_lsm_damaged_reads_total", &labels),
        }
    }
}

/// Describes every `tsd_lsm_*` metric. Idempotent.
pub fn describe_metrics() {
    for (name, text) in [
        (
            "tsd_lsm_compaction_errors_total",
            "Steps of LSM compaction that failed or lacked disk space.",
        ),
        ("tsd_lsm_compaction_steps_total", "Completed steps of LSM compaction."),
        ("tsd_lsm_ingested_bytes_total", "Bytes of entries written by ingestion."),
        ("tsd_lsm_ingested_rows_total", "Rows written by ingestion."),
        ("tsd_lsm_ingestion_errors_total", "Failed ingestions."),
        (
            "tsd_lsm_ingestion_stalls_total",
            "Ingestions that stalled on LSM compaction (too many L0 runs).",
        ),
        ("tsd_lsm_read_rows_total", "Rows read by gets and scans."),
        (
            "tsd_lsm_damaged_reads_total",
            "Reads that failed at a damaged file before it was quarantined.",
        ),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_lsm_cache_bytes", Unit::Bytes, "Size of the block cache."),
        ("tsd_lsm_cache_capacity_bytes", Unit::Bytes, "Capacity of the block cache."),
        ("tsd_lsm_disk_bytes", Unit::Bytes, "Size of the store on disk."),
        ("tsd_lsm_entries", Unit::Count, "Approximate number of entries of all trees."),
        ("tsd_lsm_segments", Unit::Count, "Segments of all trees."),
        ("tsd_lsm_l0_runs", Unit::Count, "L0 runs of all trees."),
        (
            "tsd_lsm_quarantined_files",
            Unit::Count,
            "Damaged files that were quarantined, until their loss is accepted.",
        ),
        (
            "tsd_lsm_quarantined_bytes",
            Unit::Bytes,
            "Size of the damaged files that were quarantined.",
        ),
    ] {
        describe_gauge!(name, unit, text);
    }
    for (name, text) in [
        ("tsd_lsm_compaction_step_seconds", "Duration of a step of LSM compaction."),
        ("tsd_lsm_ingestion_seconds", "Duration of an ingestion."),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
}
