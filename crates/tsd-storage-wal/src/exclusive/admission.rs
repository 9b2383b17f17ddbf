//! Admission, rotation and commit times over an exclusive backend.

use std::{sync::Arc, time::Instant};

use tsd_storage::StorageError;

use crate::{
    active_memtable::{ActiveMemtable, MAX_IMMUTABLE_MEMTABLES},
    backend_policy::{Admission, CommitPolicy},
    change::Change,
};

pub(super) struct ExclusiveCommits;

impl CommitPolicy for ExclusiveCommits {
    /// Waits while memory or flush queue are full: neither exceeds its bound by more than a group.
    fn admit(&mut self, active: &mut ActiveMemtable) -> Admission {
        let state = Arc::clone(active.state());
        let is_memory_full = || state.memtables.view().bytes() >= state.config.memtable_bytes;
        if is_memory_full() && active.can_rotate() {
            active.rotate(None);
        }
        let is_full = active.is_full();
        let can_proceed = || {
            let immutable = state.memtables.view().immutable_count();
            // With a bound below the size of one row there may be nothing to wait for.
            (!is_memory_full() || immutable == 0)
                && !(is_full && immutable >= MAX_IMMUTABLE_MEMTABLES)
        };
        let mut is_stopping = state.flush_queue.is_stopping();
        if !can_proceed() {
            let started = Instant::now();
            state.metrics.stalls.increment(1);
            tracing::debug!("memtables are full, waiting for a flush");
            is_stopping = state.flush_queue.wait_until(|| can_proceed() || state.is_backend_full());
            state.metrics.stall_seconds.record(started.elapsed());
        }
        if is_stopping {
            return Admission::Stopping;
        }
        if !can_proceed() {
            state.metrics.disk_full.increment(1);
            return Admission::Rejected(StorageError::DiskFull);
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
