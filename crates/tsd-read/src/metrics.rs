//! Metrics of reads.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Registers the help texts of the metrics of reads.
///
/// Idempotent. Must run after the recorder is installed and before the first metric is recorded.
pub fn describe_metrics() {
    for (name, text) in [
        ("tsd_query_cache_hits_total", "Days of reads that were in the cache of queries."),
        ("tsd_query_cache_misses_total", "Days of repeated reads that were not."),
        ("tsd_query_cancelled_total", "Queries cancelled, by their client or by an operator."),
        (
            "tsd_query_partial_total",
            "Queries whose result may miss points of quarantined files (allow_damaged).",
        ),
        ("tsd_query_rejected_total", "Queries ended by a limit, by limit."),
        (
            "tsd_query_restarts_total",
            "Queries that began again because they needed more memory or time than they were admitted with.",
        ),
        (
            "tsd_query_shared_total",
            "Queries with the result of an execution that an identical query had started.",
        ),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_query_admitted", Unit::Count, "Queries that were admitted and run, by class."),
        ("tsd_query_cache_bytes", Unit::Bytes, "Memory of the cache of queries."),
        ("tsd_query_memory_bytes", Unit::Bytes, "Memory granted to queries."),
        ("tsd_query_memory_limit_bytes", Unit::Bytes, "Memory limit of all queries; 0: none."),
        ("tsd_query_queued", Unit::Count, "Queries queued for admission."),
        ("tsd_query_runnable", Unit::Count, "Queries that wait for a time slice."),
        (
            "tsd_query_running",
            Unit::Count,
            "Queries admitted or queued, until their response ends.",
        ),
        ("tsd_query_waiting", Unit::Count, "Queries in line for admission, by class."),
    ] {
        describe_gauge!(name, unit, text);
    }
    for (name, text) in [
        (
            "tsd_query_admission_seconds",
            "Time that queries waited to be admitted, by the class in which they were.",
        ),
        ("tsd_query_seconds", "Duration of queries, by outcome."),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
}
