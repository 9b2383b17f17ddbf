//! Admission, rotation and commit times for a multi-writer backend.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tsd_storage::StorageError;

use super::flush_progress::FlushProgress;
use crate::{
    active_memtable::ActiveMemtable,
    backend_policy::{Admission, CommitPolicy},
    change::Change,
    memtable::TableId,
    state::WalState,
};

/// Longest wait for a flush without progress. After it, later writes are rejected at once until a flush makes
/// progress.
const MAX_STALL: Duration = Duration::from_secs(2);
/// Interval at which the rotation of an aged memtable is attempted.
const ROTATION_RETRY: Duration = Duration::from_secs(1);

pub(super) struct MultiWriterCommits {
    progress: Arc<FlushProgress>,
    stall: Option<Stall>,
}

/// State while log or memory is full.
#[derive(Clone, Copy)]
struct Stall {
    /// Time of the last progress of the flusher.
    since: Instant,
    /// Number of chunks that were flushed by then.
    flushed_ranges: u64,
}

impl MultiWriterCommits {
    pub(super) const fn new(progress: Arc<FlushProgress>) -> Self {
        Self { progress, stall: None }
    }

    fn flushed_ranges(&self) -> u64 {
        self.progress.flushed_ranges.load(Ordering::Relaxed)
    }

    /// Waits as long as flushes make progress. Returns true once stopped.
    fn wait_for_flushes(
        &mut self,
        active: &ActiveMemtable,
        can_proceed: &impl Fn() -> bool,
    ) -> bool {
        let state = active.state();
        let is_unavailable = || self.progress.is_backend_unavailable(state);
        loop {
            let flushed_ranges = self.flushed_ranges();
            let stall = match self.stall {
                Some(stall) if stall.flushed_ranges == flushed_ranges => stall,
                _ => Stall { since: Instant::now(), flushed_ranges },
            };
            self.stall = Some(stall);
            let has_progress = || self.flushed_ranges() != flushed_ranges;
            let timeout = MAX_STALL.saturating_sub(stall.since.elapsed());
            let is_stopping = state
                .flush_queue
                .wait_until_for(timeout, || can_proceed() || is_unavailable() || has_progress());
            if is_stopping || can_proceed() || is_unavailable() || !has_progress() {
                return is_stopping;
            }
        }
    }
}

/// The error of a write while log or memory is full and flushes make no progress. If a table cannot be flushed,
/// the error names the cause.
fn full_log_error(state: &WalState) -> StorageError {
    match state.flush_failures.borrow().iter().next() {
        Some((table, error)) => StorageError::Unavailable(
            format!("the log is full, and table {table} cannot be flushed: {error}").into(),
        ),
        None => match state.trim_error() {
            Some(error) => StorageError::Unavailable(
                format!("the log is full, and flushed segments of it are kept: {error}").into(),
            ),
            None => StorageError::Throttled("the log is full and is being flushed"),
        },
    }
}

impl CommitPolicy for MultiWriterCommits {
    fn admit(&mut self, active: &mut ActiveMemtable, _: u64) -> Admission {
        if active.is_full() && active.can_rotate() {
            active.rotate(None);
        }
        let state = Arc::clone(active.state());
        let has_capacity = || {
            let config = &state.config;
            let has_memory = state.memtables.view().bytes() < config.memtable_bytes;
            has_memory && config.max_log_bytes.is_none_or(|limit| state.log_bytes() < limit)
        };
        if !has_capacity() && active.can_rotate() {
            active.rotate(None);
        }
        // If the limit is below the size of one row, there may be no flush to wait for.
        let can_proceed = || {
            let has_flushed = state.memtables.view().immutable_count() == 0;
            has_capacity() || has_flushed && state.trim_error().is_none()
        };
        if !can_proceed() {
            let started = Instant::now();
            if self.stall.is_none() {
                state.metrics.stalls.increment(1);
                tracing::warn!(
                    log_bytes = state.log_bytes(),
                    memory_bytes = state.memtables.view().bytes(),
                    "log or memory are full; writes wait for a flush"
                );
            }
            let is_stopping = self.wait_for_flushes(active, &can_proceed);
            state.metrics.stall_seconds.record(started.elapsed());
            if is_stopping {
                return Admission::Stopping;
            }
            if !can_proceed() {
                return if state.is_backend_full() {
                    state.metrics.disk_full.increment(1);
                    Admission::Rejected(StorageError::DiskFull)
                } else {
                    state.metrics.rejected_writes.increment(1);
                    Admission::Rejected(full_log_error(&state))
                };
            }
        }
        if self.stall.take().is_some() {
            tracing::info!("log and memory have capacity again");
        }
        Admission::Admitted
    }

    /// Flushes only one memtable at an even pace at a time. Until it is flushed, the active memtable grows, which
    /// avoids many small memtables.
    fn rotate_aged(&self, active: &mut ActiveMemtable) {
        if active.state().memtables.view().immutable_count() == 0 {
            // Age at rotation plus flush time stays below the maximum age.
            active.rotate(Some(active.state().config.max_age / 5));
        } else {
            active.postpone_rotation(ROTATION_RETRY);
        }
    }

    fn refusal(&self, state: &WalState, table: TableId) -> Option<StorageError> {
        self.progress.refusal(state, table)
    }

    fn after_commit(&self, active: &mut ActiveMemtable) {
        active.roll_full_segment();
    }

    /// In HBase, a delete hides a put with the same timestamp, even a later put.
    fn commit_time_step(&self, change: &Change) -> i64 {
        i64::from(!matches!(change, Change::Put(_)))
    }
}
