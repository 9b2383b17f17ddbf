//! The `tsd_cluster_log_*` metrics. Gauges are computed by [`ClusterLog`](crate::ClusterLog).

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    histogram,
};

const COUNTERS: [(&str, &str); 15] = [
    ("tsd_cluster_log_appends_total", "Records that the log table has stored."),
    ("tsd_cluster_log_appended_bytes_total", "Bytes of the records that were stored, compressed."),
    (
        "tsd_cluster_log_append_failures_total",
        "Records that were not stored in time; each is tried again.",
    ),
    (
        "tsd_cluster_log_repeats_total",
        "Attempts of an append whose result is unknown; each is repeated.",
    ),
    ("tsd_cluster_log_hedges_total", "Records that were sent to a second region server."),
    (
        "tsd_cluster_log_hedges_suppressed_total",
        "Records that were not sent to a second one, because too many were.",
    ),
    ("tsd_cluster_log_segments_opened_total", "Segments opened."),
    (
        "tsd_cluster_log_segments_removed_total",
        "Segments removed, after all of their rows were stored.",
    ),
    (
        "tsd_cluster_log_orphans_removed_total",
        "Rows of segments that came into being after their log was removed, and were removed.",
    ),
    ("tsd_cluster_log_trim_failures_total", "Trims that failed; each is tried again."),
    ("tsd_cluster_log_recovered_records_total", "Records of other owners that were replayed."),
    (
        "tsd_cluster_log_heartbeat_failures_total",
        "Heartbeats, or looks at those of others, that failed; others suspect this node after some.",
    ),
    (
        "tsd_cluster_log_fences_total",
        "Times that another node has taken the log of this process over; it joins the cluster again.",
    ),
    ("tsd_cluster_log_recoveries_total", "Logs of other nodes whose rows this one has stored."),
    (
        "tsd_cluster_log_recovery_failures_total",
        "Recoveries of logs of other nodes that failed; each is tried again.",
    ),
];
const GAUGES: [(&str, Unit, &str); 8] = [
    (
        "tsd_cluster_log_clock_lag_seconds",
        Unit::Seconds,
        "How far the clock is behind the last commit time of all nodes; commit times wait for it.",
    ),
    ("tsd_cluster_log_members", Unit::Count, "Nodes that are alive, with this one."),
    (
        "tsd_cluster_log_members_dead",
        Unit::Count,
        "Nodes that are not alive, and whose rows are not all stored yet.",
    ),
    (
        "tsd_cluster_log_fenced",
        Unit::Count,
        "1 from when another node has taken the log of this one over until it has joined again.",
    ),
    (
        "tsd_cluster_log_former_logs",
        Unit::Count,
        "Logs of earlier owners whose rows are not stored yet.",
    ),
    ("tsd_cluster_log_incarnation", Unit::Count, "Number of this owner of the log."),
    ("tsd_cluster_log_kept_bytes", Unit::Bytes, "Bytes of the segments that are kept."),
    ("tsd_cluster_log_segments", Unit::Count, "Segments that are kept, with those that stand by."),
];
const APPEND_SECONDS: &str = "tsd_cluster_log_append_seconds";
const RECOVERY_SECONDS: &str = "tsd_cluster_log_recovery_seconds";

/// Registered handles.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) appends: Counter,
    pub(crate) appended_bytes: Counter,
    pub(crate) append_failures: Counter,
    pub(crate) repeats: Counter,
    pub(crate) hedges: Counter,
    pub(crate) hedges_suppressed: Counter,
    pub(crate) segments_opened: Counter,
    pub(crate) segments_removed: Counter,
    pub(crate) orphans_removed: Counter,
    pub(crate) trim_failures: Counter,
    pub(crate) recovered_records: Counter,
    pub(crate) heartbeat_failures: Counter,
    pub(crate) fences: Counter,
    pub(crate) recoveries: Counter,
    pub(crate) recovery_failures: Counter,
    pub(crate) append_seconds: Histogram,
    pub(crate) recovery_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_metrics();
        Self {
            appends: counter!("tsd_cluster_log_appends_total"),
            appended_bytes: counter!("tsd_cluster_log_appended_bytes_total"),
            append_failures: counter!("tsd_cluster_log_append_failures_total"),
            repeats: counter!("tsd_cluster_log_repeats_total"),
            hedges: counter!("tsd_cluster_log_hedges_total"),
            hedges_suppressed: counter!("tsd_cluster_log_hedges_suppressed_total"),
            segments_opened: counter!("tsd_cluster_log_segments_opened_total"),
            segments_removed: counter!("tsd_cluster_log_segments_removed_total"),
            orphans_removed: counter!("tsd_cluster_log_orphans_removed_total"),
            trim_failures: counter!("tsd_cluster_log_trim_failures_total"),
            recovered_records: counter!("tsd_cluster_log_recovered_records_total"),
            heartbeat_failures: counter!("tsd_cluster_log_heartbeat_failures_total"),
            fences: counter!("tsd_cluster_log_fences_total"),
            recoveries: counter!("tsd_cluster_log_recoveries_total"),
            recovery_failures: counter!("tsd_cluster_log_recovery_failures_total"),
            append_seconds: histogram!(APPEND_SECONDS),
            recovery_seconds: histogram!(RECOVERY_SECONDS),
        }
    }
}

/// Registers the descriptions of all metrics of this crate. Idempotent.
pub fn describe_metrics() {
    for (name, text) in COUNTERS {
        describe_counter!(name, text);
    }
    for (name, unit, text) in GAUGES {
        describe_gauge!(name, unit, text);
    }
    describe_histogram!(APPEND_SECONDS, Unit::Seconds, "Time to store a record in the log table.");
    describe_histogram!(
        RECOVERY_SECONDS,
        Unit::Seconds,
        "Time to fence another node and to store the rows of its log."
    );
}
