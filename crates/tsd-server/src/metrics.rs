//! Everything this crate counts.
//!
//! The recorder behind `metrics` cannot be read back, so that what `stats` must tell is counted a second
//! time here. Labels take their values from fixed lists: a client cannot add a series.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use tsd_protocol::PutErrorKind;

use crate::{http::Route, latency::LatencyHistogram};

/// Upper bounds of latency buckets, in seconds.
const SECONDS_BUCKETS: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0, 60.0,
];
/// Upper bounds of size buckets, in bytes.
const BYTES_BUCKETS: [f64; 8] =
    [256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 16_777_216.0];
/// Upper bounds of buckets of anything else that is counted.
const COUNT_BUCKETS: [f64; 10] =
    [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 1_048_576.0];

/// Installs the process-wide recorder that `/metrics` renders.
///
/// It must run before anything takes a handle of a metric, and once. Every histogram gets fixed buckets,
/// chosen by the unit at the end of its name, so that daemons can be summed.
pub fn install_metrics() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES_BUCKETS)?
        .set_buckets(&COUNT_BUCKETS)?
        .install_recorder()
}

/// A counter that can be read.
#[derive(Debug)]
pub(crate) struct Tally {
    value: AtomicU64,
    exported: Counter,
}

impl Tally {
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

/// Requests of one route.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    /// By the first digit of the status, from 2 to 5.
    answered: [Counter; 4],
    seconds: Histogram,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) connections_open: Gauge,
    pub(crate) connections_total: Tally,
    pub(crate) connections_rejected: Tally,
    pub(crate) exceptions_closed: Tally,
    pub(crate) exceptions_reset: Tally,
    pub(crate) exceptions_timeout: Tally,
    pub(crate) exceptions_unknown: Tally,
    pub(crate) received_telnet: Tally,
    pub(crate) received_http: Tally,
    pub(crate) received_put: Tally,
    pub(crate) rpc_exceptions: Tally,
    storage_errors: Tally,
    invalid_values: Tally,
    illegal_arguments: Tally,
    unknown_metrics: Tally,
    pub(crate) socket_writes_blocked: Tally,
    pub(crate) query_invalid: Tally,
    pub(crate) query_exceptions: Tally,
    pub(crate) query_success: Tally,
    pub(crate) telnet_read_bytes: Counter,
    pub(crate) http_body_bytes: Histogram,
    pub(crate) http_latency: LatencyHistogram,
    routes: Vec<RouteMetrics>,
}

impl Default for Counters {
    fn default() -> Self {
        describe();
        let tally = Tally::new;
        let exception = |kind: &'static str| {
            tally(counter!("tsd_server_connection_errors_total", "type" => kind))
        };
        let put_error =
            |kind: &'static str| tally(counter!("tsd_server_put_errors_total", "type" => kind));
        let query = |outcome: &'static str| {
            tally(counter!("tsd_server_queries_total", "outcome" => outcome))
        };
        let received = |protocol: &'static str| {
            tally(counter!("tsd_server_requests_total", "protocol" => protocol))
        };
        Self {
            connections_open: gauge!("tsd_server_connections_open"),
            connections_total: tally(counter!("tsd_server_connections_total")),
            connections_rejected: tally(counter!("tsd_server_connections_rejected_total")),
            exceptions_closed: exception("closed"),
            exceptions_reset: exception("reset"),
            exceptions_timeout: exception("timeout"),
            exceptions_unknown: exception("unknown"),
            received_telnet: received("telnet"),
            received_http: received("http"),
            received_put: tally(counter!("tsd_server_points_received_total")),
            rpc_exceptions: tally(counter!("tsd_server_request_failures_total")),
            storage_errors: put_error("storage"),
            invalid_values: put_error("invalid_value"),
            illegal_arguments: put_error("illegal_argument"),
            unknown_metrics: put_error("unknown_name"),
            socket_writes_blocked: tally(counter!("tsd_server_replies_dropped_total")),
            query_invalid: query("invalid"),
            query_exceptions: query("failed"),
            query_success: query("success"),
            telnet_read_bytes: counter!("tsd_server_telnet_read_bytes_total"),
            http_body_bytes: histogram!("tsd_server_http_body_bytes"),
            http_latency: LatencyHistogram::default(),
            routes: Route::ALL.iter().map(|route| RouteMetrics::new(route.label())).collect(),
        }
    }
}

impl RouteMetrics {
    fn new(route: &'static str) -> Self {
        let answered = |class: &'static str| counter!("tsd_server_http_responses_total", "route" => route, "status" => class);
        Self {
            answered: [answered("2xx"), answered("3xx"), answered("4xx"), answered("5xx")],
            seconds: histogram!("tsd_server_http_request_seconds", "route" => route),
        }
    }
}

impl Counters {
    /// Accounts for an answered request.
    pub(crate) fn answered(&self, route: Route, status: u16, took: Duration) {
        self.http_latency.record(took);
        if status >= 500 {
            self.rpc_exceptions.add(1);
        }
        let Some(metrics) = self.routes.get(route as usize) else { return };
        metrics.seconds.record(took.as_secs_f64());
        if let Some(counter) = metrics.answered.get(usize::from(status / 100).saturating_sub(2)) {
            counter.increment(1);
        }
    }

    /// Points that failed in this way.
    pub(crate) fn put_errors(&self, kind: PutErrorKind) -> &Tally {
        match kind {
            PutErrorKind::Storage => &self.storage_errors,
            PutErrorKind::InvalidValue => &self.invalid_values,
            PutErrorKind::IllegalArgument => &self.illegal_arguments,
            PutErrorKind::UnknownMetric => &self.unknown_metrics,
        }
    }

    /// Accounts for a connection that did not end in peace.
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

fn describe() {
    describe_gauge!("tsd_server_connections_open", Unit::Count, "Connections open now.");
    for (name, text) in [
        ("tsd_server_connections_total", "Connections accepted."),
        ("tsd_server_connections_rejected_total", "Connections closed because too many were open."),
        ("tsd_server_connection_errors_total", "Connections that ended by an error."),
        ("tsd_server_requests_total", "Telnet commands and HTTP requests received."),
        (
            "tsd_server_points_received_total",
            "Requests to store points: telnet lines and HTTP calls.",
        ),
        ("tsd_server_request_failures_total", "Requests that failed on this side."),
        ("tsd_server_put_errors_total", "Points that were not stored, by cause."),
        (
            "tsd_server_replies_dropped_total",
            "Telnet error lines dropped because the client did not read.",
        ),
        ("tsd_server_queries_total", "Queries by outcome."),
        ("tsd_server_telnet_read_bytes_total", "Bytes read from telnet connections."),
        ("tsd_server_http_responses_total", "HTTP answers by route and class of status."),
    ] {
        describe_counter!(name, text);
    }
    describe_histogram!(
        "tsd_server_http_request_seconds",
        Unit::Seconds,
        "Time from the head of a request to the head of its answer."
    );
    describe_histogram!(
        "tsd_server_http_body_bytes",
        Unit::Bytes,
        "Size of request bodies, inflated."
    );
}
