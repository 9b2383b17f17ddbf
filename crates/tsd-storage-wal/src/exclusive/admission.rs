//! Admission, rotation and commit times for an exclusive backend.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tsd_storage::StorageError;

use crate::{
    active_memtable::{ActiveMemtable, MAX_IMMUTABLE_MEMTABLES},
    backend_policy::{Admission, CommitPolicy},
    change::Change,
};

/// How long writes wait while flushes fail.
const FAILING_FLUSH_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct ExclusiveCommits;

impl CommitPolicy for ExclusiveCommits {
    /// Waits while memory, disk or flush queue is full, so that memory and queue exceed their limits by at most
    /// one group. A delete does not wait for the disk, since it may free the disk, and may use an eighth more
    /// memory.
    fn admit(&mut self, active: &mut ActiveMemtable, room: u64) -> Admission {
        let state = Arc::clone(active.state());
        let limit = state.config.memtable_bytes;
        let limit = if room == 0 { limit + limit / 8 } else { limit };
        let is_memory_full = || state.memtables.view().bytes() >= limit;
        // The removal of flushed segments frees space for others.
        let is_disk_full = || room > 0 && state.log_room() < room;
        if (is_memory_full() || is_disk_full() && !state.is_backend_full()) && active.can_rotate() {
            active.rotate(None);
        }
        let is_full = active.is_full();
        let can_proceed = || {
            let immutable = state.memtables.view().immutable_count();
            // If the limit is below the size of one row, there may be no flush to wait for.
            (immutable == 0 || !is_memory_full() && !is_disk_full())
                && !(is_full && immutable >= MAX_IMMUTABLE_MEMTABLES)
        };
        let mut is_stopping = state.flush_queue.is_stopping();
        if !can_proceed() {
            let started = Instant::now();
            state.metrics.stalls.increment(1);
            tracing::debug!("memtables are full, waiting for a flush");
            let mut give_up_at = None;
            // Once there is free space, the next flush succeeds, so waiting is worthwhile.
            let is_backend_full = || state.is_backend_full() && !state.has_flush_room();
            while !is_stopping && !can_proceed() && !is_backend_full() {
                if state.flush_error().is_none() {
                    give_up_at = None;
                } else if *give_up_at.get_or_insert_with(|| started + FAILING_FLUSH_PATIENCE)
                    <= Instant::now()
                {
                    break;
                }
                // A failed flush also ends the wait.
                is_stopping = state
                    .flush_queue
                    .wait_until_for(FAILING_FLUSH_PATIENCE, || can_proceed() || is_backend_full());
            }
            state.metrics.stall_seconds.record(started.elapsed());
        }
        if is_stopping {
            return Admission::Stopping;
        }
        if !can_proceed() {
            return match state.flush_error() {
                Some(error) if !state.is_backend_full() && !is_disk_full() => {
                    state.metrics.rejected_writes.increment(1);
                    Admission::Rejected(StorageError::Unavailable(
                        format!("memory is full, and flushes fail: {error}").into(),
                    ))
                }
                _ => {
                    state.metrics.disk_full.increment(1);
                    Admission::Rejected(StorageError::DiskFull)
                }
            };
        }
        if is_full {
            active.rotate(None);
        }
        Admission::Admitted
    }

    fn rotate_aged(&self, active: &mut ActiveMemtable) {
        if active.can_rotate() {
            active.rotate(None);
        } else {
            active.postpone_rotation(active.max_age());
        }
    }

    /// A full segment rotates its memtable.
    fn after_commit(&self, _: &mut ActiveMemtable) {}

    fn commit_time_step(&self, _: &Change) -> i64 {
        0
    }
}
