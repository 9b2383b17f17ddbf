//! The policy for a backend that other processes write, too, such as HBase, and that may be unavailable.
//!
//! * **Order**: the commit time decides. Every change has its commit time, commit times never decrease, and the
//!   later cell of a column wins, in a memtable or in the backend. A flushed delete removes cells that are not
//!   newer than the delete. HBase hides a put with the timestamp of a delete, so time advances after each delete.
//!   The last commit time survives restarts in a file ([`commit_time`](crate::commit_time)).
//! * **Conditional writes** (append, increment, compare-and-swap): the backend executes them, unless a memtable
//!   has the column ([`conditional`]). It also executes row compactions, once the row is flushed.
//! * **Admission**: while memory or log is full, writes wait only as long as flushes make progress. Then they are
//!   rejected ([`admission`]), because the backend may be unavailable for hours.
//! * **Rotation**: at half of the memory, or at three quarters of the maximum age. A full segment does not rotate
//!   the memtable. While a memtable is being flushed, an aged one waits.
//! * **Flush**: in key-range chunks. Aged memtables are flushed at an even pace. An unavailable region delays
//!   only its own rows. Rows that the backend rejects permanently go to a dead-letter file ([`paced_flush`],
//!   [`dead_letter`]).
//! * **Stuck tables**: if one table cannot be flushed while others can, its rows are relocated to survivor files.
//!   So the segments of the other tables can be removed. Stuck tables together may hold half of log and memory.
//!   Beyond that, writes to them are rejected ([`relocation`]).
//! * **Replay**: all rows are read into memory without calling the backend. The flush of a table shows whether
//!   the table exists. A table that is no longer configured stays logged until then.

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
