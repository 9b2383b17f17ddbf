//! The metrics of names and their UIDs.

use std::sync::OnceLock;

use metrics::{Counter, Unit, counter, describe_counter};

const COUNTERS: [(&str, &str); 4] = [
    (
        "tsd_cluster_uids_asked_total",
        "New names whose UIDs this node has asked of other nodes, the owners of their slots.",
    ),
    ("tsd_cluster_uids_received_total", "Names whose UIDs other nodes have asked of this one."),
    (
        "tsd_cluster_uids_unanswered_total",
        "New names whose owners have not answered with a UID: this node assigns one itself.",
    ),
    (
        "tsd_cluster_uids_unforgotten_total",
        "Renames and deletes of UIDs that a node has not confirmed in time.",
    ),
];

/// Registered handles.
pub(crate) struct NameMetrics {
    pub(super) asked: Counter,
    pub(crate) received: Counter,
    pub(super) unanswered: Counter,
    pub(super) unforgotten: Counter,
}

impl NameMetrics {
    /// Returns the handles of the process: a node has one of each.
    pub(crate) fn of_process() -> &'static Self {
        static METRICS: OnceLock<NameMetrics> = OnceLock::new();
        METRICS.get_or_init(|| {
            describe_name_metrics();
            Self {
                asked: counter!("tsd_cluster_uids_asked_total"),
                received: counter!("tsd_cluster_uids_received_total"),
                unanswered: counter!("tsd_cluster_uids_unanswered_total"),
                unforgotten: counter!("tsd_cluster_uids_unforgotten_total"),
            }
        })
    }
}

/// Registers the descriptions of the metrics of names. Idempotent.
pub(crate) fn describe_name_metrics() {
    for (name, text) in COUNTERS {
        describe_counter!(name, Unit::Count, text);
    }
}
