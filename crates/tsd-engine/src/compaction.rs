//! Row compaction: the points of an old row become one column.
//!
//! One actor per salt bucket. Rows that were written wait in its queue until their hour is over and
//! leave on a slope (see [`CompactionPace`]); rows that a query met in pieces are done at once, but never by
//! the query itself. What is written and deleted is a pure function of the row's cells
//! ([`tsd_model::compaction`]).

mod pace;
mod queue;
mod row;

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
    pace::CompactionPace,
    queue::QueueTotals,
    row::{RowRules, has_work, is_due, latest_base},
};
use self::{pace::CompactionRound, queue::RowQueue, row::CompactionOutcome};
use crate::{
    actor::{Actor, ActorContext, ActorRef, Reply, SendError},
    clock::Clock,
};

/// Rows handed to one run of the worker, so that new orders are not kept waiting for long.
const ROWS_A_RUN: usize = 1_024;

/// Rows met by queries that may wait; the next query meets the others again.
const MAX_FRAGMENTED: usize = 262_144;

/// Orders to a compaction actor.
pub(crate) enum CompactionMessage {
    /// These rows were written.
    RowsWritten(Vec<Bytes>),
    /// A query met these rows in pieces.
    FragmentedRows(Vec<Bytes>),
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
    pub(crate) invalid: AtomicU64,
    /// Compacted columns put.
    pub(crate) writes: AtomicU64,
    /// Columns deleted.
    pub(crate) deletes: AtomicU64,
    /// Notices a full mailbox refused, in rows.
    pub(crate) notifications_dropped: AtomicU64,
}

/// Settings of a compaction actor.
#[derive(Clone, Debug)]
pub(crate) struct CompactorSettings {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    pub(crate) rules: RowRules,
    pub(crate) pace: CompactionPace,
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
    pub(crate) fn rows_written(
        compactor: &ActorRef<Self>,
        stats: &CompactionStats,
        rows: Vec<Bytes>,
    ) {
        Self::notify(compactor, stats, CompactionMessage::RowsWritten(rows));
    }

    /// Tells a compactor of rows that a query met in pieces.
    pub(crate) fn fragmented_rows_read(
        compactor: &ActorRef<Self>,
        stats: &CompactionStats,
        rows: Vec<Bytes>,
    ) {
        Self::notify(compactor, stats, CompactionMessage::FragmentedRows(rows));
    }

    fn notify(compactor: &ActorRef<Self>, stats: &CompactionStats, message: CompactionMessage) {
        if let Err(SendError::Full(
            CompactionMessage::RowsWritten(rows) | CompactionMessage::FragmentedRows(rows),
        )) = compactor.try_send(message)
        {
            stats.notifications_dropped.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
    }

    fn begin_round(&mut self, ctx: &mut ActorContext<'_, Self>) {
        let latest = latest_base(self.settings.clock.now_secs());
        let round = CompactionRound {
            now_secs: self.settings.clock.now_secs(),
            queued_total: self.settings.totals.rows.load(Ordering::Relaxed).max(self.queue.len()),
            queued: self.queue.len(),
            due: self.queue.due(latest),
        };
        // Rows of the last round that are still to be done count: a slow store is not pushed.
        let take = self.settings.pace.rows_to_take(round).saturating_sub(self.taken.len());
        self.take(take, latest);
        self.run(ctx);
        ctx.after(self.settings.interval, Self::begin_round);
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

    fn run(&mut self, ctx: &mut ActorContext<'_, Self>) {
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
        ctx.spawn(compact_rows(settings, rows), |compactor, put_back, ctx| {
            compactor.running = false;
            for row in put_back {
                compactor.queue.insert(row);
            }
            compactor.run(ctx);
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
            settings.stats.record(&outcome);
            matches!(outcome, CompactionOutcome::Throttled).then_some(key)
        })
        .buffer_unordered(settings.max_in_flight.max(1))
        .filter_map(std::future::ready)
        .collect()
        .await
}

impl CompactionStats {
    fn record(&self, outcome: &CompactionOutcome) {
        let add = |counter: &AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        match outcome {
            CompactionOutcome::Done { put, deleted, identical, variant } => {
                add(&self.rows, 1);
                add(&self.writes, u64::from(*put));
                add(&self.deletes, *deleted as u64);
                add(&self.identical, *identical);
                add(&self.variant, *variant);
            }
            CompactionOutcome::Throttled => {}
            CompactionOutcome::ReadFailed(error) => {
                if self.read_errors.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                    tracing::warn!(%error, "a row could not be read for compaction");
                }
            }
            CompactionOutcome::WriteFailed(error) => {
                if self.write_errors.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                    tracing::warn!(%error, "a row could not be rewritten");
                }
            }
            CompactionOutcome::Invalid(error) => {
                if self.invalid.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                    tracing::warn!(%error, "a row cannot be compacted");
                }
            }
        }
    }
}

impl Actor for RowCompactor {
    type Message = CompactionMessage;

    fn started(&mut self, ctx: &mut ActorContext<'_, Self>) {
        ctx.after(self.settings.interval, Self::begin_round);
    }

    fn handle(&mut self, message: CompactionMessage, ctx: &mut ActorContext<'_, Self>) {
        match message {
            CompactionMessage::RowsWritten(rows) => {
                for row in rows {
                    self.queue.insert(row);
                }
            }
            CompactionMessage::FragmentedRows(mut rows) => {
                let room = MAX_FRAGMENTED.saturating_sub(self.taken.len());
                let lost = rows.len().saturating_sub(room);
                rows.truncate(room);
                self.settings.stats.notifications_dropped.fetch_add(lost as u64, Ordering::Relaxed);
                self.taken.extend(rows);
                self.run(ctx);
            }
            CompactionMessage::Flush(reply) => {
                let latest = latest_base(self.settings.clock.now_secs());
                self.take(usize::MAX, latest);
                self.waiters.push(reply);
                self.run(ctx);
            }
            CompactionMessage::Idle(reply) => {
                self.waiters.push(reply);
                self.run(ctx);
            }
        }
    }
}

#[cfg(test)]
mod tests;
