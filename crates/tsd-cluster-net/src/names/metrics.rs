//! The metrics of names and their UIDs.

use std::sync::OnceLock;

use metrics::{Counter, Unit, counter, describe_counter};

const COUNTERS: [(&str, &str); 1] = [(
    "tsd_cluster_uids_unforgotten_total",
    "Renames and deletes of UIDs after which a node has not said in time that it has forgotten them.",
)];

/// Registered handles.
pub(super) struct NameMetrics {
    pub(super) unforgotten: Counter,
}

impl NameMetrics {
    /// Those of the process: a node has one of each.
    pub(super) fn of_process() -> &'static Self {
        static METRICS: OnceLock<NameMetrics> = OnceLock::new();
        METRICS.get_or_init(|| {
            describe_name_metrics();
            Self { unforgotten: counter!("tsd_cluster_uids_unforgotten_total") }
        })
    }
}

/// Registers the descriptions of the metrics of names. Idempotent.
pub(crate) fn describe_name_metrics() {
    for (name, text) in COUNTERS {
        describe_counter!(name, Unit::Count, text);
    }
}
