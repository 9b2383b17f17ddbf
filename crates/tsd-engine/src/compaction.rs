//! Row compaction: merges the point columns of an old row into one column.
//!
//! There is one actor per salt bucket. It queues written rows until their hour is over, then compacts them at an even
//! rate (see [`CompactionPace`]). Fragmented rows that a query reads are compacted at once, but never by the query
//! itself. A pure function of the row's cells decides what to write and delete ([`tsd_model::plan_row_compaction`]).

mod compactors;
mod pace;
mod queue;
mod read_rows;
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
use tsd_runtime::{Actor, ActorContext, ActorRef, Clock, Reply, SendError};
use tsd_storage::{LogLimit, Storage, Table};

pub(crate) use self::{compactors::RowCompactors, row::latest_base};
use self::{
    pace::{CompactionPace, CompactionRound},
    queue::{QueueTotals, RowQueue},
    row::{CompactionOutcome, RowRules},
};

/// Most rows per batch. Small, so that new messages are handled soon.
const MAX_BATCH_ROWS: usize = 1_024;

/// Most pending rows that queries reported. Further rows are dropped; the next query that reads them reports them
/// again.
const MAX_FRAGMENTED_ROWS: usize = 262_144;

/// Messages to a compaction actor.
pub(crate) enum CompactionMessage {
    /// These rows were written.
    RowsWritten(Vec<Bytes>),
    /// A query read these rows and found them fragmented.
    FragmentedRows(Vec<Bytes>),
    /// Take every due row, then reply when all taken rows are compacted.
    Flush(Reply<()>),
    /// Reply when no taken row is pending.
    Idle(Reply<()>),
}

/// Counters of row compaction, over all buckets.
#[derive(Debug, Default)]
pub(crate) struct CompactionStats {
    /// Rows processed.
    pub(crate) rows: AtomicU64,
    /// Duplicate points with equal values.
    pub(crate) identical: AtomicU64,
    /// Duplicate points with different values.
    pub(crate) variant: AtomicU64,
    /// Rows that could not be read.
    pub(crate) read_errors: AtomicU64,
    /// Rows that could not be rewritten.
    pub(crate) write_errors: AtomicU64,
    /// Rows whose cells conflict.
    pub(crate) invalid: AtomicU64,
    /// Compacted columns written.
    pub(crate) writes: AtomicU64,
    /// Columns deleted.
    pub(crate) deletes: AtomicU64,
    /// Rows of notifications rejected by a full mailbox.
    pub(crate) notifications_dropped: AtomicU64,
    failure_log: FailureLog,
}

/// Limits the rate of messages about rows that cannot be compacted.
#[derive(Debug)]
struct FailureLog(LogLimit);

impl Default for FailureLog {
    fn default() -> Self {
        Self(LogLimit::new(Duration::from_mins(1)))
    }
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
    /// Number of the round. It increases when a round takes rows from the queue, so that a late point of such a row
    /// queues the row again.
    pub(crate) round: Arc<AtomicU32>,
}

/// State of a compaction actor.
pub(crate) struct RowCompactor {
    settings: CompactorSettings,
    queue: RowQueue,
    /// Rows that were taken from the queue, or reported by queries, and are not compacted yet.
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

    /// Reports rows to a compactor. If its mailbox is full, the rows are dropped and stay fragmented until a query
    /// reads them.
    pub(crate) fn notify(
        compactor: &ActorRef<CompactionMessage>,
        stats: &CompactionStats,
        message: CompactionMessage,
    ) {
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
        // Pending rows of earlier rounds count, so that slow storage is not overloaded.
        let take = self.settings.pace.rows_to_take(round).saturating_sub(self.taken.len());
        self.take(take, latest);
        self.start_batch(ctx);
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

    fn start_batch(&mut self, ctx: &mut ActorContext<'_, Self>) {
        if self.running {
            return;
        }
        if self.taken.is_empty() {
            for waiter in self.waiters.drain(..) {
                // A failed send means that the caller stopped waiting.
                let _ = waiter.send(());
            }
            return;
        }
        self.running = true;
        let rows: Vec<Bytes> = self.taken.drain(..self.taken.len().min(MAX_BATCH_ROWS)).collect();
        let settings = self.settings.clone();
        ctx.spawn(compact_rows(settings, rows), |compactor, to_retry, ctx| {
            compactor.running = false;
            for row in to_retry {
                compactor.queue.insert(row);
            }
            compactor.start_batch(ctx);
        });
    }
}

/// Compacts rows, several concurrently, and returns the rows to retry later.
async fn compact_rows(settings: CompactorSettings, rows: Vec<Bytes>) -> Vec<Bytes> {
    let now = settings.clock.now_secs();
    let settings = &settings;
    futures_util::stream::iter(rows)
        .map(|key| async move {
            let outcome =
                row::compact(&*settings.storage, &settings.table, &key, &settings.rules, now).await;
            settings.stats.record(&outcome);
            matches!(outcome, CompactionOutcome::RetryLater).then_some(key)
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
        // Logged at a limited rate: a row whose cells conflict fails again at each query that reports it.
        let failed = |counter: &AtomicU64, error: &dyn std::error::Error, what: &str| {
            counter.fetch_add(1, Ordering::Relaxed);
            if let Some(suppressed) = self.failure_log.0.admit() {
                tracing::warn!(%error, suppressed, "row not compacted: {what}");
            }
        };
        match outcome {
            CompactionOutcome::Done { put, deleted, identical, variant } => {
                add(&self.rows, 1);
                add(&self.writes, u64::from(*put));
                add(&self.deletes, *deleted as u64);
                add(&self.identical, *identical);
                add(&self.variant, *variant);
            }
            CompactionOutcome::RetryLater => {}
            CompactionOutcome::ReadFailed(error) => failed(&self.read_errors, error, "read failed"),
            CompactionOutcome::WriteFailed(error) => {
                failed(&self.write_errors, error, "rewrite failed");
            }
            CompactionOutcome::Invalid(error) => failed(&self.invalid, error, "cells conflict"),
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
                let free = MAX_FRAGMENTED_ROWS.saturating_sub(self.taken.len());
                let dropped = rows.len().saturating_sub(free);
                rows.truncate(free);
                self.settings
                    .stats
                    .notifications_dropped
                    .fetch_add(dropped as u64, Ordering::Relaxed);
                self.taken.extend(rows);
                self.start_batch(ctx);
            }
            CompactionMessage::Flush(reply) => {
                let latest = latest_base(self.settings.clock.now_secs());
                self.take(usize::MAX, latest);
                self.waiters.push(reply);
                self.start_batch(ctx);
            }
            CompactionMessage::Idle(reply) => {
                self.waiters.push(reply);
                self.start_batch(ctx);
            }
        }
    }
}

/// For the property test of corrections.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::row::{CompactionOutcome, RowRules, compact};
}

#[cfg(test)]
mod tests;
