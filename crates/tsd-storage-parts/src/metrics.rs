//! The `tsd_parts_*` metrics. Handles are created once, when a store is opened.

tsd_storage::metrics_table! {
    /// Metrics of one table.
    #[derive(Clone, Debug)]
    pub(crate) struct PartMetrics {
        counters {
            flush_errors: "tsd_parts_flush_errors_total", "Failed flushes.";
            stalls: "tsd_parts_flush_stalls_total",
                "Flushes that stalled on merges (too many sections).";
            flushed_bytes: "tsd_parts_flushed_bytes_total", "Bytes of parts written by flushes.";
            merge_errors: "tsd_parts_merge_errors_total",
                "Merges that failed or lacked disk space.";
            merge_read_bytes: "tsd_parts_merge_read_bytes_total",
                "Bytes of sections that were merged.";
            merged_bytes: "tsd_parts_merged_bytes_total", "Bytes of parts written by merges.";
            summaries: "tsd_parts_summaries_total",
                "Hours and days that queries read as summaries.";
        }
        histograms {
            flush_seconds: "tsd_parts_flush_seconds", Seconds, "Duration of a flush.";
            merge_seconds: "tsd_parts_merge_seconds", Seconds,
                "Duration of a merge, with its pauses.";
        }
    }
    computed {
        counters {
            "tsd_parts_cache_hits_total", "Blocks that were found in the cache.";
            "tsd_parts_cache_misses_total", "Blocks that were read from disk and verified.";
            "tsd_parts_opened_files_total", "Part files opened for reads.";
            "tsd_parts_retention_dropped_bytes_total",
                "Bytes of sections dropped because their spans were expired.";
            "tsd_parts_retention_dropped_spans_total", "Spans dropped because they were expired.";
            "tsd_parts_retention_refused_puts_total",
                "Points refused because they were older than the retention of their metric.";
            "tsd_parts_series_index_built_rows_total",
                "Rows added by builds of the series index: it was missing or damaged.";
            "tsd_parts_series_index_reclaimed_series_total",
                "Series removed from the series index because retention has dropped all of their rows.";
        }
        gauges {
            "tsd_parts_cache_bytes", Bytes, "Size of the cache of heads and blocks.";
            "tsd_parts_cache_capacity_bytes", Bytes, "Capacity of that cache.";
            "tsd_parts_disk_bytes", Bytes, "Size of all part files.";
            "tsd_parts_files", Count, "Part files.";
            "tsd_parts_quarantined_bytes", Bytes, "Size of the files in quarantine.";
            "tsd_parts_quarantined_files", Count,
                "Damaged part files in quarantine, until their loss is accepted.";
            "tsd_parts_retention_clock_ahead_seconds", Seconds,
                "How far the clock is ahead of the time that retention takes for now.";
            "tsd_parts_retention_cutoff_timestamp_seconds", Seconds,
                "Epoch time before which nothing is kept, whatever its metric; 0 without a retention.";
            "tsd_parts_sections", Count, "Live sections of all parts.";
            "tsd_parts_span_sections", Count, "Sections of the span that has most.";
            "tsd_parts_series_index_series", Count, "Series of the data table in the series index.";
            "tsd_parts_series_index_memory_bytes", Bytes, "Memory of the series index, about.";
            "tsd_parts_series_index_complete", Count,
                "1 if queries use the series index, 0 while it is built.";
        }
    }
}

impl PartMetrics {
    pub(crate) fn new(table: &str) -> Self {
        Self::with_labels(&[("table", table.to_owned())])
    }
}

/// Describes every `tsd_parts_*` metric. Idempotent.
pub fn describe_metrics() {
    PartMetrics::describe();
}
