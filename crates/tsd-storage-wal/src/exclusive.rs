//! The policy for a backend that only this process writes, such as an embedded store.
//!
//! * **Order**: the log order decides. A column in a memtable hides the same column in the backend, whatever the
//!   timestamps. A flushed delete removes all older cells in the backend.
//! * **Conditional writes** (append, increment, compare-and-swap): the committer executes them. The caller reads
//!   from the backend the columns that no memtable has. If a flush came between, the committer makes the caller read
//!   again. A row compaction is executed only if no cell of its row has changed since the read, according to the
//!   sequence numbers of the commits.
//! * **Admission**: while memory or log is full, writes wait for a flush. They fail only if the disk of the
//!   backend is full, since that may need an operator.
//! * **Rotation**: at a quarter of the memory, at a full segment, or at the maximum age.
//! * **Flush**: a whole memtable at once, table by table, retried until it succeeds.
//! * **Replay**: memtables stay in memory up to their limit, which a killed process did not exceed either. Beyond
//!   it, after a change of the settings, the oldest memtables are flushed. If the backend is busy or full, they
//!   stay in memory, too, so that the store opens for reads. All tables in the log must exist.
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
