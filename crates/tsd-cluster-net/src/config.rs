//! Limits of connections between nodes, and who a node is.

use std::{sync::Arc, time::Duration};

use tsd_cluster::ClusterId;

use crate::tls::PeerTls;

/// Who a node is, as its peers check it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Random number of the cluster, an attribute of its log table. Who knows it may ask.
    pub cluster: ClusterId,
    /// Its name.
    pub name: String,
    /// Number of the run of this node: an answer of a later run says nothing of an earlier one.
    pub incarnation: u64,
}

/// Limits of connections between nodes, and their encryption.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Certificates; `None`: connections are not encrypted.
    pub tls: Option<Arc<PeerTls>>,
    /// How long a connection and its greeting may take.
    pub connect_timeout: Duration,
    /// How long the other side may take to read what was written to it.
    pub write_timeout: Duration,
    /// After this time without a sign of the other host a connection is lost, at least a second.
    pub silence_timeout: Duration,
    /// After this time without a request a connection is closed by its server.
    pub idle_timeout: Duration,
    /// First and longest pause before the next attempt to connect.
    pub backoff: (Duration, Duration),
    /// Largest frame, bytes. A larger one is not sent, and ends the connection on which it is received. Two values
    /// of the greatest length in HBase (10 MiB) fit: a write has the expected one and the new one.
    pub max_frame_bytes: usize,
    /// Size from which rows are sent, bytes.
    pub batch_bytes: usize,
    /// Size of the held rows of a node that a scan takes at a time, bytes.
    pub part_bytes: usize,
    /// Requests in progress on a connection; more wait.
    pub max_requests: usize,
    /// Connections that a node accepts; more are closed at once.
    pub max_connections: usize,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            tls: None,
            connect_timeout: Duration::from_secs(1),
            write_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_mins(10),
            backoff: (Duration::from_millis(50), Duration::from_secs(2)),
            max_frame_bytes: 24 << 20,
            batch_bytes: 256 << 10,
            part_bytes: 4 << 20,
            max_requests: 64,
            max_connections: 256,
        }
    }
}
