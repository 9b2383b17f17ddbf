//! The policy for a backend that other processes write too, as HBase, and that may be unavailable.
//!
//! * **Order**: the commit time decides. Every change has the time of its commit, commit times
//!   never decrease, and the later cell of a column wins, whether it is in a memtable or in the
//!   backend. A flushed delete removes what is at most as old as itself. Since HBase hides a put
//!   with the timestamp of a delete, time advances after each delete. The last commit time
//!   survives restarts in a file ([`commit_time`]).
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
mod commit_time;
mod conditional;
mod dead_letter;
mod flush_range;
mod paced_flush;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tsd_storage::{BoxFuture, CellBatch, Column, FlushTarget, RowRewrite, StorageError, Table};

use self::{admission::MultiWriterCommits, paced_flush::PacedFlusher};
use crate::{
    OpenError, WalConfig,
    active_memtable::RotationLimits,
    backend_policy::{BackendPolicy, CommitPolicy},
    executor::Executor,
    memtable::{CellPrecedence, Memtable},
    replay_target::ReplayTarget,
    request::NewValue,
    state::WalState,
    table_writer::TableWriter,
};

/// How far the clock may be behind the log without a warning.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// Policy for [`BackendSharing::MultiWriter`](crate::BackendSharing::MultiWriter).
#[derive(Default)]
pub(crate) struct MultiWriter {
    progress: Arc<FlushProgress>,
}

/// What the flusher publishes to admission and gauges.
#[derive(Debug, Default)]
struct FlushProgress {
    /// True if the last round failed without flushing anything.
    is_unavailable: AtomicBool,
    /// Chunks flushed so far.
    flushed_ranges: AtomicU64,
    /// Rows that the backend rejects now.
    rejected_rows: AtomicU64,
}

impl FlushProgress {
    fn is_backend_unavailable(&self, state: &WalState) -> bool {
        self.is_unavailable.load(Ordering::Relaxed) || state.is_backend_full()
    }
}

impl<B: FlushTarget> BackendPolicy<B> for MultiWriter {
    fn replay_table(
        &self,
        target: &mut ReplayTarget<'_, B>,
        table: &Table,
    ) -> Result<(), OpenError> {
        if !target.state.config.logged.contains(table) {
            target.more_tables.push(table.clone());
        }
        Ok(())
    }

    fn replay_memtable(
        &self,
        target: &mut ReplayTarget<'_, B>,
        memtable: Memtable,
    ) -> Result<(), OpenError> {
        target.memtables.push(memtable);
        Ok(())
    }

    fn first_commit_ms(&self, state: &WalState, replayed_ms: i64) -> Result<i64, OpenError> {
        let dir = &*state.dir;
        let saved = commit_time::load(dir)
            .map_err(|source| OpenError::Io { directory: dir.path().to_path_buf(), source })?;
        // One more, in case the last change was a delete.
        let first_ms = replayed_ms.max(saved.unwrap_or(i64::MIN)).saturating_add(1);
        let clock_lag = Duration::from_millis(
            u64::try_from(first_ms.saturating_sub((state.config.clock)())).unwrap_or(0),
        );
        if clock_lag > CLOCK_TOLERANCE {
            tracing::warn!(
                ?clock_lag,
                "the clock is behind the log; commit times do not advance until it catches up"
            );
        }
        Ok(first_ms)
    }

    fn rotation_limits(&self, config: &WalConfig) -> RotationLimits {
        RotationLimits {
            // Few large flushes: one memtable is filled while the previous one is flushed.
            memtable_bytes: config.memtable_bytes / 2,
            max_age: config.max_age * 3 / 4,
            segment_bytes: None,
        }
    }

    fn commit_policy(&self) -> Box<dyn CommitPolicy> {
        Box::new(MultiWriterCommits::new(Arc::clone(&self.progress)))
    }

    fn run_flusher(&self, state: Arc<WalState>, backend: Arc<B>, executor: Executor) {
        PacedFlusher::new(state, backend, executor, Arc::clone(&self.progress)).run();
    }

    fn gauges(&self, state: &WalState) -> Vec<(&'static str, f64)> {
        let is_unavailable = self.progress.is_backend_unavailable(state);
        let rejected_rows = self.progress.rejected_rows.load(Ordering::Relaxed);
        vec![
            ("tsd_wal_backend_unavailable", f64::from(u8::from(is_unavailable))),
            ("tsd_wal_rejected_rows", rejected_rows as f64),
        ]
    }

    fn cell_precedence(&self) -> CellPrecedence {
        CellPrecedence::CommitTime
    }

    fn accepts_table<'a>(
        &'a self,
        _: &'a B,
        _: &'a Table,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async { Ok(true) })
    }

    fn append<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(conditional::append(writer, batch))
    }

    fn increment<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        column: Column,
        amount: i64,
    ) -> BoxFuture<'a, Result<i64, StorageError>> {
        Box::pin(conditional::increment(writer, column, amount))
    }

    fn compare_and_swap<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        column: Column,
        expected: Option<Bytes>,
        new: Option<NewValue>,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(conditional::compare_and_swap(writer, column, expected, new))
    }

    fn rewrite_row<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        rewrite: RowRewrite,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(conditional::rewrite_row(writer, rewrite))
    }
}
