//! Metrics of the engine. Handles are created once, never looked up per point.

tsd_storage::metrics_table! {
    /// Metrics of the write actors.
    #[derive(Clone, Debug)]
    pub(crate) struct WriteMetrics {
        counters {
            stored: "tsd_write_points_stored_total", "Points stored.";
            failed: "tsd_write_points_failed_total", "Points that the storage failed to write.";
        }
        histograms {
            batch_seconds: "tsd_write_batch_seconds", Seconds,
                "Duration of the storage call of a write batch.";
        }
    }
    computed {
        counters {
            "tsd_actor_mailbox_rejected_total", "Messages rejected because a mailbox was full.";
            "tsd_actor_restarts_total", "Restarts of an actor after a panic.";
            "tsd_compaction_invalid_rows_total",
                "Rows that row compaction could not merge because their cells conflict.";
            "tsd_compaction_notifications_dropped_total",
                "Rows not queued for compaction because a mailbox was full.";
            "tsd_compaction_queue_rejected_rows_total",
                "Rows not queued for compaction because the queue was full.";
            "tsd_compaction_read_errors_total", "Rows that row compaction failed to read.";
            "tsd_compaction_rows_total", "Rows processed by row compaction.";
            "tsd_compaction_write_errors_total", "Rows that row compaction failed to rewrite.";
            "tsd_compaction_writes_total", "Compacted columns written.";
            "tsd_filter_refused_points_total",
                "Points that the time series filter refused, by kind (raw, aggregate).";
            "tsd_ingest_points_received_total", "Points received, stored or not.";
            "tsd_ingest_unreported_failures_total", "Failed points whose connection had ended.";
            "tsd_limits_refused_series_points_total",
                "Points of new series that were refused because of tsd.limits.series_per_metric.";
            "tsd_memory_refusals_total",
                "Connections, request bodies and queries refused because `tsd.memory.limit` was used up, by part (connections, bodies, queries).";
            "tsd_memory_waits_total",
                "Waits of telnet connections and request bodies for memory, by part (reads, bodies).";
            "tsd_meta_tracking_dropped_total",
                "Series whose meta data was not written, because of overload or an error.";
            "tsd_plugin_delivered_total",
                "Points and annotations that a plug-in has delivered, by plug-in.";
            "tsd_plugin_dropped_total",
                "Points and annotations that did not get to a plug-in: its queue was full, its receiver refused them, or it was stopped.";
            "tsd_plugin_failures_total", "Failed deliveries of a plug-in; most are repeated.";
            "tsd_plugin_waits_total", "Waits of senders for the full queue of a plug-in.";
            "tsd_series_cache_misses_total", "Points whose series was not in the series cache.";
            "tsd_tree_collisions_total",
                "New series that are in no tree because another series has their leaf, once for each tree.";
            "tsd_tree_series_dropped_total",
                "New series that were not placed in trees because too many waited: `tsdb uid treesync` places them.";
            "tsd_tree_series_failed_total",
                "New series that were not placed in a tree because of an error.";
            "tsd_uid_allowed_total", "New names allowed by the UID filter, by kind.";
            "tsd_uid_assigned_total", "UIDs assigned.";
            "tsd_uid_cache_hits_total", "Names and UIDs found in the UID cache.";
            "tsd_uid_cache_misses_total", "Names and UIDs not found in the UID cache.";
            "tsd_uid_creations_forbidden_total",
                "Names that were not created because the sender may not create names of their kind.";
            "tsd_uid_delayed_total", "New names that waited for the limit of their rate.";
            "tsd_uid_filtered_total", "Names rejected by the UID filter, by kind.";
            "tsd_uid_rejected_total", "Names rejected because too many were waiting for a UID.";
            "tsd_write_queue_waits_total", "Waits for the byte budget of the store.";
            "tsd_write_retries_total",
                "Retries of held points: writes and UID requests that the store did not accept.";
        }
        gauges {
            "tsd_actor_mailbox_messages", Count, "Messages in mailboxes.";
            "tsd_compaction_queue_bytes", Bytes, "Size of the row compaction queues.";
            "tsd_compaction_queue_rows", Count, "Rows in the row compaction queues.";
            "tsd_file_invalid", Count,
                "1 if a file that the daemon follows cannot be read, is invalid, or can be written by every user of the machine, so that its former content applies; by what it contains.";
            "tsd_memory_limit_bytes", Bytes, "Memory limit of the process.";
            "tsd_memory_reserved_bytes", Bytes,
                "Memory of fixed size for caches, memtables and queues, and memory reserved by connections, request bodies and queries, by part.";
            "tsd_plugin_queued_bytes", Bytes,
                "Points and annotations that wait for a plug-in or are being delivered.";
            "tsd_series_cache_entries", Count, "Series in the series cache.";
            "tsd_tree_queued_series", Count, "New series that wait to be placed in trees.";
            "tsd_uid_left", Count,
                "UIDs that can still be assigned, by kind. Points with new names are rejected at 0.";
            "tsd_uid_pending_names", Count, "Names that wait for a UID.";
            "tsd_uid_used", Count, "UIDs taken from the counter, by kind.";
            "tsd_write_held_points", Count,
                "Telnet points that are held and retried because the store does not accept them.";
            "tsd_write_queued_bytes", Bytes, "Size of the writes that wait for the store.";
        }
    }
}

impl WriteMetrics {
    pub(crate) fn new() -> Self {
        Self::with_labels(&[])
    }
}

/// Registers the help texts of the metrics of the engine and of its reads.
///
/// Idempotent. Must run after the recorder is installed and before the first metric is recorded.
pub fn describe_metrics() {
    tsd_read::describe_metrics();
    WriteMetrics::describe();
}
