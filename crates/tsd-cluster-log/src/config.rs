//! Settings of the log.

use std::time::Duration;

use tsd_cluster::SharedSettings;

/// When HBase has a record: its log is in the memory of several machines, or on their disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogDurability {
    /// HBase's default: written to all replicas of its log.
    #[default]
    Sync,
    /// Synced to the disks of all replicas.
    Fsync,
}

impl LogDurability {
    /// The value of the table's attribute.
    pub(crate) const fn attribute(self) -> &'static str {
        match self {
            Self::Sync => "SYNC_WAL",
            Self::Fsync => "FSYNC_WAL",
        }
    }
}

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct ClusterLogConfig {
    /// The table; it is created if it is missing.
    pub table: String,
    /// Name of this node. No two that run at once have the same.
    pub node: String,
    /// Where this node answers to its peers; `None` if it does not.
    pub address: Option<String>,
    /// Settings that all nodes of the table must have alike.
    pub shared: SharedSettings,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// How long the heartbeats of another node are missed until its log is recovered; half of it if a peer could
    /// not reach the node either.
    pub suspect_after: Duration,
    /// When HBase has a record.
    pub durability: LogDurability,
    /// How long an append is tried before its group fails.
    pub append_timeout: Duration,
    /// After this time without an answer an append is sent to another region server too; `None`: it is not.
    pub hedge_after: Option<Duration>,
    /// Bound of a heartbeat, a proof, a trim, or the opening of a segment that stands by; each is tried again.
    pub work_timeout: Duration,
    /// Time between two looks for rows of segments that nobody reads; those that both have found are removed.
    pub orphan_age: Duration,
    /// How long a start tries to reach the table.
    pub start_timeout: Duration,
}

impl ClusterLogConfig {
    /// Defaults for a table and the name of a node.
    pub fn new(table: impl Into<String>, node: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            node: node.into(),
            address: None,
            shared: SharedSettings::default(),
            heartbeat: Duration::from_secs(1),
            suspect_after: Duration::from_secs(5),
            durability: LogDurability::Sync,
            append_timeout: Duration::from_secs(2),
            hedge_after: Some(Duration::from_millis(50)),
            work_timeout: Duration::from_secs(2),
            orphan_age: Duration::from_hours(1),
            start_timeout: Duration::from_mins(1),
        }
    }
}
