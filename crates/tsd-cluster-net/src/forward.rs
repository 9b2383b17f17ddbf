//! A decorator of a store whose writes of a series are made by the owner of its slot.
//!
//! It stands above the reads of what all nodes hold, and above the log. Writes of the tables whose rows are held
//! are divided by the slots of their rows: own ones go to the log below, all others to their owners, who put
//! them into their logs. While a slot has no owner that answers, its writes wait, for a bounded time. Tables of
//! UIDs and meta data, and all reads, pass.
//!
//! What always holds:
//!
//! 1. Cells of a slot are only written by a node that has taken the slot in its present assignment.
//! 2. A write that may have been made is sent again only if the node that it was sent to is fenced, and its log
//!    stored. Else a late copy could undo a correction that was acknowledged meanwhile.

mod metrics;
mod put_queue;
mod receive;
mod route_table;
mod send;
mod slot_write;
mod slots;
mod storage;
mod wire;

use std::{sync::Arc, time::Duration};

use tsd_cluster::SeriesKeyLayout;
use tsd_storage::{BoxFuture, Storage, StorageError, Table};

pub use self::slots::{ClusterSlots, SlotCounts};
pub(crate) use self::{
    metrics::describe_forward_metrics,
    wire::{ForwardMessage, ForwardedMessage},
};
use crate::peers::Peers;

/// Bytes of writes in progress to one node.
const PEER_BYTES: usize = 16 << 20;
/// Size from which a batch is divided into frames, bytes.
const FRAME_BYTES: usize = 1 << 20;

/// How writes are forwarded.
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// Tables whose rows have owners.
    pub tables: Vec<Table>,
    /// Where in a row key the series is.
    pub layout: SeriesKeyLayout,
    /// How long a write waits for an owner.
    pub timeout: Duration,
}

/// The log of this node, as the moves of slots use it.
pub trait SlotLog: std::fmt::Debug + Send + Sync + 'static {
    /// Flushes all rows that were acknowledged before the call.
    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>>;

    /// A time that no commit until now is later than, epoch milliseconds.
    fn last_commit_ms(&self) -> i64;
}

/// A store whose writes of a series are made by the owner of its slot.
#[derive(Debug)]
pub struct ForwardedWrites<S: ?Sized> {
    slots: Arc<ClusterSlots>,
    config: ForwardConfig,
    sender: send::SlotSender,
    inner: Arc<S>,
}

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Writes of `inner`, the store of this node with its log.
    #[must_use]
    pub fn new(
        inner: Arc<S>,
        slots: Arc<ClusterSlots>,
        peers: Arc<Peers>,
        config: ForwardConfig,
    ) -> Self {
        let sender = send::SlotSender::new(peers, Arc::clone(&slots));
        Self { slots, config, sender, inner }
    }

    fn has_owners(&self, table: &Table) -> bool {
        self.config.tables.contains(table)
    }
}

/// Takes the writes that other nodes forward.
pub trait ForwardReceiver: std::fmt::Debug + Send + Sync + 'static {
    /// Makes a write, if this node owns its slots.
    fn receive(&self, message: ForwardFrame) -> BoxFuture<'_, ForwardReply>;
}

/// A frame with a write.
#[derive(Debug)]
pub struct ForwardFrame(pub(crate) ForwardMessage);

/// What became of it.
#[derive(Debug)]
pub struct ForwardReply(pub(crate) ForwardedMessage);

#[cfg(test)]
pub(crate) mod tests;
