//! The assignment in the log table, as the keeper of a node's slots uses it.

use std::{collections::BTreeSet, fmt};

use crate::{
    assignment::Assignment,
    membership::{MembershipFuture, ProofError},
};

/// Reads and changes the assignment.
pub trait SlotTable: fmt::Debug + Send + Sync {
    /// The present assignment, by a call that began after this one; `None` before the first one.
    ///
    /// # Errors
    ///
    /// If HBase does not answer, this node is fenced, or the row is of another version.
    fn assignment(&self) -> MembershipFuture<'_, Result<Option<Assignment>, ProofError>>;

    /// Puts `new` in place of `expected` (`None`: there is none). Returns false if there is another one.
    ///
    /// # Errors
    ///
    /// If HBase does not answer: the change may be made, now or later. Or this node is fenced.
    fn swap_assignment<'a>(
        &'a self,
        expected: Option<&'a Assignment>,
        new: &'a Assignment,
    ) -> MembershipFuture<'a, Result<bool, ProofError>>;

    /// Former incarnations of this node whose rows it has in its memtables.
    fn former(&self) -> BTreeSet<u64>;

    /// The last commit time in all manifests, as of the last look.
    fn last_commit_ms(&self) -> i64;

    /// Commits of this node from now on are later than this time.
    fn raise_commit_time(&self, last_commit_ms: i64);
}
