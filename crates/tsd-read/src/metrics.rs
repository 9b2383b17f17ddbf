//! Metrics of reads.

tsd_storage::metrics_table! {
    /// Registers the help texts of the metrics of reads.
    ///
    /// Idempotent. Must run after the recorder is installed and before the first metric is recorded.
    pub fn describe_metrics() {
        counters {
            "tsd_query_cache_hits_total", "Days of reads that were in the cache of queries.";
            "tsd_query_cache_misses_total", "Days of repeated reads that were not.";
            "tsd_query_cancelled_total", "Queries cancelled, by their client or by an operator.";
            "tsd_query_partial_total",
                "Queries whose result may miss points of quarantined files (allow_damaged).";
            "tsd_query_rejected_total", "Queries ended by a limit, by limit.";
            "tsd_query_restarts_total",
                "Queries that began again because they needed more memory or time than they were admitted with.";
            "tsd_query_shared_total",
                "Queries with the result of an execution that an identical query had started.";
        }
        gauges {
            "tsd_query_admitted", Count, "Queries that were admitted and run, by class.";
            "tsd_query_cache_bytes", Bytes, "Memory of the cache of queries.";
            "tsd_query_memory_bytes", Bytes, "Memory granted to queries.";
            "tsd_query_memory_limit_bytes", Bytes, "Memory limit of all queries; 0: none.";
            "tsd_query_queued", Count, "Queries queued for admission.";
            "tsd_query_runnable", Count, "Queries that wait for a time slice.";
            "tsd_query_running", Count, "Queries admitted or queued, until their response ends.";
            "tsd_query_waiting", Count, "Queries in line for admission, by class.";
        }
        histograms {
            "tsd_query_admission_seconds", Seconds,
                "Time that queries waited to be admitted, by the class in which they were.";
            "tsd_query_seconds", Seconds, "Duration of queries, by outcome.";
        }
    }
}
