//! Metrics of this crate, and the Prometheus recorder of the process.
//!
//! The recorder behind `metrics` cannot be read back, so this module keeps a second copy of the counters
//! that `stats` reports. Label values come from fixed lists: a client cannot add a series.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use tsd_protocol::{BuildInfo, PutErrorKind};

use crate::{auth, latency::LatencyHistogram, process, route::Route};

/// Upper bounds of the buckets of `_seconds` histograms: steps of factor four to five, from a call of the
/// embedded store to a slow query. Each bound costs a series in every histogram.
const SECONDS_BUCKETS: [f64; 8] = [0.000_2, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];
/// Upper bounds of the buckets of `_bytes` histograms.
const BYTES_BUCKETS: [f64; 5] = [1_024.0, 16_384.0, 262_144.0, 4_194_304.0, 67_108_864.0];
/// Upper bounds of the buckets of all other histograms, which are counts.
const COUNT_BUCKETS: [f64; 6] = [1.0, 16.0, 256.0, 4_096.0, 65_536.0, 1_048_576.0];

/// Installs the process-wide recorder that `/metrics` renders.
///
/// Must run once, before any metric handle is created. Every histogram gets fixed buckets, selected
/// by the unit suffix of its name, so that histograms of several daemons can be summed.
///
/// # Errors
///
/// Fails if a recorder is already installed.
pub fn install_metrics() -> Result<PrometheusHandle, BuildError> {
    process::note_start();
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES_BUCKETS)?
        .set_buckets(&COUNT_BUCKETS)?
        .install_recorder()
}

/// A counter that is exported to Prometheus and can also be read.
#[derive(Debug)]
pub(crate) struct ReadableCounter {
    value: AtomicU64,
    exported: Counter,
}

impl ReadableCounter {
    const fn new(exported: Counter) -> Self {
        Self { value: AtomicU64::new(0), exported }
    }

    pub(crate) fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Relaxed);
        self.exported.increment(n);
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Metrics of one HTTP route.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    /// By the first digit of the status, 2 to 5.
    responses: [Counter; 4],
    seconds: Histogram,
}

/// Metric handles of a server.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    pub(crate) connections_total: ReadableCounter,
    pub(crate) connections_rejected: ReadableCounter,
    pub(crate) exceptions_closed: ReadableCounter,
    pub(crate) exceptions_reset: ReadableCounter,
    pub(crate) exceptions_timeout: ReadableCounter,
    pub(crate) exceptions_unknown: ReadableCounter,
    pub(crate) received_telnet: ReadableCounter,
    pub(crate) received_http: ReadableCounter,
    pub(crate) received_put: ReadableCounter,
    pub(crate) rpc_exceptions: ReadableCounter,
    pub(crate) forbidden_telnet: ReadableCounter,
    pub(crate) forbidden_http: ReadableCounter,
    pub(crate) unauthorized_telnet: ReadableCounter,
    pub(crate) unauthorized_http: ReadableCounter,
    pub(crate) query_unauthorized: ReadableCounter,
    pub(crate) query_forbidden: ReadableCounter,
    storage_errors: ReadableCounter,
    invalid_values: ReadableCounter,
    illegal_arguments: ReadableCounter,
    unknown_metrics: ReadableCounter,
    pub(crate) socket_writes_blocked: ReadableCounter,
    pub(crate) query_invalid: ReadableCounter,
    pub(crate) query_exceptions: ReadableCounter,
    pub(crate) query_success: ReadableCounter,
    pub(crate) telnet_read_bytes: Counter,
    pub(crate) telnet_long_lines: Counter,
    pub(crate) http_body_bytes: Histogram,
    pub(crate) http_latency: LatencyHistogram,
    /// Drawn pictures.
    pub(crate) graphs: ReadableCounter,
    pub(crate) graph_latency: LatencyHistogram,
    /// Created at the first request of a route: most are never used, and each has a histogram.
    routes: Vec<OnceLock<RouteMetrics>>,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        describe_metrics();
        let readable = ReadableCounter::new;
        let exception = |kind: &'static str| {
            readable(counter!("tsd_server_connection_errors_total", "type" => kind))
        };
        let put_error =
            |kind: &'static str| readable(counter!("tsd_server_put_errors_total", "type" => kind));
        let query = |outcome: &'static str| {
            readable(counter!("tsd_server_queries_total", "outcome" => outcome))
        };
        let received = |protocol: &'static str| {
            readable(counter!("tsd_server_requests_total", "protocol" => protocol))
        };
        let forbidden = |protocol: &'static str| {
            readable(counter!("tsd_server_requests_forbidden_total", "protocol" => protocol))
        };
        let unauthorized = |protocol: &'static str| {
            readable(counter!("tsd_server_requests_unauthorized_total", "protocol" => protocol))
        };
        Self {
            connections_total: readable(counter!("tsd_server_connections_total")),
            connections_rejected: readable(counter!("tsd_server_connections_rejected_total")),
            exceptions_closed: exception("closed"),
            exceptions_reset: exception("reset"),
            exceptions_timeout: exception("timeout"),
            exceptions_unknown: exception("unknown"),
            received_telnet: received("telnet"),
            received_http: received("http"),
            received_put: readable(counter!("tsd_server_points_received_total")),
            rpc_exceptions: readable(counter!("tsd_server_request_failures_total")),
            forbidden_telnet: forbidden("telnet"),
            forbidden_http: forbidden("http"),
            unauthorized_telnet: unauthorized("telnet"),
            unauthorized_http: unauthorized("http"),
            query_unauthorized: query("unauthorized"),
            query_forbidden: query("forbidden"),
            storage_errors: put_error("storage"),
            invalid_values: put_error("invalid_value"),
            illegal_arguments: put_error("illegal_argument"),
            unknown_metrics: put_error("unknown_name"),
            socket_writes_blocked: readable(counter!("tsd_server_responses_dropped_total")),
            query_invalid: query("invalid"),
            query_exceptions: query("failed"),
            query_success: query("success"),
            telnet_read_bytes: counter!("tsd_server_telnet_read_bytes_total"),
            telnet_long_lines: counter!("tsd_server_telnet_long_lines_total"),
            http_body_bytes: histogram!("tsd_server_http_body_bytes"),
            http_latency: LatencyHistogram::default(),
            graphs: readable(counter!("tsd_server_graphs_total")),
            graph_latency: LatencyHistogram::default(),
            routes: Route::ALL.iter().map(|_| OnceLock::new()).collect(),
        }
    }
}

impl RouteMetrics {
    fn new(route: &'static str) -> Self {
        let responses = |class: &'static str| counter!("tsd_server_http_responses_total", "route" => route, "status" => class);
        Self {
            responses: [responses("2xx"), responses("3xx"), responses("4xx"), responses("5xx")],
            seconds: histogram!("tsd_server_http_request_seconds", "route" => route),
        }
    }
}

impl ServerMetrics {
    /// Records a request whose response is ready.
    pub(crate) fn request_completed(&self, route: Route, status: u16, took: Duration) {
        self.http_latency.record(took);
        if status >= 500 {
            self.rpc_exceptions.add(1);
        }
        let slot = self.routes.get(route as usize).zip(Route::ALL.get(route as usize));
        let Some((metrics, (_, label))) = slot else { return };
        let metrics = metrics.get_or_init(|| RouteMetrics::new(label));
        metrics.seconds.record(took.as_secs_f64());
        if let Some(counter) = metrics.responses.get(usize::from(status / 100).saturating_sub(2)) {
            counter.increment(1);
        }
    }

    /// Records a picture.
    pub(crate) fn graph_drawn(&self, took: Duration) {
        self.graphs.add(1);
        self.graph_latency.record(took);
    }

    /// Returns the counter of points rejected for this kind of error.
    pub(crate) fn put_errors(&self, kind: PutErrorKind) -> &ReadableCounter {
        match kind {
            PutErrorKind::Storage => &self.storage_errors,
            PutErrorKind::InvalidValue => &self.invalid_values,
            PutErrorKind::IllegalArgument => &self.illegal_arguments,
            PutErrorKind::UnknownMetric => &self.unknown_metrics,
        }
    }

    /// Counts a connection that ended with an error.
    pub(crate) fn connection_failed(&self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::TimedOut => &self.exceptions_timeout,
            io::ErrorKind::ConnectionReset => &self.exceptions_reset,
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected => &self.exceptions_closed,
            _ => &self.exceptions_unknown,
        }
        .add(1);
    }
}

/// Publishes the build of this process.
pub(crate) fn publish_build(build: &BuildInfo) {
    let known = |text: &str| if text.is_empty() { "unknown" } else { text }.to_owned();
    gauge!(
        "tsd_build_info",
        "version" => known(&build.version),
        "revision" => known(&build.full_revision),
        "rustc" => known(&build.rustc)
    )
    .set(1.0);
}

/// Describes every metric of this crate to the current recorder. Idempotent.
pub fn describe_metrics() {
    process::describe();
    auth::describe_metrics();
    describe_gauge!(
        "tsd_build_info",
        Unit::Count,
        "Always 1; version, revision and compiler are labels."
    );
    describe_gauge!("tsd_server_connections_open", Unit::Count, "Open connections.");
    describe_gauge!(
        "tsd_health_problem",
        Unit::Count,
        "Worst problem of a part, by part: 0 none, 1 degraded, 2 some reads fail, 3 writes are \
         rejected, 4 unavailable."
    );
    describe_counter!(
        "tsd_server_telnet_read_bytes_total",
        Unit::Bytes,
        "Bytes read from telnet connections."
    );
    for (name, text) in [
        ("tsd_server_connections_total", "Connections accepted."),
        (
            "tsd_server_connections_rejected_total",
            "New connections rejected because of `tsd.core.connections.limit` or `tsd.memory.limit`.",
        ),
        (
            "tsd_server_connection_errors_total",
            "Connections that ended with an error, by type (closed, reset, timeout, unknown).",
        ),
        (
            "tsd_server_requests_total",
            "Telnet commands and HTTP requests received, by protocol (telnet, http).",
        ),
        (
            "tsd_server_requests_forbidden_total",
            "Requests rejected because of their sender (`tsd.core.admin.peers`, permissions of users, pages of \
             other sites), by protocol (telnet, http).",
        ),
        (
            "tsd_server_requests_unauthorized_total",
            "Requests and telnet lines rejected because their sender is not authenticated, by protocol \
             (telnet, http).",
        ),
        (
            "tsd_server_points_received_total",
            "Write requests received: telnet lines and HTTP requests.",
        ),
        ("tsd_server_request_failures_total", "Requests that failed inside the daemon."),
        (
            "tsd_server_put_errors_total",
            "Points not stored, by type (storage, invalid_value, illegal_argument, \
             unknown_name).",
        ),
        (
            "tsd_server_telnet_long_lines_total",
            "Telnet lines skipped because they are longer than `tsd.network.max_line_length`.",
        ),
        (
            "tsd_server_connections_idle_closed_total",
            "Idle connections closed to make room for new ones, by `tsd.core.connections.limit` or \
             `tsd.memory.limit`.",
        ),
        (
            "tsd_server_responses_dropped_total",
            "Telnet error lines dropped because the client did not read them.",
        ),
        (
            "tsd_server_stalled_bodies_total",
            "Request bodies aborted because they stalled while other requests waited for memory.",
        ),
        (
            "tsd_server_stalled_responses_total",
            "Responses aborted because their clients read too slowly while other requests waited for memory.",
        ),
        (
            "tsd_server_queries_total",
            "Queries, by outcome (success, invalid, failed, unauthorized, forbidden).",
        ),
        (
            "tsd_server_log_events_total",
            "Events written to the log, by level (error, warn, info, debug, trace).",
        ),
        ("tsd_server_graphs_total", "Pictures of graphs drawn."),
        ("tsd_server_http_responses_total", "HTTP responses, by route and status class."),
    ] {
        describe_counter!(name, Unit::Count, text);
    }
    describe_histogram!(
        "tsd_server_http_request_seconds",
        Unit::Seconds,
        "Time from the head of a request to the head of its response, by route."
    );
    describe_histogram!(
        "tsd_server_http_body_bytes",
        Unit::Bytes,
        "Size of request bodies after decompression."
    );
}
