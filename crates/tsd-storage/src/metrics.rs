//! Help texts of the crate's metrics.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Describes every `tsd_storage_*` metric of this crate. Idempotent.
pub fn describe_metrics() {
    describe_counter!("tsd_storage_calls_total", "Calls of a store, by operation.");
    describe_counter!("tsd_storage_errors_total", "Failed calls of a store, by operation.");
    describe_histogram!(
        "tsd_storage_call_seconds",
        Unit::Seconds,
        "Latency of the calls of a store, by operation."
    );
    describe_gauge!("tsd_storage_memory_rows", Unit::Count, "Rows in the memory store.");
}
