//! The slots of a node as reads use them.

use std::{fmt, sync::Arc};

use tsd_cluster::{Assignment, MembershipFuture, ProofError, SlotSet};

/// The assignment as this node knows it, and the slots that the node owns.
pub trait ReadSlots: fmt::Debug + Send + Sync + 'static {
    /// Returns the assignment that this node has adopted.
    fn assignment(&self) -> Arc<Assignment>;

    /// Reads and adopts the assignment, by a request that begins after the call. Concurrent callers share it.
    ///
    /// # Errors
    ///
    /// If the node is fenced, or HBase does not answer.
    fn refresh(&self) -> MembershipFuture<'_, Result<(), ProofError>>;

    /// Waits until this node adopts an assignment of a later generation.
    fn changed(&self, generation: u64) -> MembershipFuture<'_, ()>;

    /// Returns the slots that this node owns and has not offered to another node. It holds all rows of these slots
    /// that are acknowledged and not stored, unless it is fenced.
    fn owned(&self) -> SlotSet;
}
