//! Access to the assignment in the log table.

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::{
    assignment::Assignment,
    manifest::Revision,
    membership::{MembershipFuture, ProofError},
};

/// Reads and changes the assignment.
pub trait SlotTable: fmt::Debug + Send + Sync {
    /// Reads the present assignment, by a request that begins after this call; `None` before the first
    /// assignment. If it has the revision of `known`, only its revision is read, and `known` is returned.
    ///
    /// # Errors
    ///
    /// If HBase does not answer, this node is fenced, or the row has another version.
    fn assignment(
        &self,
        known: Arc<Assignment>,
    ) -> MembershipFuture<'_, Result<Option<Arc<Assignment>>, ProofError>>;

    /// The revision of the assignment, as this node has read it about a second ago; `None` if it is not known.
    fn revision(&self) -> Option<Revision> {
        None
    }

    /// Replaces the assignment of the revision `expected` by `new`; with `None`, the table must not have an
    /// assignment yet. Returns false if the table has another assignment.
    ///
    /// # Errors
    ///
    /// If this node is fenced, or HBase does not answer: the change may then be made, now or later.
    fn swap_assignment<'a>(
        &'a self,
        expected: Option<Revision>,
        new: &'a Assignment,
    ) -> MembershipFuture<'a, Result<bool, ProofError>>;

    /// Makes the watermark of this node's log pass all rows that were stored before the call. Without that, a recovery of
    /// this node stores them once more, after later deletes by the next owner of their slot.
    ///
    /// # Errors
    ///
    /// If this node is fenced, or HBase does not answer.
    fn trim(&self) -> MembershipFuture<'_, Result<(), ProofError>>;

    /// Former incarnations of this node whose rows it has in its memtables.
    fn former(&self) -> BTreeSet<u64>;

    /// The highest commit time in all manifests, as of the last look.
    fn last_commit_ms(&self) -> i64;

    /// Makes all further commits of this node later than this time.
    fn raise_commit_time(&self, last_commit_ms: i64);
}
