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

use metrics::{Counter, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use tsd_protocol::{BuildInfo, PutErrorKind};

use crate::{
    audit::AuditMetrics, auth, identity_limits::IdentityMetrics, latency::LatencyHistogram,
    process, route::Route, tls_failure::TlsFailure,
};

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

impl From<Counter> for ReadableCounter {
    fn from(exported: Counter) -> Self {
        Self { value: AtomicU64::new(0), exported }
    }
}

impl ReadableCounter {
    pub(crate) fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Relaxed);
        self.exported.increment(n);
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

tsd_engine::metrics_table! {
    /// Metrics of one HTTP route.
    #[derive(Debug)]
    pub(crate) struct RouteMetrics {
        counters by value {
            responses: "tsd_server_http_responses_total" by "status" in ["2xx", "3xx", "4xx", "5xx"],
                "HTTP responses, by route and status class.";
        }
        histograms {
            seconds: "tsd_server_http_request_seconds", Seconds,
                "Time from the head of a request to the head of its response, by route.";
        }
    }
}

tsd_engine::metrics_table! {
    /// Metric handles of a server.
    #[derive(Debug)]
    pub(crate) struct ServerMetrics {
        counters {
            telnet_read_bytes: "tsd_server_telnet_read_bytes_total", "Bytes read from telnet connections.";
            stood_still: "tsd_server_connections_stood_still_total",
                "Connections closed because the daemon stood still while they were open.";
            discarded_bytes: "tsd_server_discarded_bytes_total",
                "Bytes discarded because they may have come before the daemon stood still.";
            self_stats_stored: "tsd_server_self_stats_stored_total",
                "Points of the daemon's own statistics that were stored (`tsd.stats.self`).";
            self_stats_failed: "tsd_server_self_stats_failed_total",
                "Points of the daemon's own statistics that were not stored.";
            telnet_long_lines: "tsd_server_telnet_long_lines_total",
                "Telnet lines skipped because they are longer than `tsd.network.max_line_length`.";
        }
        counters as ReadableCounter {
            connections_total: "tsd_server_connections_total", "Connections accepted.";
            connections_rejected: "tsd_server_connections_rejected_total",
                "New connections rejected because of `tsd.core.connections.limit` or `tsd.memory.limit`.";
            received_put: "tsd_server_points_received_total",
                "Write requests received: telnet lines and HTTP requests.";
            rpc_exceptions: "tsd_server_request_failures_total", "Requests that failed inside the daemon.";
            socket_writes_blocked: "tsd_server_responses_dropped_total",
                "Telnet error lines dropped because the client did not read them.";
            graphs: "tsd_server_graphs_total", "Pictures of graphs drawn.";
        }
        counters by label {
            "tsd_server_connection_errors_total" by "type",
                "Connections that ended with an error, by type (closed, reset, timeout, unknown)."
                => ReadableCounter {
                    exceptions_closed: "closed", exceptions_reset: "reset",
                    exceptions_timeout: "timeout", exceptions_unknown: "unknown",
                }
            "tsd_server_tls_handshakes_total" by "version",
                "TLS handshakes of clients that succeeded, by version (1.2, 1.3)."
                => Counter { tls_12: "1.2", tls_13: "1.3" }
            "tsd_server_tls_failures_total" by "reason",
                "TLS handshakes of clients that failed, by reason: off (the port has no certificate), required (a plain client was refused by `tsd.tls.required`), closed (by the client), timeout, version (no version or cipher suite in common), client_certificate (missing or invalid), server_certificate (refused by the client), malformed."
                => Counter {
                    tls_off: "off", tls_required: "required", tls_closed: "closed", tls_timeout: "timeout",
                    tls_version: "version", tls_client_certificate: "client_certificate",
                    tls_server_certificate: "server_certificate", tls_malformed: "malformed",
                }
            "tsd_server_requests_total" by "protocol",
                "Telnet commands and HTTP requests received, by protocol (telnet, http)."
                => ReadableCounter { received_telnet: "telnet", received_http: "http" }
            "tsd_server_requests_forbidden_total" by "protocol",
                "Requests rejected because of their sender (`tsd.core.admin.peers`, permissions of users, pages of other sites), by protocol (telnet, http)."
                => ReadableCounter { forbidden_telnet: "telnet", forbidden_http: "http" }
            "tsd_server_requests_unauthorized_total" by "protocol",
                "Requests and telnet lines rejected because their sender is not authenticated, by protocol (telnet, http)."
                => ReadableCounter { unauthorized_telnet: "telnet", unauthorized_http: "http" }
            "tsd_server_queries_total" by "outcome",
                "Queries, by outcome (success, invalid, failed, unauthorized, forbidden)."
                => ReadableCounter {
                    query_success: "success", query_invalid: "invalid", query_exceptions: "failed",
                    query_unauthorized: "unauthorized", query_forbidden: "forbidden",
                }
            "tsd_server_put_errors_total" by "type",
                "Points not stored, by type (storage, invalid_value, illegal_argument, unknown_name)."
                => ReadableCounter {
                    storage_errors: "storage", invalid_values: "invalid_value",
                    illegal_arguments: "illegal_argument", unknown_metrics: "unknown_name",
                }
        }
        histograms {
            http_body_bytes: "tsd_server_http_body_bytes", Bytes,
                "Size of request bodies after decompression.";
        }
        others {
            http_latency: LatencyHistogram = LatencyHistogram::default();
            graph_latency: LatencyHistogram = LatencyHistogram::default();
            // Created at the first request of a route: most are never used, and each has a histogram.
            routes: Vec<OnceLock<RouteMetrics>> = Route::ALL.iter().map(|_| OnceLock::new()).collect();
        }
    }
    computed {
        counters {
            "tsd_server_connections_idle_closed_total",
                "Idle connections closed to make room for new ones, by `tsd.core.connections.limit` or `tsd.memory.limit`.";
            "tsd_server_stalled_bodies_total",
                "Request bodies aborted because they stalled while other requests waited for memory.";
            "tsd_server_stalled_responses_total",
                "Responses aborted because their clients read too slowly while other requests waited for memory.";
            "tsd_server_log_events_total",
                "Events written to the log, by level (error, warn, info, debug, trace).";
        }
        gauges {
            "tsd_build_info", Count, "Always 1; version, revision and compiler are labels.";
            "tsd_server_connections_open", Count, "Open connections.";
            "tsd_server_tls_certificate_not_after_seconds", Seconds,
                "Time at which the certificate of the port (`tsd.tls.certificate`) expires, since 1970.";
            "tsd_health_problem", Count,
                "Worst problem of a part, by part: 0 none, 1 degraded, 2 some reads fail, 3 writes are rejected, 4 unavailable.";
        }
    }
}

impl Default for ServerMetrics {
    fn default() -> Self {
        describe_metrics();
        Self::with_labels(&[])
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
        let labels = || [("route", (*label).to_owned())];
        let metrics = metrics.get_or_init(|| RouteMetrics::with_labels(&labels()));
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

    /// Returns the counter of TLS handshakes that failed for this reason.
    pub(crate) const fn tls_failed(&self, failure: TlsFailure) -> &Counter {
        match failure {
            TlsFailure::Off => &self.tls_off,
            TlsFailure::Required => &self.tls_required,
            TlsFailure::Closed => &self.tls_closed,
            TlsFailure::Timeout => &self.tls_timeout,
            TlsFailure::Version => &self.tls_version,
            TlsFailure::ClientCertificate => &self.tls_client_certificate,
            TlsFailure::ServerCertificate => &self.tls_server_certificate,
            TlsFailure::Malformed => &self.tls_malformed,
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
    AuditMetrics::describe();
    auth::AuthMetrics::describe();
    IdentityMetrics::describe();
    ServerMetrics::describe();
    RouteMetrics::describe();
}
