//! The metrics of names and their UIDs.

use std::sync::OnceLock;

tsd_storage::metrics_table! {
    /// Registered handles.
    pub(crate) struct NameMetrics {
        counters {
            asked: "tsd_cluster_uids_asked_total",
                "New names whose UIDs this node has asked of other nodes, the owners of their slots.";
            received: "tsd_cluster_uids_received_total",
                "Names whose UIDs other nodes have asked of this one.";
            unanswered: "tsd_cluster_uids_unanswered_total",
                "New names whose owners have not answered with a UID: this node assigns one itself.";
            unforgotten: "tsd_cluster_uids_unforgotten_total",
                "Renames and deletes of UIDs that a node has not confirmed in time.";
        }
    }
}

impl NameMetrics {
    /// Returns the handles of the process: a node has one of each.
    pub(crate) fn of_process() -> &'static Self {
        static METRICS: OnceLock<NameMetrics> = OnceLock::new();
        METRICS.get_or_init(|| {
            Self::describe();
            Self::with_labels(&[])
        })
    }
}
