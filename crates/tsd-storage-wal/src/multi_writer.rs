//! The policy for a backend that other processes write too, as HBase, and that may be unavailable.
//!
//! * **Order**: the commit time decides. Every change has the time of its commit, commit times
//!   never decrease, and the later cell of a column wins, whether it is in a memtable or in the
//!   backend. A flushed delete removes what is at most as old as itself. Since HBase hides a put
//!   with the timestamp of a delete, time advances after each delete. The last commit time
//!   survives restarts in a file ([`commit_time`](crate::commit_time)).
//! * **Conditional writes** (append, increment, compare-and-swap) are executed by the backend,
//!   unless a memtable has the column ([`conditional`]). Row compactions too, once the row is
//!   flushed.
//! * **Admission**: while memory or log are full, writes wait only as long as flushes make
//!   progress, then they are rejected ([`admission`]): the backend may be unavailable for hours.
//! * **Rotation**: at half of the memory, or at three quarters of the maximum age. Full segments
//!   do not rotate the memtable. While one memtable is being flushed, an aged one waits.
//! * **Flush**: in key-range chunks. Aged memtables are flushed at an even pace, an unavailable
//!   region delays only its own rows, and rows that the backend rejects permanently go to a
//!   dead-letter file ([`paced_flush`], [`dead_letter`]).
//! * **Stuck tables**: if one table cannot be flushed while others can, its rows are relocated to
//!   survivor files, and the segments go on with the others. Stuck tables together may hold half of
//!   log and memory; beyond that their writes are rejected by name ([`relocation`]).
//! * **Replay**: all rows are read into memory, and the backend is not called. The existence of a
//!   table shows at its flush. A table that is no longer configured stays logged until then.

mod admission;
mod conditional;
mod dead_letter;
mod failing_tables;
mod flush_progress;
mod flush_range;
mod paced_flush;
mod recovered_logs;
mod relocation;
mod survivor_files;

use std::sync::Arc;

use self::admission::MultiWriterCommits;
pub(crate) use self::{
    conditional::{execute, rewrite_row},
    flush_progress::FlushProgress,
    paced_flush::PacedFlusher,
    recovered_logs::RecoveredLogs,
};
use crate::backend_policy::CommitPolicy;

/// The policy of the committer thread.
pub(crate) fn commit_policy(progress: Arc<FlushProgress>) -> Box<dyn CommitPolicy> {
    Box::new(MultiWriterCommits::new(progress))
}
