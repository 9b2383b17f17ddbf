//! The active memtable, which takes writes, and the section of the log with the same changes.
//!
//! Both are closed together: [`ActiveMemtable::rotate`] queues the memtable for its flush. The log is trimmed
//! after that flush.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::{
    commit_log::CommitLog,
    flush_queue::FlushJob,
    memtable::{MAX_ADDED_MS, Memtable},
    state::WalState,
};

/// Maximum number of immutable memtables in the flush queue, unless a caller requests a flush.
pub(crate) const MAX_IMMUTABLE_MEMTABLES: usize = 16;

/// Limits at which the active memtable is rotated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RotationLimits {
    /// Bytes of the memtable.
    pub(crate) memtable_bytes: usize,
    /// Time since the first commit in the memtable.
    pub(crate) max_age: Duration,
    /// Length of the active segment; `None` if segments do not limit a memtable.
    pub(crate) segment_bytes: Option<u64>,
}

/// The active memtable and its section of the log. Owned by the committer thread.
pub(crate) struct ActiveMemtable {
    state: Arc<WalState>,
    limits: RotationLimits,
    next_id: u64,
    /// Time at which the memtable reaches its maximum age; `None` while it is empty.
    deadline: Option<Instant>,
    /// Commit time of the next group. It never decreases.
    now_ms: i64,
}

impl ActiveMemtable {
    /// `next_id` is the id of the memtable after the active one.
    pub(crate) fn new(state: Arc<WalState>, limits: RotationLimits, next_id: u64) -> Self {
        let now_ms = state.last_commit_ms.load(Ordering::Acquire);
        Self { state, limits, next_id, deadline: None, now_ms }
    }

    pub(crate) const fn state(&self) -> &Arc<WalState> {
        &self.state
    }

    pub(crate) fn log(&self) -> &dyn CommitLog {
        &*self.state.log
    }

    pub(crate) const fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Advances the commit time to the clock, unless the clock is behind.
    pub(crate) fn read_clock(&mut self) {
        self.now_ms = self.now_ms.max((self.state.config.clock)());
        self.raise_to_floor();
    }

    /// Advances the commit time to the floor. A request that arrived after the floor was raised may join a group
    /// that began earlier.
    pub(crate) fn raise_to_floor(&mut self) {
        self.now_ms = self.now_ms.max(self.state.commit_floor_ms.load(Ordering::Acquire));
    }

    pub(crate) const fn advance_commit_time(&mut self, by_ms: i64) {
        self.now_ms += by_ms;
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Starts the deadline of the memtable with its first change.
    pub(crate) fn start_aging(&mut self) {
        let max_age = self.limits.max_age;
        self.deadline.get_or_insert_with(|| Instant::now() + max_age);
    }

    /// Postpones the rotation of an aged memtable.
    pub(crate) fn postpone_rotation(&mut self, delay: Duration) {
        self.deadline = Some(Instant::now() + delay);
    }

    /// Makes the memtable rotate after `age` at the latest.
    pub(crate) fn shorten_age(&mut self, age: Duration) {
        let latest = Instant::now() + age;
        self.deadline = self.deadline.map(|deadline| deadline.min(latest));
    }

    pub(crate) const fn max_age(&self) -> Duration {
        self.limits.max_age
    }

    /// True if the memtable or its segment has reached its limit.
    pub(crate) fn is_full(&self) -> bool {
        let view = self.state.memtables.view();
        view.active().is_some_and(|active| active.bytes() >= self.limits.memtable_bytes)
            || self
                .limits
                .segment_bytes
                .is_some_and(|limit| self.log().section_size().segment_bytes >= limit)
    }

    /// True if another immutable memtable fits into the flush queue.
    pub(crate) fn can_rotate(&self) -> bool {
        self.state.memtables.view().immutable_count() < MAX_IMMUTABLE_MEMTABLES
    }

    /// Begins another segment for the same memtable if the active segment is full.
    pub(crate) fn roll_full_segment(&mut self) {
        if self.log().section_size().segment_bytes >= self.state.config.segment_bytes {
            self.log().roll();
        }
    }

    /// Queues the memtable for its flush and activates an empty one with its own section. Does nothing if the
    /// memtable is empty. The flush is spread over `flush_over`; without it, the flush runs at full speed.
    pub(crate) fn rotate(&mut self, flush_over: Option<Duration>) {
        self.deadline = None;
        let state = &self.state;
        let size = state.log.section_size();
        let view = state.memtables.view();
        let Some(active) = view.active().filter(|_| !size.is_empty) else { return };
        let position = Some(self.log().end_section());
        // Points may be this much later than their commits.
        self.now_ms = self.now_ms.saturating_add(MAX_ADDED_MS);
        let next = Memtable::new(self.next_id, self.now_ms, Arc::clone(&state.buffer_pool));
        self.next_id += 1;
        state.memtables.rotate(next);
        let memtable = Arc::clone(active);
        state.queue_flush(FlushJob { memtable, position, bytes: size.bytes, flush_over });
        state.active_segment_bytes.store(0, Ordering::Relaxed);
    }
}
