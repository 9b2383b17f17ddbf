//! The `tsd_cluster_net_*` metrics.

use std::{sync::OnceLock, time::Duration};

use crate::{
    error::PeerError, forward::metrics::describe_forward_metrics, names::metrics::NameMetrics,
};

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
    /// The labels, in order.
    const LABELS: [&'static str; 8] =
        ["held", "probe", "report", "flush", "admission", "queries", "forget", "uids"];
}

tsd_storage::metrics_table! {
    /// Registered handles.
    pub(crate) struct NetMetrics {
        counters {
            sent_bytes: "tsd_cluster_net_sent_bytes_total", "Bytes sent to other nodes.";
            received_bytes: "tsd_cluster_net_received_bytes_total", "Bytes received from other nodes.";
            busy: "tsd_cluster_net_busy_total",
                "Requests of other nodes that were refused because too many of one were in progress.";
            connections_refused: "tsd_cluster_net_connections_refused_total",
                "Connections of other nodes that were closed because there were too many.";
            greetings_refused: "tsd_cluster_net_greetings_refused_total",
                "Connections of nodes of another cluster or version.";
            tls_failures: "tsd_cluster_net_tls_failures_total",
                "Connections of nodes that were closed because of their encryption or certificate.";
            bad_frames: "tsd_cluster_net_bad_frames_total",
                "Connections that were closed because of a frame that is too large or no message.";
            slow_readers: "tsd_cluster_net_slow_readers_total",
                "Connections that were closed because the other node did not read.";
            discarded_bytes: "tsd_cluster_net_discarded_bytes_total",
                "Bytes of other nodes that were discarded because this one stood still.";
            suspicions: "tsd_cluster_net_suspicions_total", "Nodes that a request has reported as silent.";
            failed_reads: "tsd_cluster_net_failed_reads_total",
                "Reads that failed because the rows of a node were neither answered nor recovered in time.";
            refused_rows: "tsd_cluster_net_refused_rows_total",
                "Reads that failed because there was no memory for the rows of other nodes.";
        }
        counters by value {
            requests: "tsd_cluster_net_requests_total" by "kind" in RequestKind::LABELS,
                "Requests to other nodes, by kind.";
            failures: "tsd_cluster_net_failures_total" by "reason" in PeerError::REASONS,
                "Requests that a node did not answer, by reason.";
        }
        gauges {
            clock_ahead: "tsd_cluster_net_clock_ahead_seconds", Seconds,
                "How far the clock of this host is surely ahead of the median of the other nodes; negative if it is behind.";
            clock_skewed: "tsd_cluster_net_clock_skewed", Count,
                "1 while that is more than tsd.cluster.max_clock_skew.";
            connections: "tsd_cluster_net_connections", Count, "Connections to and from other nodes.";
            read_bytes: "tsd_cluster_net_read_bytes", Bytes,
                "Memory of rows of other nodes in reads in progress, bytes.";
        }
        histograms by value {
            seconds: "tsd_cluster_net_request_seconds" by "kind" in RequestKind::LABELS, Seconds,
                "Time of a request to another node, by kind.";
        }
    }
}

impl NetMetrics {
    /// Returns the handles of the process: a node has one of each.
    pub(crate) fn of_process() -> &'static Self {
        static METRICS: OnceLock<NetMetrics> = OnceLock::new();
        METRICS.get_or_init(|| {
            describe_metrics();
            Self::with_labels(&[])
        })
    }

    /// Counts a request that has ended.
    pub(crate) fn ended(&self, kind: RequestKind, took: Duration, error: Option<&PeerError>) {
        if let (Some(requests), Some(seconds)) =
            (self.requests.get(kind as usize), self.seconds.get(kind as usize))
        {
            requests.increment(1);
            seconds.record(took);
        }
        let reason = error.map(PeerError::reason);
        let failures = PeerError::REASONS.iter().zip(&self.failures);
        if let Some((_, failures)) = failures.into_iter().find(|(of, _)| Some(**of) == reason) {
            failures.increment(1);
        }
    }
}

/// Registers the descriptions of all metrics of this crate. Idempotent.
pub fn describe_metrics() {
    NetMetrics::describe();
    describe_forward_metrics();
    NameMetrics::describe();
}
