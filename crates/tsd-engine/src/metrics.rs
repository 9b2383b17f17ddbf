//! Handles of what the engine counts. They are held, never looked up per point.

use metrics::{Counter, Histogram};

/// Metrics of the write actors.
#[derive(Clone)]
pub(crate) struct WriteMetrics {
    pub(crate) points_per_write: Histogram,
    pub(crate) write_seconds: Histogram,
    pub(crate) stored: Counter,
    pub(crate) failed: Counter,
}

impl WriteMetrics {
    pub(crate) fn new() -> Self {
        Self {
            points_per_write: metrics::histogram!("tsd_write_points_per_call"),
            write_seconds: metrics::histogram!("tsd_write_store_seconds"),
            stored: metrics::counter!("tsd_write_points_stored_total"),
            failed: metrics::counter!("tsd_write_points_failed_total"),
        }
    }
}

impl std::fmt::Debug for WriteMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteMetrics").finish_non_exhaustive()
    }
}
