//! Access to the assignment in the log table.

use std::{collections::BTreeSet, fmt};

use crate::{
    assignment::Assignment,
    membership::{MembershipFuture, ProofError},
};

/// Reads and changes the assignment.
pub trait SlotTable: fmt::Debug + Send + Sync {
    /// Reads the present assignment, by a request that begins after this call; `None` before the first
    /// assignment.
    ///
    /// # Errors
    ///
    /// If HBase does not answer, this node is fenced, or the row has another version.
    fn assignment(&self) -> MembershipFuture<'_, Result<Option<Assignment>, ProofError>>;

    /// Replaces the assignment `expected` by `new`; with `None`, the table must not have an assignment
    /// yet. Returns false if the table has another assignment.
    ///
    /// # Errors
    ///
    /// If this node is fenced, or HBase does not answer: the change may then be made, now or later.
    fn swap_assignment<'a>(
        &'a self,
        expected: Option<&'a Assignment>,
        new: &'a Assignment,
    ) -> MembershipFuture<'a, Result<bool, ProofError>>;

    /// Former incarnations of this node whose rows it has in its memtables.
    fn former(&self) -> BTreeSet<u64>;

    /// The highest commit time in all manifests, as of the last look.
    fn last_commit_ms(&self) -> i64;

    /// Makes all further commits of this node later than this time.
    fn raise_commit_time(&self, last_commit_ms: i64);
}
