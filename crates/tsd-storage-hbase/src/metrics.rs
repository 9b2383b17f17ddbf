//! The `tsd_hbase_*` metrics: the client's counters under Prometheus names.
//!
//! The client uses no metrics library. Metrics without labels are gauges of the store.
//! [`publish_metrics`] sets metrics with labels. Latencies are recorded when calls complete.

use std::{borrow::Cow, time::Duration};

use hbase_rs::{
    Client, ClientConfig,
    stats::{ClientStats, RetryReason},
};
use metrics::{counter, gauge, histogram};
use tokio::time::MissedTickBehavior;

/// Interval between two reads of the client's counters.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(5);

/// Points put again because an older value superseded them.
pub(crate) const RESTORED_POINTS: &str = "tsd_hbase_restored_points_total";
/// Points that are not read back a second time because too many points wait for that.
pub(crate) const READ_BACK_DROPPED_POINTS: &str = "tsd_hbase_read_back_dropped_points_total";

/// Rows whose write left points to the second read-back.
pub(crate) const READ_BACK_DEFERRED_ROWS: &str = "tsd_hbase_read_back_deferred_rows_total";
/// Time that writes waited for the first read-back of their rows.
pub(crate) const READ_BACK_WAIT_SECONDS: &str = "tsd_hbase_read_back_wait_seconds";

tsd_storage::metrics_table! {
    /// Describes every `tsd_hbase_*` metric. Idempotent.
    pub fn describe_metrics() {
        counters {
            "tsd_hbase_call_failures_total", "Calls without a response, over all methods.";
            "tsd_hbase_calls_total", "Calls started.";
            "tsd_hbase_connection_failures_total", "Connections that could not be established.";
            "tsd_hbase_mutation_failures_total", "Buffered mutations that failed permanently.";
            "tsd_hbase_pressure_pause_seconds_total",
                "Sum of the pauses of writes to single regions because their memstores fill up.";
            READ_BACK_DEFERRED_ROWS,
                "Rows that were written while another daemon compacted them: they are read back a second time before all of their points are known to be read.";
            READ_BACK_DROPPED_POINTS,
                "Points of past hours that are not read back a second time, because too many wait for that.";
            "tsd_hbase_received_bytes_total", "Bytes received from HBase.";
            RESTORED_POINTS,
                "Points put again, because a column that another daemon compacted superseded them or its delete hid them.";
            "tsd_hbase_retries_total", "Retried attempts, by reason.";
            "tsd_hbase_rpc_failures_total", "Calls without a response, by method.";
            "tsd_hbase_rpcs_total", "Calls with a response, by method.";
            "tsd_hbase_sent_bytes_total", "Bytes sent to HBase.";
            "tsd_hbase_series_index_log_conflicts_total",
                "Entries of the registration log that another daemon appended first.";
            "tsd_hbase_series_index_log_entries_total", "Entries of the registration log read or appended.";
            "tsd_hbase_series_index_registered_series_total", "Series registered by this daemon.";
            "tsd_hbase_series_index_scanned_rows_total",
                "Rows whose keys were read to fill the series index.";
        }
        gauges {
            "tsd_hbase_buffer_unavailable_bytes", Bytes,
                "Buffered mutations of regions that are unavailable.";
            "tsd_hbase_buffered_bytes", Bytes, "Buffered mutations that are not complete.";
            "tsd_hbase_cached_regions", Count, "Regions in the region cache.";
            "tsd_hbase_calls_in_flight", Count, "Calls in flight.";
            "tsd_hbase_connections", Count, "Open connections.";
            "tsd_hbase_read_back_bytes", Bytes,
                "Points of past hours that wait to be read back a second time.";
            "tsd_hbase_read_back_rows", Count,
                "Rows of past hours that wait to be read back a second time.";
            "tsd_hbase_regions_under_pressure", Count,
                "Regions that are written to more slowly because their memstores fill up.";
            "tsd_hbase_request_in_flight_bytes", Bytes, "Requests of the calls in flight.";
            "tsd_hbase_series_index_closed", Count,
                "1 if the registration log was closed: queries scan, and series are not registered.";
            "tsd_hbase_series_index_complete", Count,
                "1 if queries rely on the series index, 0 if they do not or not yet.";
            "tsd_hbase_series_index_memory_bytes", Bytes,
                "Memory of the series index of the data table, about.";
            "tsd_hbase_series_index_series", Count, "Series in the series index.";
            "tsd_hbase_server_calls_in_flight", Count, "Calls in flight, by server.";
            "tsd_hbase_unavailable_regions", Count, "Regions that are unavailable for writes.";
        }
        histograms {
            READ_BACK_WAIT_SECONDS, Seconds,
                "How long a flush, or a put that HBase executed late, waited for reading its rows back.";
            "tsd_hbase_rpc_seconds", Seconds,
                "Latency of the calls with a response, by method, with the wait for admission.";
        }
    }
}

/// Records the latency of every call of the client in `tsd_hbase_rpc_seconds`.
#[must_use]
pub(crate) fn with_rpc_metrics(config: ClientConfig) -> ClientConfig {
    config.observe_latency(|method, latency| {
        histogram!("tsd_hbase_rpc_seconds", "method" => method).record(latency);
    })
}

/// Sets the metrics that have labels, every five seconds. Does not return.
pub async fn publish_metrics(client: Client) {
    let mut interval = tokio::time::interval(PUBLISH_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        set_labelled(&client.stats());
    }
}

fn set_labelled(stats: &ClientStats) {
    for of in &stats.methods {
        let method = of.method;
        counter!("tsd_hbase_rpcs_total", "method" => method).absolute(of.latency.count);
        counter!("tsd_hbase_rpc_failures_total", "method" => method).absolute(of.failed);
    }
    for (reason, count) in &stats.retries {
        counter!("tsd_hbase_retries_total", "reason" => reason_label(*reason)).absolute(*count);
    }
    for of in &stats.servers {
        let server = format!("{}:{}", of.server.host(), of.server.port());
        gauge!("tsd_hbase_server_calls_in_flight", "server" => server)
            .set(of.traffic.calls_in_flight as f64);
    }
}

fn reason_label(reason: RetryReason) -> Cow<'static, str> {
    match reason {
        RetryReason::Exception(class) => format!("{class:?}").into(),
        other => format!("{other:?}").to_lowercase().into(),
    }
}

/// Returns names and values of the metrics without labels. `registry` has the metrics of the series
/// index.
pub(crate) fn gauges(
    stats: &ClientStats,
    (read_back_rows, read_back_bytes): (usize, usize),
    registry: impl IntoIterator<Item = (&'static str, u64)>,
) -> Vec<(&'static str, f64)> {
    let failed: u64 = stats.methods.iter().map(|method| method.failed).sum();
    let (total, buffers) = (&stats.total, &stats.buffers);
    [
        ("tsd_hbase_connections", total.connections),
        ("tsd_hbase_connection_failures_total", total.connections_failed),
        ("tsd_hbase_calls_total", total.calls),
        ("tsd_hbase_call_failures_total", failed),
        ("tsd_hbase_calls_in_flight", total.calls_in_flight),
        ("tsd_hbase_request_in_flight_bytes", total.bytes_in_flight),
        ("tsd_hbase_sent_bytes_total", total.bytes_sent),
        ("tsd_hbase_received_bytes_total", total.bytes_received),
        ("tsd_hbase_cached_regions", stats.cached_regions),
        ("tsd_hbase_buffered_bytes", buffers.bytes),
        ("tsd_hbase_buffer_unavailable_bytes", buffers.unavailable_bytes),
        ("tsd_hbase_unavailable_regions", buffers.unavailable_regions),
        ("tsd_hbase_regions_under_pressure", buffers.regions_under_pressure),
        ("tsd_hbase_read_back_rows", read_back_rows as u64),
        ("tsd_hbase_read_back_bytes", read_back_bytes as u64),
        ("tsd_hbase_mutation_failures_total", buffers.failed),
    ]
    .into_iter()
    .chain(registry)
    .map(|(name, value)| (name, value as f64))
    .chain([("tsd_hbase_pressure_pause_seconds_total", buffers.pressure_pauses.as_secs_f64())])
    .collect()
}
