//! The cluster of a daemon, as `/api/cluster` shows it. How the nodes are asked is not known here.

use std::{fmt, future::Future, pin::Pin, str::FromStr};

/// A call to all nodes.
pub type ClusterFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The nodes of the cluster that a daemon is a member of.
pub trait ClusterNodes: fmt::Debug + Send + Sync + 'static {
    /// What the nodes say of themselves, and who owns which slots. It takes about a second if one of them is silent.
    fn status(&self) -> ClusterFuture<'_, ClusterStatus>;

    /// Flushes all held rows of all nodes. It returns when that is done or has failed.
    fn flush(&self) -> ClusterFuture<'_, Vec<FlushedNode>>;

    /// The queries that run on all nodes. It takes about a second if one of them is silent.
    fn queries(&self) -> ClusterFuture<'_, Vec<NodeQueries>>;

    /// Cancels a query of any node, and returns the name of that.
    fn cancel_query(
        &self,
        id: ClusterQueryId,
    ) -> ClusterFuture<'_, Result<String, CancelQueryError>>;

    /// Gives all slots of this node to others, and flushes its rows. It returns when that is done or has failed.
    fn drain(&self) -> ClusterFuture<'_, DrainedNode>;
}

/// The number of a query among those of all nodes: that of a node's run, and that of the query on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterQueryId {
    /// Number of the run of its node.
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
    /// It does not run, or there is no such node.
    NotRunning,
    /// The node does not answer.
    Silent {
        /// Its name.
        node: String,
        /// Why not.
        reason: String,
    },
}

/// The queries that run on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeQueries {
    /// Its name.
    pub name: String,
    /// Number of its run.
    pub incarnation: u64,
    /// True for the node that was asked.
    pub is_this: bool,
    /// What [`running_queries`](crate::running_queries) has rendered there, or why it does not answer.
    pub running: Result<String, String>,
}

/// The nodes of a cluster, as one of them sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterStatus {
    /// The nodes.
    pub nodes: Vec<ClusterNode>,
    /// The slots; `None` if writes are not forwarded.
    pub slots: Option<SlotSummary>,
}

/// The assignment of slots to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSummary {
    /// Counts its changes.
    pub generation: u64,
    /// Slots that are to be given to another node.
    pub moving: usize,
    /// Slots that no node of the list owns: their writes wait.
    pub without_owner: usize,
}

/// The slots of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSlots {
    /// Those that it owns.
    pub owned: usize,
    /// Those that it is to get from other nodes.
    pub moving_in: usize,
    /// Those of its own that it is to give away.
    pub moving_out: usize,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// Where it answers other nodes; empty if it does not.
    pub address: String,
    /// `joining`, `serving`, `suspected`, `recovering` or `left`.
    pub state: &'static str,
    /// Number of its run.
    pub incarnation: u64,
    /// True for the node that was asked.
    pub is_this: bool,
    /// Time since its last sign of life in the log table, milliseconds.
    pub heartbeat_age_ms: u64,
    /// Bytes of its log, as of that sign.
    pub log_bytes: u64,
    /// Its slots; `None` if writes are not forwarded.
    pub slots: Option<NodeSlots>,
    /// What it says of itself, or why it does not.
    pub report: Result<NodeDetails, String>,
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeDetails {
    /// Version of its program.
    pub version: String,
    /// Bytes of rows that it holds, in memory.
    pub held_bytes: u64,
    /// Rows that it holds.
    pub held_rows: u64,
    /// How far its clock is ahead of that of the node that was asked, milliseconds.
    pub clock_ahead_ms: i64,
    /// Its problems.
    pub problems: Vec<String>,
}

/// What became of the flush of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedNode {
    /// Its name.
    pub name: String,
    /// Why it has not flushed all of its rows.
    pub error: Option<String>,
}

/// What became of the drain of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainedNode {
    /// Slots that other nodes own now.
    pub slots: usize,
    /// Slots that are still those of this node.
    pub left: usize,
    /// Why it still has slots, or rows that are not flushed.
    pub error: Option<String>,
}
