//! Limits of connections between nodes, and the identity of a node.

use std::{sync::Arc, time::Duration};

use tsd_cluster::ClusterId;
use tsd_storage::{Epoch, Standstills};

use crate::tls::PeerTls;

/// Identity of a node, which its peers check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Random number of the cluster, an attribute of its log table. A client that knows it may send requests.
    pub cluster: ClusterId,
    /// Name of the node.
    pub name: String,
    /// Number of the run of this node: a response of a later run says nothing about an earlier run.
    pub incarnation: u64,
}

/// Limits of connections between nodes, and their encryption.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Certificates; `None`: connections are not encrypted.
    pub tls: Option<Arc<PeerTls>>,
    /// Closes the connections that were open while the process stood still; `None`: it is not detected.
    pub standstills: Option<Arc<Standstills>>,
    /// Timeout of a connection with its greeting.
    pub connect_timeout: Duration,
    /// Time in which the other side must read written data.
    pub write_timeout: Duration,
    /// Time without a sign of the other host after which a connection is lost; at least a second.
    pub silence_timeout: Duration,
    /// Time without a request after which the server closes a connection.
    pub idle_timeout: Duration,
    /// First and longest pause before the next attempt to connect.
    pub backoff: (Duration, Duration),
    /// Largest frame, bytes. A node never sends a larger frame, and closes a connection on which it receives one.
    /// Two values of HBase's maximum length (10 MiB) fit, because a write may have an expected and a new value.
    pub max_frame_bytes: usize,
    /// Size of a batch at which its rows are sent, bytes.
    pub batch_bytes: usize,
    /// Size of the held rows that a scan takes from a node at a time, bytes.
    pub chunk_bytes: usize,
    /// Maximum number of requests in progress on a connection; further requests wait.
    pub max_requests: usize,
    /// Maximum number of connections that a node accepts, at least twice the nodes; further connections are closed at
    /// once.
    pub max_connections: usize,
}

impl NetConfig {
    /// The present epoch; `None` if standstills are not detected.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.standstills.as_ref().map(Standstills::epoch)
    }
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            tls: None,
            standstills: None,
            connect_timeout: Duration::from_secs(1),
            write_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_mins(10),
            backoff: (Duration::from_millis(50), Duration::from_secs(2)),
            max_frame_bytes: 24 << 20,
            batch_bytes: 256 << 10,
            chunk_bytes: 4 << 20,
            max_requests: 64,
            max_connections: 4_096,
        }
    }
}
