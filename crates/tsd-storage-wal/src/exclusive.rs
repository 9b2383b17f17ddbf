//! The policy for a backend that only this process writes, as an embedded store.
//!
//! * **Order**: the log order decides. What a memtable has of a column hides what the backend has,
//!   whatever the timestamps. A flushed delete removes everything the backend has.
//! * **Conditional writes** (append, increment, compare-and-swap) are executed by the committer.
//!   The caller reads from the backend what the memtables lack; the committer decides, and has the
//!   caller read again if a flush came between. Row compactions work the same way.
//! * **Admission**: while memory or log are full, writes wait for a flush. They fail only if the
//!   backend's disk is full, since that may need an operator.
//! * **Rotation**: at a quarter of the memory, at a full segment, or at the maximum age.
//! * **Flush**: a whole memtable at once, table by table, retried until it succeeds.
//! * **Replay**: memtables filled by replay are flushed at once, so that memory stays bounded. All
//!   tables in the log must exist.

mod admission;
mod conditional;
mod flusher;
mod rewrite;

use std::sync::Arc;

use bytes::Bytes;
use tsd_storage::{BoxFuture, CellBatch, Column, FlushTarget, RowRewrite, StorageError, Table};

use self::{
    admission::ExclusiveCommits,
    flusher::{Flusher, flush_memtable},
};
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

/// Part of the memory at which the active memtable is rotated: the others are being flushed.
const MEMTABLES_IN_MEMORY: usize = 4;

/// Policy for [`BackendSharing::Exclusive`](crate::BackendSharing::Exclusive).
pub(crate) struct Exclusive;

impl<B: FlushTarget> BackendPolicy<B> for Exclusive {
    fn replay_table(
        &self,
        target: &mut ReplayTarget<'_, B>,
        table: &Table,
    ) -> Result<(), OpenError> {
        match target.executor.wait(target.backend.table_exists(table)) {
            Ok(true) => {}
            Ok(false) => return Err(OpenError::NoSuchTable(table.clone())),
            Err(error) => return Err(OpenError::Backend(error)),
        }
        // Reads of a table that is not logged any more do not consult the memtables.
        target.must_flush |= !target.state.config.logged.contains(table);
        Ok(())
    }

    fn replay_memtable(
        &self,
        target: &mut ReplayTarget<'_, B>,
        memtable: Memtable,
    ) -> Result<(), OpenError> {
        flush_memtable(target.backend, target.executor, target.state, &Arc::new(memtable))
            .map_err(OpenError::Backend)
    }

    fn first_commit_ms(&self, _: &WalState, replayed_ms: i64) -> Result<i64, OpenError> {
        Ok(replayed_ms)
    }

    fn rotation_limits(&self, config: &WalConfig) -> RotationLimits {
        RotationLimits {
            memtable_bytes: config.memtable_bytes / MEMTABLES_IN_MEMORY,
            max_age: config.max_age,
            segment_bytes: Some(config.segment_bytes),
        }
    }

    fn commit_policy(&self) -> Box<dyn CommitPolicy> {
        Box::new(ExclusiveCommits)
    }

    fn run_flusher(&self, state: Arc<WalState>, backend: Arc<B>, executor: Executor) {
        Flusher { state, backend, executor }.run();
    }

    fn gauges(&self, _: &WalState) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    fn cell_precedence(&self) -> CellPrecedence {
        CellPrecedence::LogOrder
    }

    fn accepts_table<'a>(
        &'a self,
        backend: &'a B,
        table: &'a Table,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        backend.table_exists(table)
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
        Box::pin(rewrite::rewrite_row(writer, rewrite))
    }
}
