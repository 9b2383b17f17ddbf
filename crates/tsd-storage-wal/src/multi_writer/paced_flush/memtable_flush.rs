//! A memtable that is being flushed, with the order and schedule of its ranges.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::flush_round::FlushRound;
use crate::{
    commit_log::LogPosition,
    flush_queue::FlushJob,
    memtable::{Memtable, TableId},
    multi_writer::flush_range::{FlushRange, MAX_CONCURRENT_RANGES},
};

/// A memtable that is being flushed.
pub(crate) struct MemtableFlush {
    pub(crate) memtable: Arc<Memtable>,
    /// Id of the last memtable whose rows it has.
    pub(crate) last_id: u64,
    pub(crate) position: Option<LogPosition>,
    pub(crate) bytes: u64,
    /// Ranges of this round.
    pub(crate) pending: VecDeque<FlushRange>,
    /// Ranges of the next round.
    pub(crate) deferred: VecDeque<FlushRange>,
    pub(crate) pace: Option<Pace>,
    pub(crate) started: Instant,
}

/// Distributes the ranges of a memtable evenly over a time window.
pub(crate) struct Pace {
    pub(super) window: Duration,
    pub(super) ranges: u32,
}

impl MemtableFlush {
    pub(super) fn new(job: FlushJob) -> Self {
        let FlushJob { memtable, position, bytes, flush_over } = job;
        memtable.sort();
        let pending = FlushRange::all_of(&memtable);
        let pace = flush_over.map(|window| Pace { window, ranges: pending.len() as u32 });
        let (deferred, started) = (VecDeque::new(), Instant::now());
        let last_id = memtable.id();
        Self { memtable, last_id, position, bytes, pending, deferred, pace, started }
    }

    /// Returns the next range that may be flushed in this round, and defers the ranges before it.
    pub(super) fn select_first(
        &mut self,
        round: &mut FlushRound,
        now: Instant,
        may_try: impl Fn(TableId) -> bool,
    ) -> Option<FlushRange> {
        while let Some(mut range) = self.pending.pop_front() {
            let unflushed = round.unflushed.iter().find(|other| other.overlaps(&range));
            let is_blocked = unflushed.is_some();
            if let Some(other) = unflushed {
                let (before, after) = range.narrow_to(other);
                self.pending.extend(after);
                self.pending.extend(before);
            }
            let is_paused = !round.is_urgent && range.retry_at.is_some_and(|at| at > now);
            let table = range.table;
            if !is_blocked && !is_paused && !round.is_failing(table) && may_try(table) {
                return Some(range);
            }
            self.defer(range, round);
        }
        None
    }

    /// Returns `first` and the ranges to submit together with it. These are due, have not failed before and are
    /// not blocked. After a failure, returns only `first`.
    pub(super) fn select_batch(
        &mut self,
        first: FlushRange,
        round: &FlushRound,
        now: Instant,
        is_stuck: impl Fn(TableId) -> bool,
    ) -> Vec<FlushRange> {
        let mut batch = vec![first];
        while round.consecutive_failures == 0
            && batch.len() < MAX_CONCURRENT_RANGES
            && (round.is_urgent || self.due(self.pending.len()).is_none_or(|due| due <= now))
            && let Some(next) = self.pending.pop_front_if(|next| {
                next.has_no_failure()
                    && !is_stuck(next.table)
                    && !round.is_failing(next.table)
                    && !round.unflushed.iter().any(|other| other.overlaps(next))
            })
        {
            batch.push(next);
        }
        batch
    }

    /// True if the table has unflushed rows here.
    pub(super) fn has_rows_of(&self, table: TableId) -> bool {
        self.pending.iter().chain(&self.deferred).any(|range| range.table == table)
    }

    /// Keeps a range for the next round.
    pub(super) fn defer(&mut self, range: FlushRange, round: &mut FlushRound) {
        round.unflushed.push(range.clone());
        self.deferred.push_back(range);
    }

    /// Time at which the first of `remaining` ranges is due; `None` without a pace.
    pub(super) fn due(&self, remaining: usize) -> Option<Instant> {
        self.pace.as_ref().map(|pace| pace.due(self.started, remaining))
    }
}

impl Pace {
    /// Time at which the first of `remaining` ranges is due.
    pub(super) fn due(&self, started: Instant, remaining: usize) -> Instant {
        let selected = self.ranges.saturating_sub(remaining as u32);
        started + self.window * selected / self.ranges.max(1)
    }
}
