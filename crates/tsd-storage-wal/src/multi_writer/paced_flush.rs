//! Flushes memtables in key-range chunks, in rounds of select, submit and settle.
//!
//! Chunks of a few hundred rows serve these purposes:
//!
//! * **Pacing.** The chunks of an aged memtable are flushed evenly over a fraction of the maximum age ([`Pace`]).
//!   This avoids load spikes on the backend.
//! * **Unavailable regions.** A failed chunk is retried without limit while the others are flushed. Later rows in
//!   the range of an unflushed chunk wait for the chunk, so that writes of a row are flushed in order.
//! * **Rejected rows.** A chunk that keeps failing permanently is halved until a single row is left. If the
//!   backend can never accept that row, it is written to the dead-letter file and counts as flushed. Otherwise,
//!   or if the file is full, the row is logged as an error, counted, and retried every minute. An acknowledged
//!   row is never dropped: it keeps its memtable and the log, and in the end, the limit of the log causes
//!   rejections.
//!
//! * **Stuck tables.** If only the flushes of one table fail, its rows are relocated to survivor files
//!   ([`failing_tables`](super::failing_tables), [`relocation`](super::relocation)). So the log of the other
//!   tables can be trimmed.
//!
//! A few consecutive failures mean that the backend is unavailable. Then each other table is tried once more, and
//! the round ends. The next round starts after a pause, with the oldest rows.

mod flush_round;
mod memtable_flush;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use tsd_files::panic_text;
use tsd_storage::{FlushRows, FlushTarget, Recovery, StorageError};

use self::flush_round::FlushRound;
pub(super) use self::memtable_flush::MemtableFlush;
use super::{
    dead_letter::{DeadLetters, Hex},
    failing_tables::{FailingTables, RoundOutcome},
    flush_progress::FlushProgress,
    flush_range::FlushRange,
    survivor_files::SurvivorFiles,
};
use crate::{
    backoff::Backoff,
    executor::Executor,
    memtable::{CellPrecedence, Memtable, MemtableRows, TableId},
    state::WalState,
};

/// Number of permanent failures after which a range is halved even if no other range succeeds.
const MAX_PERMANENT_FAILURES: u32 = 3;
/// Pause before a rejected row is retried.
const REJECTED_ROW_PAUSE: Duration = Duration::from_mins(1);
/// Shortest pause before a stuck table is tried again.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The flush queue was stopped.
#[derive(Debug)]
struct Stopped;

pub(crate) struct PacedFlusher<B> {
    pub(super) state: Arc<WalState>,
    backend: Arc<B>,
    executor: Executor,
    pub(super) progress: Arc<FlushProgress>,
    /// Oldest first. The survivors, if any, are the first.
    pub(super) flushes: VecDeque<MemtableFlush>,
    dead_letters: DeadLetters,
    pub(super) failing: FailingTables,
    pub(super) survivor_files: SurvivorFiles,
}

impl<B: FlushTarget> PacedFlusher<B> {
    pub(crate) fn new(
        state: Arc<WalState>,
        backend: Arc<B>,
        executor: Executor,
        progress: Arc<FlushProgress>,
    ) -> Self {
        let failing =
            FailingTables::new(state.config.stuck_after, state.config.logged.has_several());
        Self {
            state,
            backend,
            executor,
            progress,
            flushes: VecDeque::new(),
            dead_letters: DeadLetters::default(),
            failing,
            survivor_files: SurvivorFiles::new(),
        }
    }

    /// Runs until the queue is stopped.
    pub(crate) fn run(mut self) {
        let mut backoff = Backoff::new();
        let mut timeout = Duration::MAX;
        while let Some(jobs) = self.state.flush_queue.jobs_after(self.flushes.len(), timeout) {
            self.flushes.extend(jobs.into_iter().map(MemtableFlush::new));
            self.adopt_survivors();
            self.publish_stuck();
            let Ok(round) = self.run_round() else { return };
            self.end_round(&round);
            timeout = self.publish(round, &mut backoff);
        }
    }

    /// Relocates rows of tables that fail while others succeed.
    fn end_round(&mut self, round: &FlushRound) {
        let outcome = RoundOutcome {
            flushed: &round.flushed_tables,
            errors: &round.errors,
            is_pressed: self.state.is_half_full(),
        };
        for table in self.failing.end_round(&outcome, Instant::now()) {
            let table = self.state.tables.all().get(table.0).map(ToString::to_string);
            tracing::error!(
                table = table.unwrap_or_default(),
                "the rows of one table cannot be flushed; they are kept apart from the log of the others"
            );
        }
        let flushes = &self.flushes;
        self.failing.retain(|table| flushes.iter().any(|flush| flush.has_rows_of(table)));
        self.relocate_stuck();
        self.remove_survivors();
        self.publish_stuck();
    }

    fn publish_stuck(&self) {
        self.progress.set_stuck(self.failing.stuck());
    }

    fn run_round(&mut self) -> Result<FlushRound, Stopped> {
        let is_urgent = self.state.flush_queue.has_waiters();
        let mut round = FlushRound { is_urgent, ..FlushRound::default() };
        let mut flushes = std::mem::take(&mut self.flushes);
        for flush in &mut flushes {
            while let Some(ranges) = self.select(flush, &mut round)? {
                let results = self.submit(&flush.memtable, &ranges);
                for (range, result) in ranges.into_iter().zip(results) {
                    self.settle(flush, &mut round, range, result)?;
                }
            }
            flush.pending = std::mem::take(&mut flush.deferred);
        }
        self.flushes = flushes;
        self.complete_memtables();
        Ok(round)
    }

    /// Publishes the result of a round. Returns the longest pause before the next round.
    fn publish(&self, round: FlushRound, backoff: &mut Backoff) -> Duration {
        let mut others = round.errors.keys().filter(|table| !self.failing.is_stuck(**table));
        let has_errors = others.next().is_some();
        let is_unavailable = has_errors && round.flushed == 0;
        self.progress.is_unavailable.store(is_unavailable, Ordering::Relaxed);
        let pause = if has_errors {
            backoff.next_pause()
        } else if self.flushes.is_empty() {
            // Retries a failed trim.
            if self.state.finish_trim() { Duration::MAX } else { backoff.next_pause() }
        } else {
            // Only rejected rows and stuck tables remain.
            let retry = self.failing.next_retry().map(|at| at - Instant::now());
            retry.unwrap_or(REJECTED_ROW_PAUSE).clamp(MIN_RETRY_PAUSE, REJECTED_ROW_PAUSE)
        };
        if !is_unavailable {
            backoff.reset();
        }
        self.publish_tables(round, pause);
        pause
    }

    /// Publishes the state of each table: failing with its last error, or succeeding once none of its rows wait.
    fn publish_tables(&self, mut round: FlushRound, pause: Duration) {
        for (id, table) in self.state.tables.all().iter().enumerate() {
            let id = TableId(id);
            if let Some(error) = round.errors.remove(&id) {
                let flushed = round.flushed;
                tracing::warn!(%table, %error, flushed, retry_in = ?pause, "flush failed");
                self.state.flush_failed(table, error);
            } else if !self.flushes.iter().any(|flush| flush.has_rows_of(id)) {
                self.state.flush_succeeded(table);
            }
        }
    }

    /// Returns the ranges to submit next, once the first of them is due; `None` if all remaining ranges are
    /// deferred.
    fn select(
        &self,
        flush: &mut MemtableFlush,
        round: &mut FlushRound,
    ) -> Result<Option<Vec<FlushRange>>, Stopped> {
        let (now, is_urgent) = (Instant::now(), round.is_urgent);
        // A stuck table is tried once per round.
        let tried: Vec<TableId> = round.errors.keys().copied().collect();
        let may_try = |table| {
            let is_due = is_urgent || self.failing.may_try(table, now);
            !self.failing.is_stuck(table) || is_due && !tried.contains(&table)
        };
        let first = flush.select_first(round, now, may_try);
        let Some(first) = first else { return Ok(None) };
        if self.failing.is_stuck(first.table) {
            return Ok(Some(vec![first]));
        }
        let due = flush.due(flush.pending.len() + 1);
        if due.is_some_and(|due| self.state.flush_queue.sleep_until(due)) {
            return Err(Stopped);
        }
        let is_stuck = |table| self.failing.is_stuck(table);
        Ok(Some(flush.select_batch(first, round, Instant::now(), is_stuck)))
    }

    /// Flushes ranges concurrently. Returns a result for each range.
    fn submit(
        &self,
        memtable: &Arc<Memtable>,
        ranges: &[FlushRange],
    ) -> Vec<Result<(), StorageError>> {
        // If another process has taken the log over, that process flushes the rows.
        if let Err(error) = self.state.log.confirm() {
            return ranges.iter().map(|_| Err(error.clone())).collect();
        }
        let tables = self.state.tables.all();
        let flush = |range: &FlushRange| {
            let rows = rows_of(memtable, range);
            let stopped = self.state.flush_queue.stopped();
            let table = tables.get(range.table.0);
            async move {
                let Some(table) = table else { return Ok(()) };
                let flushed = AssertUnwindSafe(async {
                    self.backend.flush_rows(table, Box::new(rows)).await
                });
                tokio::select! {
                    // A panic of the backend must not end the flusher thread.
                    result = flushed.catch_unwind() => result.unwrap_or_else(|panic| {
                        let text = format!("the flush panicked: {}", panic_text(&*panic));
                        Err(StorageError::Backend(text.into()))
                    }),
                    // A hanging call must not delay the stop; the rows are in the log.
                    () = stopped => Err(StorageError::Closed),
                }
            }
        };
        let calls = join_all(ranges.iter().map(flush));
        match self.executor.wait(async { Ok(calls.await) }) {
            Ok(results) => results,
            Err(error) => ranges.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Handles the result of a range: it was flushed, or is halved, written to the dead-letter file, or deferred
    /// to the next round.
    fn settle(
        &mut self,
        flush: &mut MemtableFlush,
        round: &mut FlushRound,
        mut range: FlushRange,
        result: Result<(), StorageError>,
    ) -> Result<(), Stopped> {
        let Err(error) = result else {
            round.count_flushed(range.table);
            self.failing.succeeded(range.table);
            self.progress.flushed_ranges.fetch_add(1, Ordering::Relaxed);
            self.state.flush_queue.wake();
            self.uncount_rejected(&range);
            return Ok(());
        };
        if self.state.flush_queue.is_stopping() {
            return Err(Stopped);
        }
        self.state.metrics.flush_failures.increment(1);
        if self.failing.is_stuck(range.table) {
            self.failing.attempt_failed(range.table, Instant::now());
            round.errors.insert(range.table, error);
            flush.defer(range, round);
            return Ok(());
        }
        round.count_failure(range.table);
        if error.recovery() == Recovery::GiveUp {
            range.failure_count += 1;
            let is_permanent = error.is_permanent();
            let others_succeed = round.flushed_tables.contains(&range.table);
            if is_permanent || others_succeed || range.failure_count >= MAX_PERMANENT_FAILURES {
                if let Some((first, second)) = range.halves(&flush.memtable) {
                    flush.pending.push_front(second);
                    flush.pending.push_front(first);
                    round.errors.insert(range.table, error);
                    return Ok(());
                }
                if is_permanent && self.write_dead_letter(&flush.memtable, &range, &error) {
                    self.uncount_rejected(&range);
                    round.count_flushed(range.table);
                    return Ok(());
                }
                self.reject(&flush.memtable, &mut range, &error);
            }
        }
        round.errors.insert(range.table, error);
        flush.defer(range, round);
        Ok(())
    }

    /// Writes a range of one row to the dead-letter file. Returns true if the row is there.
    fn write_dead_letter(
        &mut self,
        memtable: &Arc<Memtable>,
        range: &FlushRange,
        error: &StorageError,
    ) -> bool {
        let tables = self.state.tables.all();
        let Some(table) = tables.get(range.table.0) else { return false };
        let mut rows = rows_of(memtable, range);
        let Some(row) = rows.next_row() else { return true };
        // Without local files, the row stays in the log.
        let Some(files) = &self.state.files else { return false };
        let is_written = self.dead_letters.write(&*files.dir, table, &row, error);
        if is_written {
            self.state.metrics.dead_letter_rows.increment(1);
        }
        is_written
    }

    /// Schedules the next attempt of a row that the backend rejects.
    fn reject(&self, memtable: &Memtable, range: &mut FlushRange, error: &StorageError) {
        if range.retry_at.is_none() {
            self.progress.rejected_rows.fetch_add(1, Ordering::Relaxed);
            self.state.metrics.rejected_rows.increment(1);
        }
        range.retry_at = Some(Instant::now() + REJECTED_ROW_PAUSE);
        let row = range.narrow_to_first_row(memtable);
        let table = self.state.tables.all().get(range.table.0).map(ToString::to_string);
        tracing::error!(
            table = table.unwrap_or_default(),
            row = %Hex(&row),
            %error,
            retry_in = ?REJECTED_ROW_PAUSE,
            "the backend rejects a row; it stays in the log and is retried"
        );
    }

    pub(super) fn uncount_rejected(&self, range: &FlushRange) {
        if range.retry_at.is_some() {
            self.progress.rejected_rows.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops memtables without remaining ranges and removes their segments, oldest first.
    fn complete_memtables(&mut self) {
        let state = Arc::clone(&self.state);
        let remove = |flush: &MemtableFlush| {
            if flush.pending.is_empty() && state.memtables.remove(flush.memtable.id()) {
                state.record_flush(&flush.memtable, flush.started);
            }
        };
        // A replay must not find an old segment without its successors.
        while self.flushes.front().is_some_and(|flush| flush.pending.is_empty()) {
            let Some(flush) = self.flushes.pop_front() else { break };
            // In this order: once no memtable has a row, a replay does not bring it back, unless a trim has failed.
            state.trim(flush.position, flush.bytes);
            remove(&flush);
            if flush.memtable.is_survivor() {
                self.survivors_flushed();
                self.remove_survivors();
            }
            state.flush_queue.complete_oldest(flush.last_id);
        }
        self.flushes.iter().for_each(remove);
        // Memory is available again.
        state.flush_queue.wake();
    }
}

pub(super) fn rows_of(memtable: &Arc<Memtable>, range: &FlushRange) -> MemtableRows {
    let (start, stop) = (range.start.clone(), range.stop.clone());
    let precedence = CellPrecedence::CommitTime;
    MemtableRows::new(Arc::clone(memtable), range.table, start, stop, precedence)
}
