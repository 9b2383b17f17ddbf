//! The `tsd_lsm_*` metrics. Handles are created once, when the store is opened.

tsd_storage::metrics_table! {
    /// Metrics of one table.
    #[derive(Clone, Debug)]
    pub(crate) struct TableMetrics {
        counters {
            compaction_errors: "tsd_lsm_compaction_errors_total",
                "Steps of LSM compaction that failed or lacked disk space.";
            entry_bytes: "tsd_lsm_ingested_bytes_total", "Bytes of entries written by ingestion.";
            ingest_errors: "tsd_lsm_ingestion_errors_total", "Failed ingestions.";
            stalls: "tsd_lsm_ingestion_stalls_total",
                "Ingestions that stalled on LSM compaction (too many L0 runs).";
            damaged_reads: "tsd_lsm_damaged_reads_total",
                "Reads that failed at a damaged file before it was quarantined.";
        }
        histograms {
            ingest_seconds: "tsd_lsm_ingestion_seconds", Seconds, "Duration of an ingestion.";
        }
    }
    computed {
        counters {
            "tsd_lsm_compaction_steps_total", "Completed steps of LSM compaction.";
        }
        gauges {
            "tsd_lsm_cache_bytes", Bytes, "Size of the block cache.";
            "tsd_lsm_cache_capacity_bytes", Bytes, "Capacity of the block cache.";
            "tsd_lsm_disk_bytes", Bytes, "Size of the store on disk.";
            "tsd_lsm_l0_runs", Count, "L0 runs of all trees.";
            "tsd_lsm_quarantined_files", Count,
                "Damaged files that were quarantined, until their loss is accepted.";
            "tsd_lsm_quarantined_bytes", Bytes, "Size of the damaged files that were quarantined.";
        }
    }
}

impl TableMetrics {
    pub(crate) fn new(table: &str) -> Self {
        Self::with_labels(&[("table", table.to_owned())])
    }
}

/// Describes every `tsd_lsm_*` metric. Idempotent.
pub fn describe_metrics() {
    TableMetrics::describe();
}
