//! What depends on who writes to the backend.
//!
//! [`WalStorage::open`](crate::WalStorage::open) chooses one implementation from
//! [`BackendSharing`](crate::BackendSharing): [`Exclusive`](crate::exclusive::Exclusive) or
//! [`MultiWriter`](crate::multi_writer::MultiWriter). No other code distinguishes the two. The
//! policy is called per request, batch or memtable, never per cell.

use std::sync::Arc;

use bytes::Bytes;
use tsd_storage::{BoxFuture, CellBatch, Column, RowRewrite, StorageError, Table};

use crate::{
    OpenError, WalConfig,
    active_memtable::{ActiveMemtable, RotationLimits},
    change::Change,
    executor::Executor,
    memtable::{CellPrecedence, Memtable},
    replay_target::ReplayTarget,
    request::NewValue,
    state::WalState,
    table_writer::TableWriter,
};

/// How the layer uses a backend `B`.
pub(crate) trait BackendPolicy<B>: Send + Sync {
    /// Accepts a table found in the log during replay.
    fn replay_table(
        &self,
        target: &mut ReplayTarget<'_, B>,
        table: &Table,
    ) -> Result<(), OpenError>;

    /// Takes a memtable that replay has filled.
    fn replay_memtable(
        &self,
        target: &mut ReplayTarget<'_, B>,
        memtable: Memtable,
    ) -> Result<(), OpenError>;

    /// Lower bound of all commit times from now on; `replayed_ms` is the last one in the log.
    fn first_commit_ms(&self, state: &WalState, replayed_ms: i64) -> Result<i64, OpenError>;

    /// Limits at which the active memtable is rotated.
    fn rotation_limits(&self, config: &WalConfig) -> RotationLimits;

    /// The policy of the committer thread.
    fn commit_policy(&self) -> Box<dyn CommitPolicy>;

    /// Body of the flusher thread. Returns when the flush queue is stopped.
    fn run_flusher(&self, state: Arc<WalState>, backend: Arc<B>, executor: Executor);

    /// Gauges of this policy.
    fn gauges(&self, state: &WalState) -> Vec<(&'static str, f64)>;

    /// Which cell of a column readers see.
    fn cell_precedence(&self) -> CellPrecedence;

    /// Returns true if the first write to a table may proceed.
    fn accepts_table<'a>(
        &'a self,
        backend: &'a B,
        table: &'a Table,
    ) -> BoxFuture<'a, Result<bool, StorageError>>;

    /// Appends each cell to the value of its column. `batch` is not empty.
    fn append<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>>;

    /// Adds to a counter and returns the sum.
    fn increment<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        column: Column,
        amount: i64,
    ) -> BoxFuture<'a, Result<i64, StorageError>>;

    /// Puts `new`, or deletes the column if it is `None`, provided that the value is `expected`.
    /// Returns true if it was.
    fn compare_and_swap<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        column: Column,
        expected: Option<Bytes>,
        new: Option<NewValue>,
    ) -> BoxFuture<'a, Result<bool, StorageError>>;

    /// Replaces the columns of a row by the compacted one.
    fn rewrite_row<'a>(
        &'a self,
        writer: TableWriter<'a, B>,
        rewrite: RowRewrite,
    ) -> BoxFuture<'a, Result<(), StorageError>>;
}

/// The part of a policy that runs on the committer thread.
pub(crate) trait CommitPolicy: Send {
    /// Decides whether a group may be committed. May rotate the memtable and wait for a flush.
    fn admit(&mut self, active: &mut ActiveMemtable) -> Admission;

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
