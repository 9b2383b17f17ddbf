//! Settings of the log.

use std::time::Duration;

use tsd_cluster::SharedSettings;

/// Where a record must be before HBase acknowledges it: in the memory of several machines, or on their disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogDurability {
    /// Written to all replicas of HBase's log, which is its default.
    #[default]
    Sync,
    /// Synced to the disks of all replicas.
    Fsync,
}

impl LogDurability {
    /// Value of the table's attribute.
    pub(crate) const fn attribute(self) -> &'static str {
        match self {
            Self::Sync => "SYNC_WAL",
            Self::Fsync => "FSYNC_WAL",
        }
    }
}

/// How a node proves for a read that it is not fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadProof {
    /// By its lease, else by an append.
    #[default]
    Lease,
    /// By an append.
    Append,
}

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct ClusterLogConfig {
    /// The table; it is created if it is missing.
    pub table: String,
    /// Name of this node, unique among the running nodes.
    pub node: String,
    /// Settings that must be equal on all nodes of the table.
    pub shared: SharedSettings,
    /// Time between two heartbeats. The times between two looks at the other nodes are multiples of it.
    pub heartbeat: Duration,
    /// Time without heartbeats of another node after which its log is recovered. Half of it if a peer could not
    /// reach the node either.
    pub suspect_after: Duration,
    /// Time for which a connection between two nodes is broken before one of them has to leave.
    pub broken_for: Duration,
    /// How this node proves for a read that it is not fenced. All nodes wait for the leases of others.
    pub read_proof: ReadProof,
    /// Where a record must be before HBase acknowledges it.
    pub durability: LogDurability,
    /// Time after which an append, with its retries, fails its group.
    pub append_timeout: Duration,
    /// Time without an answer after which an append is also sent to another region server; `None` disables
    /// that.
    pub hedge_after: Option<Duration>,
    /// Timeout of a heartbeat, a proof, a trim, or the opening of a standby segment. Each is retried.
    pub work_timeout: Duration,
    /// Time between two looks for orphans. Rows that two successive looks find are removed.
    pub orphan_age: Duration,
    /// Time in which a start tries to reach the table.
    pub start_timeout: Duration,
}

impl ClusterLogConfig {
    /// Returns the defaults for a table and the name of a node.
    pub fn new(table: impl Into<String>, node: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            node: node.into(),
            shared: SharedSettings::default(),
            heartbeat: Duration::from_millis(400),
            suspect_after: Duration::from_secs(5),
            broken_for: Duration::from_secs(3),
            read_proof: ReadProof::Lease,
            durability: LogDurability::Sync,
            append_timeout: Duration::from_secs(2),
            hedge_after: Some(Duration::from_millis(50)),
            work_timeout: Duration::from_secs(2),
            orphan_age: Duration::from_hours(1),
            start_timeout: Duration::from_mins(1),
        }
    }

    /// Time between two publications of the digest, and between two looks at it.
    pub(crate) fn beat(&self) -> Duration {
        self.heartbeat * 5 / 2
    }

    /// Time between two looks at the manifests, of a node that watches.
    pub(crate) fn watch_interval(&self) -> Duration {
        self.heartbeat * 5 / 4
    }
}
