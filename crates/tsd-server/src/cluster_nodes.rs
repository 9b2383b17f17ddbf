//! The cluster of a daemon, as `/api/cluster` shows it. Implementations of [`ClusterNodes`] know how
//! to reach the nodes.

use std::{fmt, future::Future, pin::Pin, str::FromStr};

/// A call to all nodes.
pub type ClusterFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The nodes of the cluster of a daemon.
pub trait ClusterNodes: fmt::Debug + Send + Sync + 'static {
    /// Returns the reports of all nodes, and the owners of slots. Takes about a second if a node is silent.
    fn status(&self) -> ClusterFuture<'_, ClusterStatus>;

    /// Flushes all held rows of all nodes. Returns when the flushes are complete or failed.
    fn flush(&self) -> ClusterFuture<'_, Vec<FlushedNode>>;

    /// Returns the running queries of all nodes. Takes about a second if a node is silent.
    fn queries(&self) -> ClusterFuture<'_, Vec<NodeQueries>>;

    /// Cancels a query of any node, and returns the name of the node.
    fn cancel_query(
        &self,
        id: ClusterQueryId,
    ) -> ClusterFuture<'_, Result<String, CancelQueryError>>;

    /// Releases all slots of this node to other nodes, and flushes its rows. Returns when the drain is complete or failed.
    fn drain(&self) -> ClusterFuture<'_, DrainedNode>;
}

/// Cluster-wide id of a query: the incarnation of its node, and the number of the query there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterQueryId {
    /// Incarnation of its node.
    pub incarnation: u64,
    /// Number of the query.
    pub query: u64,
}

impl fmt::Display for ClusterQueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.incarnation, self.query)
    }
}

impl FromStr for ClusterQueryId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (incarnation, query) = text.split_once('-').ok_or(())?;
        let number = |digits: &str| digits.parse().map_err(drop);
        Ok(Self { incarnation: number(incarnation)?, query: number(query)? })
    }
}

/// A query was not cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelQueryError {
    /// The query is not running, or its node does not exist.
    NotRunning,
    /// The node does not answer.
    Silent {
        /// Name of the node.
        node: String,
        /// Why the node does not answer.
        reason: String,
    },
}

/// A node of the cluster does not answer. The text is the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SilentNodeError(pub String);

/// The running queries of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeQueries {
    /// Name of the node.
    pub name: String,
    /// Incarnation of the node.
    pub incarnation: u64,
    /// True for the node that received the request.
    pub is_this: bool,
    /// Output of [`running_queries`](crate::running_queries) on the node, or why the node does not answer.
    pub running: Result<String, SilentNodeError>,
}

/// The nodes of a cluster, as one of them knows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterStatus {
    /// The nodes.
    pub nodes: Vec<ClusterNode>,
    /// The slots.
    pub slots: SlotSummary,
}

/// The assignment of slots to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSummary {
    /// Number of changes of the assignment.
    pub generation: u64,
    /// Slots that move to another node.
    pub moving: usize,
    /// Slots without an owner in the list; their writes wait.
    pub without_owner: usize,
}

/// The slots of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSlots {
    /// Slots that the node owns.
    pub owned: usize,
    /// Slots that move to the node.
    pub moving_in: usize,
    /// Slots that move away from the node.
    pub moving_out: usize,
}

/// A slot with many more points than others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotSlotDetails {
    /// Number of the slot.
    pub slot: usize,
    /// Its share of the points that its node wrote in the last minute, percent.
    pub percent: u32,
    /// Tag value of its series, such as the name of a host; `None` if it is not known.
    pub name: Option<String>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterNode {
    /// Name of the node.
    pub name: String,
    /// Address for other nodes; empty if the node has no such address.
    pub address: String,
    /// `joining`, `serving`, `unreachable` (its heartbeats go on, and it does not respond), `suspected`, `recovering`
    /// or `left`.
    pub state: &'static str,
    /// Incarnation of the node.
    pub incarnation: u64,
    /// True for the node that received the request.
    pub is_this: bool,
    /// Time since its last heartbeat in the log table, milliseconds.
    pub heartbeat_age_ms: u64,
    /// Bytes of its log at the last heartbeat.
    pub log_bytes: u64,
    /// Its slots.
    pub slots: NodeSlots,
    /// Report of the node, or why there is no report.
    pub report: Result<NodeDetails, SilentNodeError>,
}

/// Report of a node about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeDetails {
    /// Version of the program.
    pub version: String,
    /// Bytes of held rows in memory.
    pub held_bytes: u64,
    /// Held rows.
    pub held_rows: u64,
    /// Lead of its clock over the clock of the node that received the request, milliseconds.
    pub clock_ahead_ms: i64,
    /// Problems of the node.
    pub problems: Vec<String>,
    /// Its slots with many more points than others, the hottest first.
    pub hot_slots: Vec<HotSlotDetails>,
}

/// Outcome of the flush of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedNode {
    /// Name of the node.
    pub name: String,
    /// Why some rows were not flushed.
    pub error: Option<String>,
}

/// Outcome of the drain of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainedNode {
    /// Slots that other nodes own now.
    pub slots: usize,
    /// Slots that this node still owns.
    pub left: usize,
    /// Why the node still has slots or unflushed rows.
    pub error: Option<String>,
}
