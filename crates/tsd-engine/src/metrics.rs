//! Metrics of the engine. Handles are created once, never looked up per point.

use metrics::{Counter, Histogram, Unit, describe_counter, describe_gauge, describe_histogram};

/// Metrics of the write actors.
#[derive(Clone)]
pub(crate) struct WriteMetrics {
    pub(crate) batch_seconds: Histogram,
    pub(crate) stored: Counter,
    pub(crate) failed: Counter,
}

impl WriteMetrics {
    pub(crate) fn new() -> Self {
        Self {
            batch_seconds: metrics::histogram!("tsd_write_batch_seconds"),
            stored: metrics::counter!("tsd_write_points_stored_total"),
            failed: metrics::counter!("tsd_write_points_failed_total"),
        }
    }
}

/// Registers the help texts of the metrics of the engine and of its reads.
///
/// Idempotent. Must run after the recorder is installed and before the first metric is recorded.
pub fn describe_metrics() {
    crate::file_problems::describe_metrics();
    tsd_read::describe_metrics();
    describe_memory_metrics();
    describe_plugin_metrics();
    describe_refusal_metrics();
    describe_tree_metrics();
    describe_uid_metrics();
    for (name, text) in [
        ("tsd_actor_mailbox_rejected_total", "Messages rejected because a mailbox was full."),
        ("tsd_actor_restarts_total", "Restarts of an actor after a panic."),
        (
            "tsd_compaction_invalid_rows_total",
            "Rows that row compaction could not merge because their cells conflict.",
        ),
        (
            "tsd_compaction_notifications_dropped_total",
            "Rows not queued for compaction because a mailbox was full.",
        ),
        (
            "tsd_compaction_queue_rejected_rows_total",
            "Rows not queued for compaction because the queue was full.",
        ),
        ("tsd_compaction_read_errors_total", "Rows that row compaction failed to read."),
        ("tsd_compaction_rows_total", "Rows processed by row compaction."),
        ("tsd_compaction_write_errors_total", "Rows that row compaction failed to rewrite."),
        ("tsd_compaction_writes_total", "Compacted columns written."),
        ("tsd_ingest_points_received_total", "Points received, stored or not."),
        ("tsd_ingest_unreported_failures_total", "Failed points whose connection had ended."),
        (
            "tsd_meta_tracking_dropped_total",
            "Series whose meta data was not written, because of overload or an error.",
        ),
        ("tsd_series_cache_misses_total", "Points whose series was not in the series cache."),
        ("tsd_write_points_failed_total", "Points that the storage failed to write."),
        ("tsd_write_points_stored_total", "Points stored."),
        ("tsd_write_queue_waits_total", "Waits for the byte budget of the store."),
        (
            "tsd_write_retries_total",
            "Retries of held points: writes and UID requests that the store did not accept.",
        ),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_actor_mailbox_messages", Unit::Count, "Messages in mailboxes."),
        ("tsd_compaction_queue_bytes", Unit::Bytes, "Size of the row compaction queues."),
        ("tsd_compaction_queue_rows", Unit::Count, "Rows in the row compaction queues."),
        ("tsd_series_cache_entries", Unit::Count, "Series in the series cache."),
        (
            "tsd_uid_left",
            Unit::Count,
            "UIDs that can still be assigned, by kind. Points with new names are rejected at 0.",
        ),
        ("tsd_uid_pending_names", Unit::Count, "Names that wait for a UID."),
        (
            "tsd_write_held_points",
            Unit::Count,
            "Telnet points that are held and retried because the store does not accept them.",
        ),
        ("tsd_uid_used", Unit::Count, "UIDs taken from the counter, by kind."),
        ("tsd_write_queued_bytes", Unit::Bytes, "Size of the writes that wait for the store."),
    ] {
        describe_gauge!(name, unit, text);
    }
    describe_histogram!(
        "tsd_write_batch_seconds",
        Unit::Seconds,
        "Duration of the storage call of a write batch."
    );
}

fn describe_uid_metrics() {
    for (name, text) in [
        ("tsd_uid_assigned_total", "UIDs assigned."),
        ("tsd_uid_cache_hits_total", "Names and UIDs found in the UID cache."),
        ("tsd_uid_cache_misses_total", "Names and UIDs not found in the UID cache."),
        ("tsd_uid_delayed_total", "New names that waited for the limit of their rate."),
        ("tsd_uid_rejected_total", "Names rejected because too many were waiting for a UID."),
    ] {
        describe_counter!(name, text);
    }
}

fn describe_tree_metrics() {
    for (name, text) in [
        (
            "tsd_tree_collisions_total",
            "New series that are in no tree because another series has their leaf, once for each tree.",
        ),
        (
            "tsd_tree_series_dropped_total",
            "New series that were not placed in trees because too many waited: `tsdb uid treesync` places them.",
        ),
        (
            "tsd_tree_series_failed_total",
            "New series that were not placed in a tree because of an error.",
        ),
    ] {
        describe_counter!(name, text);
    }
    let queued = "New series that wait to be placed in trees.";
    describe_gauge!("tsd_tree_queued_series", Unit::Count, queued);
}

/// Points and names that rules reject.
fn describe_refusal_metrics() {
    for (name, text) in [
        (
            "tsd_filter_refused_points_total",
            "Points that the time series filter refused, by kind (raw, aggregate).",
        ),
        (
            "tsd_limits_refused_series_points_total",
            "Points of new series that were refused because of tsd.limits.series_per_metric.",
        ),
        (
            "tsd_uid_creations_forbidden_total",
            "Names that were not created because the sender may not create names of their kind.",
        ),
        ("tsd_uid_allowed_total", "New names allowed by the UID filter, by kind."),
        ("tsd_uid_filtered_total", "Names rejected by the UID filter, by kind."),
    ] {
        describe_counter!(name, text);
    }
}

/// Queues of the plug-ins that get points.
fn describe_plugin_metrics() {
    for (name, text) in [
        (
            "tsd_plugin_delivered_total",
            "Points and annotations that a plug-in has delivered, by plug-in.",
        ),
        (
            "tsd_plugin_dropped_total",
            "Points and annotations that did not get to a plug-in: its queue was full, its receiver \
             refused them, or it was stopped.",
        ),
        ("tsd_plugin_failures_total", "Failed deliveries of a plug-in; most are repeated."),
        ("tsd_plugin_waits_total", "Waits of senders for the full queue of a plug-in."),
    ] {
        describe_counter!(name, text);
    }
    let queued = "Points and annotations that wait for a plug-in or are being delivered.";
    describe_gauge!("tsd_plugin_queued_bytes", Unit::Bytes, queued);
}

fn describe_memory_metrics() {
    for (name, text) in [
        (
            "tsd_memory_refusals_total",
            "Connections, request bodies and queries refused because `tsd.memory.limit` was used \
             up, by part (connections, bodies, queries).",
        ),
        (
            "tsd_memory_waits_total",
            "Waits of telnet connections and request bodies for memory, by part (reads, bodies).",
        ),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_memory_limit_bytes", Unit::Bytes, "Memory limit of the process."),
        (
            "tsd_memory_reserved_bytes",
            Unit::Bytes,
            "Memory of fixed size for caches, memtables and queues, and memory reserved by connections, request \
             bodies and queries, by part.",
        ),
    ] {
        describe_gauge!(name, unit, text);
    }
}

impl std::fmt::Debug for WriteMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteMetrics").finish_non_exhaustive()
    }
}
