//! Counters of the store. Handles are taken once, when the store is opened.

use metrics::{Counter, Histogram, counter, histogram};

/// Counters of one table.
#[derive(Clone)]
pub(crate) struct TableMetrics {
    /// Rows handed over by ingestion.
    pub(crate) rows: Counter,
    /// Bytes of entries written.
    pub(crate) entry_bytes: Counter,
    /// Rows whose runs were folded into one entry.
    pub(crate) folded_rows: Counter,
    /// Ingestions, and how long each took.
    pub(crate) ingest_seconds: Histogram,
    /// Ingestions that failed.
    pub(crate) ingest_errors: Counter,
    /// Rows read by gets and scans.
    pub(crate) read_rows: Counter,
    /// Steps of LSM compaction, and how long each took.
    pub(crate) compaction_seconds: Histogram,
    /// Steps that failed or had no room.
    pub(crate) compaction_errors: Counter,
    /// Ingestions that had to wait for LSM compaction.
    pub(crate) stalls: Counter,
}

impl TableMetrics {
    pub(crate) fn new(table: &str) -> Self {
        let labels = [("table", table.to_owned())];
        Self {
            rows: counter!("tsd_lsm_ingested_rows_total", &labels),
            entry_bytes: counter!("tsd_lsm_ingested_bytes_total", &labels),
            folded_rows: counter!("tsd_lsm_folded_rows_total", &labels),
            ingest_seconds: histogram!("tsd_lsm_ingestion_seconds", &labels),
            ingest_errors: counter!("tsd_lsm_ingestion_errors_total", &labels),
            read_rows: counter!("tsd_lsm_read_rows_total", &labels),
            compaction_seconds: histogram!("tsd_lsm_compaction_step_seconds", &labels),
            compaction_errors: counter!("tsd_lsm_compaction_errors_total", &labels),
            stalls: counter!("tsd_lsm_ingestion_stalls_total", &labels),
        }
    }
}

impl std::fmt::Debug for TableMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableMetrics").finish_non_exhaustive()
    }
}
