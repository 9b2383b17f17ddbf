//! Admission, rotation and commit times over an exclusive backend.

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

/// How long writes wait for flushes that fail.
const FAILING_FLUSH_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct ExclusiveCommits;

impl CommitPolicy for ExclusiveCommits {
    /// Waits while memory, disk or flush queue are full: memory and queue do not exceed their bound
    /// by more than a group. A delete waits only for memory and queue, and beyond an eighth more of
    /// the memory: it may be what frees the disk.
    fn admit(&mut self, active: &mut ActiveMemtable, room: u64) -> Admission {
        let state = Arc::clone(active.state());
        let limit = state.config.memtable_bytes;
        let limit = if room == 0 { limit + limit / 8 } else { limit };
        let is_memory_full = || state.memtables.view().bytes() >= limit;
        // Flushed segments are removed, which makes room for others.
        let is_disk_full = || room > 0 && state.log_room() < room;
        if (is_memory_full() || is_disk_full() && !state.is_backend_full()) && active.can_rotate() {
            active.rotate(None);
        }
        let is_full = active.is_full();
        let can_proceed = || {
            let immutable = state.memtables.view().immutable_count();
            // With a bound below the size of one row there may be nothing to wait for.
            (immutable == 0 || !is_memory_full() && !is_disk_full())
                && !(is_full && immutable >= MAX_IMMUTABLE_MEMTABLES)
        };
        let mut is_stopping = state.flush_queue.is_stopping();
        if !can_proceed() {
            let started = Instant::now();
            state.metrics.stalls.increment(1);
            tracing::debug!("memtables are full, waiting for a flush");
            let mut give_up_at = None;
            // With free space again the next flush succeeds: it is worth waiting for.
            let is_backend_full = || state.is_backend_full() && !state.has_flush_room();
            while !is_stopping && !can_proceed() && !is_backend_full() {
                if state.flush_error().is_none() {
                    give_up_at = None;
                } else if *give_up_at.get_or_insert_with(|| started + FAILING_FLUSH_PATIENCE)
                    <= Instant::now()
                {
                    break;
                }
                // A failed flush is an event too.
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
