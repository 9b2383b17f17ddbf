//! Row compaction: the points of an old row become one column.
//!
//! One actor per salt bucket. Rows that were written wait in its queue until their hour is over and
//! leave on a slope (see [`Slope`]); rows that a query met in pieces are done at once, but never by
//! the query itself. What is written and deleted is a pure function of the row's cells
//! ([`tsd_model::compaction`]).

mod queue;
mod row;
mod slope;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use tsd_storage::{Storage, Table};

pub(crate) use self::{
    queue::QueueTotals,
    row::{RowRules, has_work, is_due, latest_base},
    slope::Slope,
};
use self::{queue::RowQueue, row::Outcome, slope::Round};
use crate::{
    actor::{Desk, Doer, DoerRef, Reply, TellError},
    clock::Clock,
};

/// Rows handed to one run of the worker, so that new orders are not kept waiting for long.
const ROWS_A_RUN: usize = 1_024;

/// Rows met by queries that may wait; the next query meets the others again.
const MAX_MET: usize = 262_144;

/// Orders to a compaction actor.
pub(crate) enum CompactionOrder {
    /// These rows were written.
    Touched(Vec<Bytes>),
    /// A query met these rows in pieces.
    Met(Vec<Bytes>),
    /// Take every row that is old enough now, then answer when all taken rows are done.
    Flush(Reply<()>),
    /// Answer when no row that was taken is left undone.
    Idle(Reply<()>),
}

/// What is counted, over all buckets.
#[derive(Debug, Default)]
pub(crate) struct CompactionStats {
    /// Rows looked at.
    pub(crate) rows: AtomicU64,
    /// Same value twice at an instant.
    pub(crate) identical: AtomicU64,
    /// Two values at an instant.
    pub(crate) variant: AtomicU64,
    /// Rows that could not be read.
    pub(crate) read_errors: AtomicU64,
    /// Rows whose rewrite failed.
    pub(crate) write_errors: AtomicU64,
    /// Rows whose cells contradict each other.
    pub(crate) illegal: AtomicU64,
    /// Compacted columns put.
    pub(crate) writes: AtomicU64,
    /// Columns deleted.
    pub(crate) deletes: AtomicU64,
    /// Notices a full mailbox refused, in rows.
    pub(crate) notices_lost: AtomicU64,
}

/// Settings of a compaction actor.
#[derive(Clone, Debug)]
pub(crate) struct CompactorSettings {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    pub(crate) rules: RowRules,
    pub(crate) slope: Slope,
    pub(crate) interval: Duration,
    pub(crate) max_in_flight: usize,
    pub(crate) max_queue_bytes: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) totals: Arc<QueueTotals>,
    pub(crate) stats: Arc<CompactionStats>,
    /// Raised when a round takes rows: what was touched before may have left the queue.
    pub(crate) round: Arc<AtomicU32>,
}

/// State of a compaction actor.
pub(crate) struct RowCompactor {
    settings: CompactorSettings,
    queue: RowQueue,
    taken: VecDeque<Bytes>,
    running: bool,
    waiters: Vec<Reply<()>>,
}

impl RowCompactor {
    pub(crate) fn new(settings: CompactorSettings) -> Self {
        let queue = RowQueue::new(
            settings.rules.schema.base_time_start(),
            settings.max_queue_bytes,
            Arc::clone(&settings.totals),
        );
        Self { settings, queue, taken: VecDeque::new(), running: false, waiters: Vec::new() }
    }

    /// Tells a compactor of rows that were written. If it cannot keep up they stay in pieces until
    /// a query meets them.
    pub(crate) fn note_touched(
        compactor: &DoerRef<Self>,
        stats: &CompactionStats,
        rows: Vec<Bytes>,
    ) {
        Self::note(compactor, stats, CompactionOrder::Touched(rows));
    }

    /// Tells a compactor of rows that a query met in pieces.
    pub(crate) fn note_met(compactor: &DoerRef<Self>, stats: &CompactionStats, rows: Vec<Bytes>) {
        Self::note(compactor, stats, CompactionOrder::Met(rows));
    }

    fn note(compactor: &DoerRef<Self>, stats: &CompactionStats, order: CompactionOrder) {
        if let Err(TellError::Full(CompactionOrder::Touched(rows) | CompactionOrder::Met(rows))) =
            compactor.tell(order)
        {
            stats.notices_lost.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
    }

    fn begin_round(&mut self, desk: &mut Desk<'_, Self>) {
        let latest = latest_base(self.settings.clock.now_secs());
        let round = Round {
            now_secs: self.settings.clock.now_secs(),
            queued_total: self.settings.totals.rows.load(Ordering::Relaxed).max(self.queue.len()),
            queued: self.queue.len(),
            due: self.queue.due(latest),
        };
        // Rows of the last round that are still to be done count: a slow store is not pushed.
        let take = self.settings.slope.take(round).saturating_sub(self.taken.len());
        self.take(take, latest);
        self.run(desk);
        desk.after(self.settings.interval, Self::begin_round);
    }

    fn take(&mut self, rows: usize, latest: i64) {
        if rows == 0 {
            return;
        }
        self.settings.round.fetch_add(1, Ordering::AcqRel);
        for _ in 0..rows {
            let Some(row) = self.queue.pop_due(latest) else { break };
            self.taken.push_back(row);
        }
    }

    fn run(&mut self, desk: &mut Desk<'_, Self>) {
        if self.running {
            return;
        }
        if self.taken.is_empty() {
            for waiter in self.waiters.drain(..) {
                // An asker that went away needs no answer.
                let _ = waiter.send(());
            }
            return;
        }
        self.running = true;
        let rows: Vec<Bytes> = self.taken.drain(..self.taken.len().min(ROWS_A_RUN)).collect();
        let settings = self.settings.clone();
        desk.spawn(compact_rows(settings, rows), |compactor, put_back, desk| {
            compactor.running = false;
            for row in put_back {
                compactor.queue.insert(row);
            }
            compactor.run(desk);
        });
    }
}

/// Compacts rows, several at once, and returns those the store had no time for.
async fn compact_rows(settings: CompactorSettings, rows: Vec<Bytes>) -> Vec<Bytes> {
    let now = settings.clock.now_secs();
    let settings = &settings;
    futures_util::stream::iter(rows)
        .map(|key| async move {
            let outcome =
                row::compact(&*settings.storage, &settings.table, &key, &settings.rules, now).await;
            settings.stats.note(&outcome);
            matches!(outcome, Outcome::Throttled).then_some(key)
        })
        .buffer_unordered(settings.max_in_flight.max(1))
        .filter_map(std::future::ready)
        .collect()
        .await
}

impl CompactionStats {
    fn note(&self, outcome: &Outcome) {
        let add = |counter: &AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        match outcome {
            Outcome::Done { put, deleted, identical, variant } => {
                add(&self.rows, 1);
                add(&self.writes, u64::from(*put));
                add(&self.deletes, *deleted as u64);
                add(&self.identical, *identical);
                add(&self.variant, *variant);
            }
            Outcome::Throttled => {}
            Outcome::ReadFailed(error) => {
                if self.read_errors.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                    tracing::warn!(%error, "a row could not be read for compaction");
                }
            }
            Outcome::WriteFailed(error) => {
                if self.write_errors.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                    tracing::warn!(%error, "a row could not be rewritten");
                }
            }
            Outcome::Illegal(error) => {
                if self.illegal.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                    tracing::warn!(%error, "a row cannot be compacted");
                }
            }
        }
    }
}

impl Doer for RowCompactor {
    type Order = CompactionOrder;

    fn started(&mut self, desk: &mut Desk<'_, Self>) {
        desk.after(self.settings.interval, Self::begin_round);
    }

    fn handle(&mut self, order: CompactionOrder, desk: &mut Desk<'_, Self>) {
        match order {
            CompactionOrder::Touched(rows) => {
                for row in rows {
                    self.queue.insert(row);
                }
            }
            CompactionOrder::Met(mut rows) => {
                let room = MAX_MET.saturating_sub(self.taken.len());
                let lost = rows.len().saturating_sub(room);
                rows.truncate(room);
                self.settings.stats.notices_lost.fetch_add(lost as u64, Ordering::Relaxed);
                self.taken.extend(rows);
                self.run(desk);
            }
            CompactionOrder::Flush(reply) => {
                let latest = latest_base(self.settings.clock.now_secs());
                self.take(usize::MAX, latest);
                self.waiters.push(reply);
                self.run(desk);
            }
            CompactionOrder::Idle(reply) => {
                self.waiters.push(reply);
                self.run(desk);
            }
        }
    }
}

#[cfg(test)]
mod tests;
