//! What the client counts, under the names that an operator watches.

use hbase_rs::ClientStats;

/// Names and values for the store's gauges.
pub(crate) fn of(stats: &ClientStats) -> Vec<(&'static str, f64)> {
    let retries: u64 = stats.retries.iter().map(|(_, count)| count).sum();
    let failed: u64 = stats.methods.iter().map(|method| method.failed).sum();
    let (total, buffers) = (&stats.total, &stats.buffers);
    [
        ("tsd_hbase_connections", total.connections),
        ("tsd_hbase_connections_failed_total", total.connections_failed),
        ("tsd_hbase_calls_total", total.calls),
        ("tsd_hbase_calls_failed_total", failed),
        ("tsd_hbase_calls_in_flight", total.calls_in_flight),
        ("tsd_hbase_request_in_flight_bytes", total.bytes_in_flight),
        ("tsd_hbase_waits_for_room_total", total.waits_for_room),
        ("tsd_hbase_sent_bytes_total", total.bytes_sent),
        ("tsd_hbase_received_bytes_total", total.bytes_received),
        ("tsd_hbase_retries_total", retries),
        ("tsd_hbase_regions_known", stats.regions_known),
        ("tsd_hbase_region_misses_total", stats.region_misses),
        ("tsd_hbase_lookups_total", stats.lookups),
        ("tsd_hbase_scanners_opened_total", stats.scanners_opened),
        ("tsd_hbase_scanners_reopened_total", stats.scanners_reopened),
        ("tsd_hbase_batches_total", stats.batches),
        ("tsd_hbase_batch_actions_total", stats.batch_actions),
        ("tsd_hbase_buffered_bytes", buffers.bytes),
        ("tsd_hbase_spare_bytes", buffers.spare_bytes),
        ("tsd_hbase_parked_bytes", buffers.parked_bytes),
        ("tsd_hbase_parked_regions", buffers.parked_regions),
        ("tsd_hbase_mutations_written_total", buffers.written),
        ("tsd_hbase_mutations_failed_total", buffers.failed),
    ]
    .into_iter()
    .map(|(name, value)| (name, value as f64))
    .collect()
}
