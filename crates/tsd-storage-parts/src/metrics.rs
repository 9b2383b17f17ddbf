//! The `tsd_parts_*` metrics. Handles are created once, when a store is opened.

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    histogram,
};

/// Metrics of one table.
#[derive(Clone, Debug)]
pub(crate) struct PartMetrics {
    pub(crate) flushed_bytes: Counter,
    pub(crate) flush_seconds: Histogram,
    pub(crate) flush_errors: Counter,
    /// Flushes that stalled on merges.
    pub(crate) stalls: Counter,
    pub(crate) merge_read_bytes: Counter,
    pub(crate) merged_bytes: Counter,
    pub(crate) merge_seconds: Histogram,
    /// Merges that failed or lacked disk space.
    pub(crate) merge_errors: Counter,
    /// Time in which merges waited for reads.
    pub(crate) merge_pause_seconds: Histogram,
    /// Hours and days that were read as summaries, and their points.
    pub(crate) summaries: Counter,
    pub(crate) summarized_points: Counter,
}

impl PartMetrics {
    pub(crate) fn new(table: &str) -> Self {
        let labels = [("table", table.to_owned())];
        Self {
            flushed_bytes: counter!("tsd_parts_flushed_bytes_total", &labels),
            flush_seconds: histogram!("tsd_parts_flush_seconds", &labels),
            flush_errors: counter!("tsd_parts_flush_errors_total", &labels),
            stalls: counter!("tsd_parts_flush_stalls_total", &labels),
            merge_read_bytes: counter!("tsd_parts_merge_read_bytes_total", &labels),
            merged_bytes: counter!("tsd_parts_merged_bytes_total", &labels),
            merge_seconds: histogram!("tsd_parts_merge_seconds", &labels),
            merge_errors: counter!("tsd_parts_merge_errors_total", &labels),
            merge_pause_seconds: histogram!("tsd_parts_merge_pause_seconds", &labels),
            summaries: counter!("tsd_parts_summaries_total", &labels),
            summarized_points: counter!("tsd_parts_summarized_points_total", &labels),
        }
    }
}

/// Describes every `tsd_parts_*` metric. Idempotent.
pub fn describe_metrics() {
    for (name, text) in [
        ("tsd_parts_cache_hits_total", "Blocks that were found in the cache."),
        ("tsd_parts_cache_misses_total", "Blocks that were read from disk and verified."),
        ("tsd_parts_flush_errors_total", "Failed flushes."),
        ("tsd_parts_flush_stalls_total", "Flushes that stalled on merges (too many sections)."),
        ("tsd_parts_flushed_bytes_total", "Bytes of parts written by flushes."),
        ("tsd_parts_manifest_bytes_total", "Bytes of manifests written."),
        ("tsd_parts_merge_errors_total", "Merges that failed or lacked disk space."),
        ("tsd_parts_merge_read_bytes_total", "Bytes of sections that were merged."),
        ("tsd_parts_merged_bytes_total", "Bytes of parts written by merges."),
        ("tsd_parts_opened_files_total", "Part files opened for reads."),
        (
            "tsd_parts_retention_dropped_bytes_total",
            "Bytes of sections dropped because their spans were expired.",
        ),
        ("tsd_parts_retention_dropped_spans_total", "Spans dropped because they were expired."),
        (
            "tsd_parts_retention_refused_puts_total",
            "Points refused because they were older than the retention of their metric.",
        ),
        (
            "tsd_parts_series_index_built_rows_total",
            "Rows added by builds of the series index: it was missing or damaged.",
        ),
        (
            "tsd_parts_series_index_reclaimed_series_total",
            "Series removed from the series index because retention has dropped all of their rows.",
        ),
        ("tsd_parts_summaries_total", "Hours and days that queries read as summaries."),
        (
            "tsd_parts_summarized_points_total",
            "Points that queries did not decode, because they read summaries of their hours or days.",
        ),
    ] {
        describe_counter!(name, text);
    }
    for (name, unit, text) in [
        ("tsd_parts_cache_bytes", Unit::Bytes, "Size of the cache of heads and blocks."),
        ("tsd_parts_cache_capacity_bytes", Unit::Bytes, "Capacity of that cache."),
        ("tsd_parts_disk_bytes", Unit::Bytes, "Size of all part files."),
        ("tsd_parts_files", Unit::Count, "Part files."),
        ("tsd_parts_open_files", Unit::Count, "Part files that are kept open."),
        ("tsd_parts_quarantined_bytes", Unit::Bytes, "Size of the files in quarantine."),
        (
            "tsd_parts_quarantined_files",
            Unit::Count,
            "Damaged part files in quarantine, until their loss is accepted.",
        ),
        (
            "tsd_parts_retention_clock_ahead_seconds",
            Unit::Seconds,
            "How far the clock is ahead of the time that retention takes for now.",
        ),
        (
            "tsd_parts_retention_cutoff_timestamp_seconds",
            Unit::Seconds,
            "Epoch time before which nothing is kept, whatever its metric; 0 without a retention.",
        ),
        (
            "tsd_parts_retention_file_invalid",
            Unit::Count,
            "1 if the file of retentions by metric is invalid, so that its former rules apply.",
        ),
        ("tsd_parts_sections", Unit::Count, "Live sections of all parts."),
        ("tsd_parts_span_sections", Unit::Count, "Sections of the span that has most."),
        (
            "tsd_parts_series_index_series",
            Unit::Count,
            "Series of the data table in the series index.",
        ),
        ("tsd_parts_series_index_metrics", Unit::Count, "Metrics in the series index."),
        ("tsd_parts_series_index_memory_bytes", Unit::Bytes, "Memory of the series index, about."),
        (
            "tsd_parts_series_index_complete",
            Unit::Count,
            "1 if queries use the series index, 0 while it is built.",
        ),
        (
            "tsd_parts_series_index_load_seconds",
            Unit::Seconds,
            "Duration of the load of the series index at the start.",
        ),
    ] {
        describe_gauge!(name, unit, text);
    }
    for (name, text) in [
        ("tsd_parts_flush_seconds", "Duration of a flush."),
        ("tsd_parts_merge_seconds", "Duration of a merge, with its pauses."),
        ("tsd_parts_merge_pause_seconds", "Pauses in which a merge left the processor to reads."),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
}
