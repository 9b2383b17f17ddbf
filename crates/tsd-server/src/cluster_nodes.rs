//! The cluster of a daemon, as `/api/cluster` shows it. How the nodes are asked is not known here.

use std::{fmt, future::Future, pin::Pin};

/// A call to all nodes.
pub type ClusterFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The nodes of the cluster that a daemon is a member of.
pub trait ClusterNodes: fmt::Debug + Send + Sync + 'static {
    /// What the nodes say of themselves. It takes about a second if one of them is silent.
    fn status(&self) -> ClusterFuture<'_, Vec<ClusterNode>>;

    /// Flushes all held rows of all nodes. It returns when that is done or has failed.
    fn flush(&self) -> ClusterFuture<'_, Vec<FlushedNode>>;

    /// Gives all slots of this node to others, and flushes its rows. It returns when that is done or has failed.
    fn drain(&self) -> ClusterFuture<'_, DrainedNode>;
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
