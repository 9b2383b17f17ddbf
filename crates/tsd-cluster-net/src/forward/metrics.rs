//! The metrics of forwarded writes and of slots.

use std::sync::OnceLock;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

const COUNTERS: [(&str, Unit, &str); 6] = [
    (
        "tsd_cluster_forward_cells_total",
        Unit::Count,
        "Cells that were written by the owners of their series, for this node.",
    ),
    ("tsd_cluster_forward_bytes_total", Unit::Bytes, "Bytes of writes sent to their owners."),
    (
        "tsd_cluster_forward_frames_total",
        Unit::Count,
        "Frames with writes for the owners of their series: small puts share frames under load.",
    ),
    (
        "tsd_cluster_forward_refused_total",
        Unit::Count,
        "Forwarded writes that their owner did not make, by reason: not_owner ones are sent again.",
    ),
    (
        "tsd_cluster_forward_failed_total",
        Unit::Count,
        "Writes that failed because no owner of their series answered in time.",
    ),
    (
        "tsd_cluster_slots_moved_total",
        Unit::Count,
        "Slots that this node has given away to another one.",
    ),
];
const GAUGES: [(&str, &str); 4] = [
    (
        "tsd_cluster_forward_waiting_bytes",
        "Bytes of writes that wait for the answers of their owners.",
    ),
    ("tsd_cluster_slots_owned", "Slots whose series this node writes."),
    ("tsd_cluster_slots_moving", "Slots that are to be given to another node, of all nodes."),
    ("tsd_cluster_slots_problem", "1 while the assignment of slots cannot be read or changed."),
];
const HISTOGRAMS: [(&str, &str); 1] =
    [("tsd_cluster_forward_seconds", "Time of a forwarded write, until its owner has answered.")];

/// Values of the label `reason`.
const REASONS: [&str; 6] =
    ["not_owner", "throttled", "unavailable", "failed", "stood_still", "abandoned"];

/// Registered handles.
pub(super) struct ForwardMetrics {
    pub(super) cells: Counter,
    pub(super) bytes: Counter,
    pub(super) frames: Counter,
    refused: [Counter; 6],
    pub(super) failed: Counter,
    pub(super) moves: Counter,
    pub(super) waiting_bytes: Gauge,
    pub(super) owned: Gauge,
    pub(super) moving: Gauge,
    pub(super) problem: Gauge,
    pub(super) seconds: Histogram,
}

/// Why an owner did not make a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum RefusedReason {
    NotOwner,
    Throttled,
    Unavailable,
    Failed,
    StoodStill,
    Abandoned,
}

impl ForwardMetrics {
    /// Returns the handles of the process: a node has one of each.
    pub(super) fn of_process() -> &'static Self {
        static METRICS: OnceLock<ForwardMetrics> = OnceLock::new();
        METRICS.get_or_init(Self::new)
    }

    fn new() -> Self {
        describe_forward_metrics();
        Self {
            cells: counter!("tsd_cluster_forward_cells_total"),
            bytes: counter!("tsd_cluster_forward_bytes_total"),
            frames: counter!("tsd_cluster_forward_frames_total"),
            refused: REASONS
                .map(|reason| counter!("tsd_cluster_forward_refused_total", "reason" => reason)),
            failed: counter!("tsd_cluster_forward_failed_total"),
            moves: counter!("tsd_cluster_slots_moved_total"),
            waiting_bytes: gauge!("tsd_cluster_forward_waiting_bytes"),
            owned: gauge!("tsd_cluster_slots_owned"),
            moving: gauge!("tsd_cluster_slots_moving"),
            problem: gauge!("tsd_cluster_slots_problem"),
            seconds: histogram!("tsd_cluster_forward_seconds"),
        }
    }

    pub(super) fn refused(&self, reason: RefusedReason) {
        if let Some(refused) = self.refused.get(reason as usize) {
            refused.increment(1);
        }
    }
}

/// Registers the descriptions of the metrics of forwarding. Idempotent.
pub(crate) fn describe_forward_metrics() {
    for (name, unit, text) in COUNTERS {
        describe_counter!(name, unit, text);
    }
    for (name, text) in GAUGES {
        let unit = if name.ends_with("_bytes") { Unit::Bytes } else { Unit::Count };
        describe_gauge!(name, unit, text);
    }
    for (name, text) in HISTOGRAMS {
        describe_histogram!(name, Unit::Seconds, text);
    }
}
