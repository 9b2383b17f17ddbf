//! The part of a policy that runs on the committer thread.
//!
//! [`SharingPolicy`](crate::sharing::SharingPolicy) has the rest of a policy.

use tsd_storage::StorageError;

use crate::{active_memtable::ActiveMemtable, change::Change, memtable::TableId, state::WalState};

/// Decides about admission, rotation and commit times.
pub(crate) trait CommitPolicy: Send {
    /// Decides whether a group may be committed. May rotate the memtable and wait for a flush. The first command
    /// of the group needs `room` bytes of disk; the group may be larger.
    fn admit(&mut self, active: &mut ActiveMemtable, room: u64) -> Admission;

    /// The error of a write to this table only; `None` if the write may be committed.
    fn refusal(&self, _state: &WalState, _table: TableId) -> Option<StorageError> {
        None
    }

    /// Rotates an active memtable at its maximum age, or postpones the rotation.
    fn rotate_aged(&self, active: &mut ActiveMemtable);

    /// Called after each group, whether it was committed or failed.
    fn after_commit(&self, active: &mut ActiveMemtable);

    /// Milliseconds by which the commit time advances after a change.
    fn commit_time_step(&self, change: &Change) -> i64;
}

/// Decision about a write request.
#[derive(Debug)]
pub(crate) enum Admission {
    Admitted,
    /// Memory or log is full.
    Rejected(StorageError),
    /// The store is stopping. The request is dropped.
    Stopping,
}
