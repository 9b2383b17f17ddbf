//! The `tsd_cluster_log_*` metrics. Gauges are computed by [`ClusterLog`](crate::ClusterLog).

tsd_storage::metrics_table! {
    /// Registered handles.
    #[derive(Debug)]
    pub(crate) struct Metrics {
        counters {
            appended_bytes: "tsd_cluster_log_appended_bytes_total",
                "Bytes of the records that were stored, compressed.";
            append_failures: "tsd_cluster_log_append_failures_total",
                "Records that were not stored in time; each is tried again.";
            trim_failures: "tsd_cluster_log_trim_failures_total",
                "Trims that failed; each is tried again.";
            heartbeat_failures: "tsd_cluster_log_heartbeat_failures_total",
                "Heartbeats, or looks at those of others, that failed; others suspect this node after some.";
            read_appends: "tsd_cluster_log_read_appends_total",
                "Proofs of reads for which there was no lease, so that the log table was asked.";
            fences: "tsd_cluster_log_fences_total",
                "Times that another node has taken the log of this process over; it joins the cluster again.";
            removals: "tsd_cluster_log_removals_total",
                "Times that this node had to leave, since other nodes did not reach it; it joins again.";
            recoveries: "tsd_cluster_log_recoveries_total",
                "Logs of other nodes whose rows this one has stored.";
            recovery_failures: "tsd_cluster_log_recovery_failures_total",
                "Recoveries of logs of other nodes that failed; each is tried again.";
        }
        histograms {
            append_seconds: "tsd_cluster_log_append_seconds", Seconds,
                "Time to store a record in the log table.";
            recovery_seconds: "tsd_cluster_log_recovery_seconds", Seconds,
                "Time to fence another node and to store the rows of its log.";
        }
    }
    computed {
        gauges {
            "tsd_cluster_log_clock_lag_seconds", Seconds,
                "How far the clock is behind the last commit time of all nodes; commit times wait for it.";
            "tsd_cluster_log_members", Count, "Nodes that serve, with this one.";
            "tsd_cluster_log_members_joining", Count,
                "Nodes that start, or wait until their connections to the others hold.";
            "tsd_cluster_log_members_dead", Count,
                "Nodes that are not alive, and whose rows are not all stored yet.";
            "tsd_cluster_log_members_removed", Count,
                "Nodes that have to leave, since other nodes do not reach them, and have not left yet.";
            "tsd_cluster_log_fenced", Count,
                "1 from when another node has taken the log of this one over until it has joined again.";
            "tsd_cluster_log_former_logs", Count,
                "Logs of earlier owners whose rows are not stored yet.";
            "tsd_cluster_log_kept_bytes", Bytes, "Bytes of the segments that are kept.";
            "tsd_cluster_log_segments", Count, "Segments that are kept, with those that stand by.";
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
