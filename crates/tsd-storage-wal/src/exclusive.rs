//! The policy for a backend that only this process writes, as an embedded store.
//!
//! * **Order**: the log order decides. What a memtable has of a column hides what the backend has,
//!   whatever the timestamps. A flushed delete removes everything the backend has.
//! * **Conditional writes** (append, increment, compare-and-swap) are executed by the committer.
//!   The caller reads from the backend what the memtables lack; the committer decides, and has the
//!   caller read again if a flush came between. A row compaction is executed if no cell of its row was
//!   changed since it was read, by the sequence numbers of the commits.
//! * **Admission**: while memory or log are full, writes wait for a flush. They fail only if the
//!   backend's disk is full, since that may need an operator.
//! * **Rotation**: at a quarter of the memory, at a full segment, or at the maximum age.
//! * **Flush**: a whole memtable at once, table by table, retried until it succeeds.
//! * **Replay**: memtables stay in memory up to its bound, which a killed process did not exceed
//!   either. Beyond that, after a change of the settings, the oldest are flushed; if the backend is
//!   busy or full they stay in memory too, so that the store opens for reads. All tables in the log
//!   must exist.

mod admission;
mod conditional;
mod flusher;
mod replay;
mod rewrite;

pub(crate) use self::{
    conditional::execute, flusher::run_flusher, replay::flush_beyond_memory, rewrite::rewrite_row,
};
use crate::backend_policy::CommitPolicy;

/// The policy of the committer thread.
pub(crate) fn commit_policy() -> Box<dyn CommitPolicy> {
    Box::new(admission::ExclusiveCommits)
}
