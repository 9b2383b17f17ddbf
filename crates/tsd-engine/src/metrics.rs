//! Handles of what the engine counts. They are held, never looked up per point.

use metrics::{Counter, Histogram, Unit, describe_counter, describe_gauge, describe_histogram};

/// Metrics of the write actors.
#[derive(Clone)]
pub(crate) struct WriteMetrics {
    pub(crate) points_per_write: Histogram,
    pub(crate) write_seconds: Histogram,
    pub(crate) stored: Counter,
    pub(crate) failed: Counter,
}

impl WriteMetrics {
    pub(crate) fn new() -> Self {
        Self {
            points_per_write: metrics::histogram!("tsd_write_points_per_call"),
            write_seconds: metrics::histogram!("tsd_write_store_seconds"),
            stored: metrics::counter!("tsd_write_points_stored_total"),
            failed: metrics::counter!("tsd_write_points_failed_total"),
        }
    }
}

/// Help texts of everything the engine counts. It must run before the first handle is taken.
pub(crate) fn describe_metrics() {
    for (name, text) in [
        ("tsd_actor_mailbox_full_total", "Orders refused because a mailbox was full."),
        ("tsd_actor_restarts_total", "Times an actor was made anew after a panic."),
        ("tsd_compaction_deletes_total", "Columns that row compaction deleted."),
        ("tsd_compaction_illegal_rows_total", "Rows whose cells contradict each other."),
        (
            "tsd_compaction_notices_lost_total",
            "Rows never queued for compaction, for want of room in a mailbox.",
        ),
        (
            "tsd_compaction_queue_refused_rows_total",
            "Rows never queued for compaction, for want of room in the queue.",
        ),
        ("tsd_compaction_read_errors_total", "Rows that row compaction could not read."),
        ("tsd_compaction_rows_total", "Rows that row compaction looked at."),
        ("tsd_compaction_write_errors_total", "Rows that row compaction could not rewrite."),
        ("tsd_compaction_writes_total", "Compacted columns put."),
        ("tsd_ingest_points_received_total", "Points taken in, stored or not."),
        (
            "tsd_ingest_unreported_failures_total",
            "Points that failed when nobody read the replies.",
        ),
        ("tsd_meta_tracking_lost_total", "Series of which the meta table was not told in time."),
        ("tsd_query_cancelled_total", "Queries cancelled, by their client or by an operator."),
        ("tsd_query_refused_total", "Queries that a limit ended, by limit."),
        ("tsd_series_cache_evictions_total", "Series evicted from the cache of series."),
        ("tsd_series_cache_misses_total", "Points whose series was not in the cache of series."),
        ("tsd_uid_assigned_total", "UIDs assigned."),
        ("tsd_uid_cache_hits_total", "Names and UIDs found in the cache."),
        ("tsd_uid_cache_misses_total", "Names and UIDs not found in the cache."),
        ("tsd_uid_random_collisions_total", "Random UIDs that were taken already."),
        ("tsd_uid_throttled_total", "Names refused because too many waited for a UID."),
        ("tsd_write_points_failed_total", "Points the store refused."),
        ("tsd_write_points_stored_total", "Points the store took."),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_actor_mailbox_orders", Unit::Count, "Orders waiting in mailboxes."),
        ("tsd_compaction_queue_bytes", Unit::Bytes, "Size of the queues of row compaction."),
        ("tsd_compaction_queue_rows", Unit::Count, "Rows waiting for row compaction."),
        ("tsd_query_memory_bytes", Unit::Bytes, "Memory that queries hold."),
        ("tsd_query_memory_limit_bytes", Unit::Bytes, "Memory that queries may hold; 0: no limit."),
        ("tsd_query_running", Unit::Count, "Queries without an answer, or whose answer is sent."),
        ("tsd_query_waiting", Unit::Count, "Queries that wait to be let in."),
        ("tsd_query_waiting_for_turns", Unit::Count, "Queries that wait for a processor."),
        ("tsd_series_cache_entries", Unit::Count, "Series in the cache of series."),
        ("tsd_uid_cache_entries", Unit::Count, "Names in the cache of UIDs."),
        ("tsd_uid_pending_names", Unit::Count, "Names waiting for a UID."),
        ("tsd_write_queued_bytes", Unit::Bytes, "Size of the points waiting for the store."),
    ] {
        describe_gauge!(name, unit, text);
    }
    for (name, unit, text) in [
        ("tsd_query_seconds", Unit::Seconds, "Time until a query was answered, by outcome."),
        ("tsd_write_points_per_call", Unit::Count, "Points in one call of the store."),
        ("tsd_write_store_seconds", Unit::Seconds, "Time the store took for points."),
    ] {
        describe_histogram!(name, unit, text);
    }
}

impl std::fmt::Debug for WriteMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteMetrics").finish_non_exhaustive()
    }
}
