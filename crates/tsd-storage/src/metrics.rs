//! Help texts of what this crate counts.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Must run before the first handle is taken.
pub(crate) fn describe_metrics() {
    describe_counter!("tsd_storage_calls_total", "Calls of a store.");
    describe_counter!("tsd_storage_errors_total", "Calls of a store that failed.");
    describe_histogram!(
        "tsd_storage_call_seconds",
        Unit::Seconds,
        "Time from a call of a store to its answer."
    );
    describe_gauge!("tsd_storage_memory_rows", Unit::Count, "Rows of the memory store.");
}
