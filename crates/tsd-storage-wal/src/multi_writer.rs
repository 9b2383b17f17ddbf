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
//! * **Replay**: all rows are read into memory, and the backend is not called. The existence of a
//!   table shows at its flush. A table that is no longer configured stays logged until then.

mod admission;
mod conditional;
mod dead_letter;
mod flush_range;
mod paced_flush;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use self::admission::MultiWriterCommits;
pub(crate) use self::{
    conditional::{execute, rewrite_row},
    paced_flush::PacedFlusher,
};
use crate::{backend_policy::CommitPolicy, state::WalState};

/// What the flusher publishes to admission and gauges.
#[derive(Debug, Default)]
pub(crate) struct FlushProgress {
    /// True if the last round failed without flushing anything.
    is_unavailable: AtomicBool,
    /// Chunks flushed so far.
    flushed_ranges: AtomicU64,
    /// Rows that the backend rejects now.
    pub(crate) rejected_rows: AtomicU64,
}

impl FlushProgress {
    pub(crate) fn is_backend_unavailable(&self, state: &WalState) -> bool {
        self.is_unavailable.load(Ordering::Relaxed) || state.is_backend_full()
    }
}

/// The policy of the committer thread.
pub(crate) fn commit_policy(progress: Arc<FlushProgress>) -> Box<dyn CommitPolicy> {
    Box::new(MultiWriterCommits::new(progress))
}
