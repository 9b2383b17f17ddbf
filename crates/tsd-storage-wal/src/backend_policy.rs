//! The part of a policy that runs on the committer thread.
//!
//! The rest of a policy is in [`SharingPolicy`](crate::sharing::SharingPolicy).

use tsd_storage::StorageError;

use crate::{active_memtable::ActiveMemtable, change::Change, memtable::TableId, state::WalState};

/// Admission, rotation and commit times.
pub(crate) trait CommitPolicy: Send {
    /// Decides whether a group may be committed. May rotate the memtable and wait for a flush.
    /// The group may be larger than its first command, which needs `room` bytes of the disk.
    fn admit(&mut self, active: &mut ActiveMemtable, room: u64) -> Admission;

    /// The error of a write to this table alone; `None` if it may be committed.
    fn refusal(&self, _state: &WalState, _table: TableId) -> Option<StorageError> {
        None
    }

    /// Called when the active memtable has reached its maximum age: rotates it, or postpones that.
    fn rotate_aged(&self, active: &mut ActiveMemtable);

    /// Called after each group, committed or failed.
    fn after_commit(&self, active: &mut ActiveMemtable);

    /// Milliseconds by which the commit time advances after a change.
    fn commit_time_step(&self, change: &Change) -> i64;
}

/// Decision on a write request.
#[derive(Debug)]
pub(crate) enum Admission {
    Admitted,
    /// Memory or log are full.
    Rejected(StorageError),
    /// The store stops; the request is dropped.
    Stopping,
}
