//! The `tsd_cluster_net_*` metrics.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::{
    error::PeerError, forward::metrics::describe_forward_metrics,
    names::metrics::describe_name_metrics,
};

const COUNTERS: [(&str, Unit, &str); 13] = [
    ("tsd_cluster_net_requests_total", Unit::Count, "Requests to other nodes, by kind."),
    (
        "tsd_cluster_net_failures_total",
        Unit::Count,
        "Requests that a node did not answer, by reason.",
    ),
    ("tsd_cluster_net_sent_bytes_total", Unit::Bytes, "Bytes sent to other nodes."),
    ("tsd_cluster_net_received_bytes_total", Unit::Bytes, "Bytes received from other nodes."),
    (
        "tsd_cluster_net_busy_total",
        Unit::Count,
        "Requests of other nodes that were refused because too many of one were in progress.",
    ),
    (
        "tsd_cluster_net_connections_refused_total",
        Unit::Count,
        "Connections of other nodes that were closed because there were too many.",
    ),
    (
        "tsd_cluster_net_greetings_refused_total",
        Unit::Count,
        "Connections of nodes of another cluster or version.",
    ),
    (
        "tsd_cluster_net_tls_failures_total",
        Unit::Count,
        "Connections of nodes that were closed because of their encryption or certificate.",
    ),
    (
        "tsd_cluster_net_bad_frames_total",
        Unit::Count,
        "Connections that were closed because of a frame that is too large or no message.",
    ),
    (
        "tsd_cluster_net_slow_readers_total",
        Unit::Count,
        "Connections that were closed because the other node did not read.",
    ),
    (
        "tsd_cluster_net_suspicions_total",
        Unit::Count,
        "Nodes that a request has reported as silent.",
    ),
    (
        "tsd_cluster_net_failed_reads_total",
        Unit::Count,
        "Reads that failed because the rows of a node were neither answered nor recovered in time.",
    ),
    (
        "tsd_cluster_net_refused_rows_total",
        Unit::Count,
        "Reads that failed because there was no memory for the rows of other nodes.",
    ),
];
const GAUGES: [(&str, &str); 4] = [
    (
        "tsd_cluster_net_clock_ahead_seconds",
        "How far the clock of this host is surely ahead of the median of the other nodes; negative if it is behind.",
    ),
    ("tsd_cluster_net_clock_skewed", "1 while that is more than tsd.cluster.max_clock_skew."),
    ("tsd_cluster_net_connections", "Connections to and from other nodes."),
    ("tsd_cluster_net_read_bytes", "Memory of rows of other nodes in reads in progress, bytes."),
];
const HISTOGRAMS: [(&str, &str); 1] =
    [("tsd_cluster_net_request_seconds", "Time of a request to another node, by kind.")];

/// Kinds of requests, as labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Held,
    Probe,
    Report,
    Flush,
    Admission,
    Queries,
    Forget,
    Uids,
}

impl RequestKind {
    const ALL: [Self; 8] = [
        Self::Held,
        Self::Probe,
        Self::Report,
        Self::Flush,
        Self::Admission,
        Self::Queries,
        Self::Forget,
        Self::Uids,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Probe => "probe",
            Self::Report => "report",
            Self::Flush => "flush",
            Self::Admission => "admission",
            Self::Queries => "queries",
            Self::Forget => "forget",
            Self::Uids => "uids",
        }
    }
}

/// Registered handles.
pub(crate) struct NetMetrics {
    requests: [(Counter, Histogram); 8],
    failures: BTreeMap<&'static str, Counter>,
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) busy: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) greetings_refused: Counter,
    pub(crate) tls_failures: Counter,
    pub(crate) bad_frames: Counter,
    pub(crate) slow_readers: Counter,
    pub(crate) suspicions: Counter,
    pub(crate) failed_reads: Counter,
    pub(crate) refused_rows: Counter,
    pub(crate) clock_ahead: Gauge,
    pub(crate) clock_skewed: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) read_bytes: Gauge,
}

impl NetMetrics {
    /// Returns the handles of the process: a node has one of each.
    pub(crate) fn of_process() -> &'static Self {
        static METRICS: OnceLock<NetMetrics> = OnceLock::new();
        METRICS.get_or_init(Self::new)
    }

    fn new() -> Self {
        describe_metrics();
        let of_kind = |kind: RequestKind| {
            let label = [("kind", kind.as_str())];
            let seconds = histogram!("tsd_cluster_net_request_seconds", &label);
            (counter!("tsd_cluster_net_requests_total", &label), seconds)
        };
        let failure =
            |reason| (reason, counter!("tsd_cluster_net_failures_total", "reason" => reason));
        Self {
            requests: RequestKind::ALL.map(of_kind),
            failures: PeerError::REASONS.map(failure).into(),
            sent_bytes: counter!("tsd_cluster_net_sent_bytes_total"),
            received_bytes: counter!("tsd_cluster_net_received_bytes_total"),
            busy: counter!("tsd_cluster_net_busy_total"),
            connections_refused: counter!("tsd_cluster_net_connections_refused_total"),
            greetings_refused: counter!("tsd_cluster_net_greetings_refused_total"),
            tls_failures: counter!("tsd_cluster_net_tls_failures_total"),
            bad_frames: counter!("tsd_cluster_net_bad_frames_total"),
            slow_readers: counter!("tsd_cluster_net_slow_readers_total"),
            suspicions: counter!("tsd_cluster_net_suspicions_total"),
            failed_reads: counter!("tsd_cluster_net_failed_reads_total"),
            refused_rows: counter!("tsd_cluster_net_refused_rows_total"),
            clock_ahead: gauge!("tsd_cluster_net_clock_ahead_seconds"),
            clock_skewed: gauge!("tsd_cluster_net_clock_skewed"),
            connections: gauge!("tsd_cluster_net_connections"),
            read_bytes: gauge!("tsd_cluster_net_read_bytes"),
        }
    }

    /// Counts a request that has ended.
    pub(crate) fn ended(&self, kind: RequestKind, took: Duration, error: Option<&PeerError>) {
        if let Some((requests, seconds)) = self.requests.get(kind as usize) {
            requests.increment(1);
            seconds.record(took);
        }
        if let Some(failures) = error.and_then(|error| self.failures.get(error.reason())) {
            failures.increment(1);
        }
    }
}

/// Registers the descriptions of all metrics of this crate. Idempotent.
pub fn describe_metrics() {
    for (name, unit, text) in COUNTERS {
        describe_counter!(name, unit, text);
    }
    for (name, text) in GAUGES {
        let unit = match name.rsplit('_').next() {
            Some("bytes") => Unit::Bytes,
            Some("seconds") => Unit::Seconds,
            _ => Unit::Count,
        };
        describe_gauge!(name, unit, text);
    }
    for (name, text) in HISTOGRAMS {
        describe_histogram!(name, Unit::Seconds, text);
    }
    describe_forward_metrics();
    describe_name_metrics();
}
