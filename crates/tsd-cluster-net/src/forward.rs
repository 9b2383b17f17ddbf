//! Decorates a store so that the owner of a slot makes all writes of its series.
//!
//! It stands above the log and above the reads of all nodes' held rows. In tables with held rows it divides
//! writes by the slots of their rows. Writes of own slots go to the log below. All other writes go to the
//! owners, which put them into their logs. While the owner of a slot is unknown or does not respond, writes wait
//! for a bounded time. Tables of UIDs and meta data, and all reads, pass unchanged.
//!
//! Invariants:
//!
//! 1. Only a node that takes writes of a slot by its present assignment writes cells of the slot.
//! 2. A write that may have been made is never sent again. Otherwise a late copy could undo a correction that was
//!    acknowledged meanwhile.
//! 3. A write is made before its deadline, which counts from its last byte. The owner checks it on its own clock.
//! 4. A rewrite of a row is made only if its owner, since before the row was read, has owned the row and has flushed
//!    nothing. Otherwise it is planned again.

mod batch_shares;
mod frame_outcome;
pub(crate) mod metrics;
mod owner_versions;
mod put_queue;
mod receive;
pub(crate) mod receiver;
mod route_table;
mod send;
mod slot_loads;
mod slots;
mod storage;
pub(crate) mod wire;

use std::{sync::Arc, time::Duration};

use tsd_cluster::SlotRule;
use tsd_storage::{Storage, Table};

pub use self::{
    receiver::ForwardReceiver,
    slots::{ClusterSlots, DrainError, SlotCounts, SlotLog},
};
use crate::peers::Peers;

/// Settings of forwarded writes.
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// Tables whose rows have owners.
    pub tables: Vec<Table>,
    /// Decides the slots of series, as on all nodes.
    pub rule: Arc<SlotRule>,
    /// Time that a write waits for an owner.
    pub timeout: Duration,
}

/// A store in which the owner of a slot makes all writes of its series.
#[derive(Debug)]
pub struct ForwardedWrites<S: ?Sized> {
    slots: Arc<ClusterSlots>,
    config: ForwardConfig,
    sender: send::SlotSender,
    inner: Arc<S>,
}

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Decorates `inner`, the store of this node with its log.
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

#[cfg(test)]
pub(crate) mod tests;
