//! Flushes memtables in key-range chunks, in rounds of select, submit and settle.
//!
//! Chunks of a few hundred rows have three reasons:
//!
//! * **Pacing.** The chunks of an aged memtable are flushed evenly over a part of the maximum age
//!   ([`Pace`]), so that the backend gets no load spikes.
//! * **Unavailable regions.** A failed chunk is retried without limit while the others are flushed.
//!   Rows of a later memtable in the range of an unflushed chunk wait for it, so that the writes of
//!   a row are flushed in order.
//! * **Rejected rows.** A chunk that keeps failing permanently is halved until a single row is
//!   left. If the backend can never accept that row, it is written to the dead-letter file and
//!   counts as flushed. Otherwise, or if the file is full, it is logged as an error, counted, and
//!   retried every minute. It was acknowledged, so it is never dropped: it keeps its memtable and
//!   the log, and in the end writes are rejected at the bound of the log.
//!
//! A few consecutive failures mean that the backend is unavailable: the round ends, and the next
//! one starts after a pause, with the oldest rows.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use tsd_storage::{FlushRows, FlushTarget, Recovery, StorageError, panic_text};

use super::{
    FlushProgress,
    dead_letter::{DeadLetters, Hex},
    flush_range::{FlushRange, MAX_CONCURRENT_RANGES},
};
use crate::{
    backoff::Backoff,
    executor::Executor,
    flush_queue::{ClosedSegment, FlushJob},
    flushed_segments::FlushedSegments,
    memtable::{CellPrecedence, Memtable, MemtableRows, TableId},
    state::WalState,
};

/// Consecutive failures after which the backend counts as unavailable.
const MAX_CONSECUTIVE_FAILURES: usize = 3;
/// Permanent failures after which a range is halved even if no other range succeeds.
const MAX_PERMANENT_FAILURES: u32 = 3;
/// Pause before a rejected row is retried.
const REJECTED_ROW_PAUSE: Duration = Duration::from_mins(1);

/// The flush queue is stopped.
#[derive(Debug)]
struct Stopped;

pub(crate) struct PacedFlusher<B> {
    state: Arc<WalState>,
    backend: Arc<B>,
    executor: Executor,
    progress: Arc<FlushProgress>,
    /// Oldest first.
    flushes: VecDeque<MemtableFlush>,
    flushed_segments: FlushedSegments,
    dead_letters: DeadLetters,
}

/// A memtable that is being flushed.
struct MemtableFlush {
    memtable: Arc<Memtable>,
    segments: Vec<ClosedSegment>,
    end_sequence: u64,
    bytes: u64,
    /// Ranges of this round.
    pending: VecDeque<FlushRange>,
    /// Ranges of the next round.
    deferred: VecDeque<FlushRange>,
    pace: Option<Pace>,
    started: Instant,
}

/// Distributes the ranges of a memtable evenly over a time window.
struct Pace {
    window: Duration,
    ranges: u32,
}

/// One attempt at every range, oldest memtable first.
#[derive(Debug, Default)]
struct FlushRound {
    /// Ranges deferred in this round. Overlapping ranges of later memtables wait for them.
    unflushed: Vec<FlushRange>,
    consecutive_failures: usize,
    flushed: usize,
    /// The last error of each table.
    errors: BTreeMap<TableId, StorageError>,
    /// A caller waits for the flush: neither pace nor pauses apply.
    is_urgent: bool,
}

impl<B: FlushTarget> PacedFlusher<B> {
    pub(crate) fn new(
        state: Arc<WalState>,
        backend: Arc<B>,
        executor: Executor,
        progress: Arc<FlushProgress>,
    ) -> Self {
        Self {
            state,
            backend,
            executor,
            progress,
            flushes: VecDeque::new(),
            flushed_segments: FlushedSegments::default(),
            dead_letters: DeadLetters::default(),
        }
    }

    /// Runs until the queue is stopped.
    pub(crate) fn run(mut self) {
        let mut backoff = Backoff::new();
        let mut timeout = Duration::MAX;
        while let Some(jobs) = self.state.flush_queue.jobs_after(self.flushes.len(), timeout) {
            self.flushes.extend(jobs.into_iter().map(MemtableFlush::new));
            let Ok(round) = self.run_round() else { return };
            timeout = self.publish(round, &mut backoff);
        }
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

    /// Publishes the result of a round. Returns the longest pause before the next one.
    fn publish(&self, round: FlushRound, backoff: &mut Backoff) -> Duration {
        let is_unavailable = !round.errors.is_empty() && round.flushed == 0;
        self.progress.is_unavailable.store(is_unavailable, Ordering::Relaxed);
        let pause = if !round.errors.is_empty() {
            backoff.next_pause()
        } else if self.flushes.is_empty() {
            Duration::MAX
        } else {
            // Only rejected rows remain.
            REJECTED_ROW_PAUSE
        };
        if !is_unavailable {
            backoff.reset();
        }
        self.publish_tables(round, pause);
        pause
    }

    /// Publishes the state of each table: failing with its last error, or succeeding once none of
    /// its rows wait.
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

    /// Returns the ranges to submit next, when the first of them is due; `None` if all remaining
    /// ranges are deferred.
    fn select(
        &self,
        flush: &mut MemtableFlush,
        round: &mut FlushRound,
    ) -> Result<Option<Vec<FlushRange>>, Stopped> {
        let Some(first) = flush.select_first(round, Instant::now()) else { return Ok(None) };
        let due = flush.due(flush.pending.len() + 1);
        if due.is_some_and(|due| self.state.flush_queue.sleep_until(due)) {
            return Err(Stopped);
        }
        Ok(Some(flush.select_batch(first, round, Instant::now())))
    }

    /// Flushes ranges concurrently. Returns the result of each.
    fn submit(
        &self,
        memtable: &Arc<Memtable>,
        ranges: &[FlushRange],
    ) -> Vec<Result<(), StorageError>> {
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
                    // A call that hangs must not delay the stop; the rows are in the log.
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

    /// Accounts for the result of a range: flushed, halved, written to the dead-letter file, or
    /// deferred to the next round.
    fn settle(
        &mut self,
        flush: &mut MemtableFlush,
        round: &mut FlushRound,
        mut range: FlushRange,
        result: Result<(), StorageError>,
    ) -> Result<(), Stopped> {
        let Err(error) = result else {
            round.count_flushed();
            self.progress.flushed_ranges.fetch_add(1, Ordering::Relaxed);
            self.state.flush_queue.wake();
            self.uncount_rejected(&range);
            return Ok(());
        };
        if self.state.flush_queue.is_stopping() {
            return Err(Stopped);
        }
        round.consecutive_failures += 1;
        self.state.metrics.flush_failures.increment(1);
        if error.recovery() == Recovery::GiveUp {
            range.failure_count += 1;
            let is_permanent = error.is_permanent();
            if is_permanent || round.flushed > 0 || range.failure_count >= MAX_PERMANENT_FAILURES {
                if let Some((first, second)) = range.halves(&flush.memtable) {
                    flush.pending.push_front(second);
                    flush.pending.push_front(first);
                    round.errors.insert(range.table, error);
                    return Ok(());
                }
                if is_permanent && self.write_dead_letter(&flush.memtable, &range, &error) {
                    self.uncount_rejected(&range);
                    round.count_flushed();
                    return Ok(());
                }
                self.reject(&flush.memtable, &mut range, &error);
            }
        }
        round.errors.insert(range.table, error);
        flush.defer(range, round);
        Ok(())
    }

    /// Writes a range of one row to the dead-letter file. Returns true if it is there.
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
        let is_written = self.dead_letters.write(&*self.state.dir, table, &row, error);
        if is_written {
            self.state.metrics.dead_letter_rows.increment(1);
        }
        is_written
    }

    /// Schedules a row that the backend rejects for its next attempt.
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

    fn uncount_rejected(&self, range: &FlushRange) {
        if range.retry_at.is_some() {
            self.progress.rejected_rows.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops memtables without remaining ranges, and removes their segments, oldest first.
    fn complete_memtables(&mut self) {
        let state = Arc::clone(&self.state);
        for flush in &self.flushes {
            if flush.pending.is_empty() && state.memtables.remove(flush.memtable.id()) {
                state.record_flush(&flush.memtable, flush.started);
            }
        }
        // Memory is available again.
        state.flush_queue.wake();
        // A replay must not find an old segment without its successors.
        while self.flushes.front().is_some_and(|flush| flush.pending.is_empty()) {
            let Some(flush) = self.flushes.pop_front() else { return };
            self.flushed_segments.extend(flush.segments, flush.end_sequence);
            self.remove_segments();
            state.closed_segment_bytes.fetch_sub(flush.bytes, Ordering::Relaxed);
            state.flush_queue.complete_oldest(flush.memtable.id());
        }
    }

    fn remove_segments(&mut self) {
        let Self { state, backend, executor, flushed_segments, .. } = self;
        flushed_segments.remove_all(state, |mark| executor.wait(backend.set_log_mark(mark)));
    }
}

fn rows_of(memtable: &Arc<Memtable>, range: &FlushRange) -> MemtableRows {
    let (start, stop) = (range.start.clone(), range.stop.clone());
    let precedence = CellPrecedence::CommitTime;
    MemtableRows::new(Arc::clone(memtable), range.table, start, stop, precedence)
}

impl MemtableFlush {
    fn new(job: FlushJob) -> Self {
        let FlushJob { memtable, segments, end_sequence, bytes, flush_over } = job;
        memtable.sort();
        let pending = FlushRange::all_of(&memtable);
        let pace = flush_over.map(|window| Pace { window, ranges: pending.len() as u32 });
        let (deferred, started) = (VecDeque::new(), Instant::now());
        Self { memtable, segments, end_sequence, bytes, pending, deferred, pace, started }
    }

    /// Returns the next range that may be flushed in this round, and defers those before it.
    fn select_first(&mut self, round: &mut FlushRound, now: Instant) -> Option<FlushRange> {
        while let Some(mut range) = self.pending.pop_front() {
            let unflushed = round.unflushed.iter().find(|other| other.overlaps(&range));
            let is_blocked = unflushed.is_some();
            if let Some(other) = unflushed {
                let (before, after) = range.narrow_to(other);
                self.pending.extend(after);
                self.pending.extend(before);
            }
            let is_paused = !round.is_urgent && range.retry_at.is_some_and(|at| at > now);
            if !is_blocked && !is_paused && round.consecutive_failures < MAX_CONSECUTIVE_FAILURES {
                return Some(range);
            }
            self.defer(range, round);
        }
        None
    }

    /// Returns `first` and the ranges to submit together with it: those that are due, did not fail
    /// before and are not blocked. After a failure, `first` alone.
    fn select_batch(
        &mut self,
        first: FlushRange,
        round: &FlushRound,
        now: Instant,
    ) -> Vec<FlushRange> {
        let mut batch = vec![first];
        while round.consecutive_failures == 0
            && batch.len() < MAX_CONCURRENT_RANGES
            && (round.is_urgent || self.due(self.pending.len()).is_none_or(|due| due <= now))
            && let Some(next) = self.pending.pop_front_if(|next| {
                next.has_no_failure() && !round.unflushed.iter().any(|other| other.overlaps(next))
            })
        {
            batch.push(next);
        }
        batch
    }

    /// True if rows of the table are not flushed yet.
    fn has_rows_of(&self, table: TableId) -> bool {
        self.pending.iter().chain(&self.deferred).any(|range| range.table == table)
    }

    /// Keeps a range for the next round.
    fn defer(&mut self, range: FlushRange, round: &mut FlushRound) {
        round.unflushed.push(range.clone());
        self.deferred.push_back(range);
    }

    /// When the first of `remaining` ranges is due; `None` without a pace.
    fn due(&self, remaining: usize) -> Option<Instant> {
        self.pace.as_ref().map(|pace| pace.due(self.started, remaining))
    }
}

impl FlushRound {
    const fn count_flushed(&mut self) {
        self.flushed += 1;
        self.consecutive_failures = 0;
    }
}

impl Pace {
    /// When the first of `remaining` ranges is due.
    fn due(&self, started: Instant, remaining: usize) -> Instant {
        let selected = self.ranges.saturating_sub(remaining as u32);
        started + self.window * selected / self.ranges.max(1)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::Family;
    use tsd_storage::{CellBatch, CellRef, MemoryStorage, Table};

    use super::*;
    use crate::{
        WalConfig, change::Change, files::faulty::FaultyDisk, memtable::BufferPool,
        memtable::NewRows,
    };

    const ROWS: u32 = 2_000;
    const OK: Result<(), StorageError> = Ok(());

    fn memtable(id: u64) -> Arc<Memtable> {
        let memtable = Memtable::new(id, 0, Arc::new(BufferPool::new(0)));
        let mut batch = CellBatch::new();
        for row in 0..ROWS {
            batch.begin_row(&row.to_be_bytes()).unwrap();
            let (family, qualifier, value) = (Family::T, &b"q"[..], &b"v"[..]);
            batch.push(CellRef { family, qualifier, value, timestamp_ms: None }).unwrap();
        }
        memtable.apply(TableId(0), &Change::Put(batch), 5, 1);
        Arc::new(memtable)
    }

    /// A flush of four ranges.
    fn flush_of(id: u64, flush_over: Option<Duration>) -> MemtableFlush {
        let (segments, end_sequence, bytes) = (Vec::new(), 0, 0);
        let memtable = memtable(id);
        MemtableFlush::new(FlushJob { memtable, segments, end_sequence, bytes, flush_over })
    }

    fn flusher() -> (PacedFlusher<MemoryStorage>, FaultyDisk) {
        let (disk, table) = (FaultyDisk::new(1), Table::new("tsdb"));
        let state = WalState::new(WalConfig::new("faulty"), Arc::new(disk.clone()));
        state.tables.add(&table, NewRows::default());
        let backend = Arc::new(MemoryStorage::new([table]));
        let progress = Arc::default();
        (PacedFlusher::new(Arc::new(state), backend, Executor::OneCall, progress), disk)
    }

    fn unavailable() -> Result<(), StorageError> {
        Err(StorageError::Unavailable("region".into()))
    }

    fn rejected() -> Result<(), StorageError> {
        Err(StorageError::Backend("rejected".into()))
    }

    #[test]
    fn ranges_are_due_evenly() {
        let started = Instant::now();
        let pace = Pace { window: Duration::from_secs(12), ranges: 4 };
        let due: Vec<u64> = [4, 3, 2, 1]
            .iter()
            .map(|remaining| (pace.due(started, *remaining) - started).as_secs())
            .collect();
        assert_eq!(due, [0, 3, 6, 9]);
    }

    #[test]
    fn batch_has_the_ranges_that_are_due() {
        let mut flush = flush_of(0, Some(Duration::from_secs(12)));
        let started = flush.started;
        let mut select = |after_secs, is_urgent| {
            let mut round = FlushRound { is_urgent, ..FlushRound::default() };
            let now = started + Duration::from_secs(after_secs);
            let first = flush.select_first(&mut round, now)?;
            Some(flush.select_batch(first, &round, now).len())
        };
        assert_eq!(select(1, false), Some(1));
        assert_eq!(select(7, false), Some(2));
        assert_eq!(select(7, true), Some(1), "it is due later, but a caller waits");
        assert_eq!(select(7, true), None);
    }

    #[test]
    fn overlap_with_an_unflushed_range_is_deferred() {
        let (mut older, mut newer) = (flush_of(0, None), flush_of(1, None));
        let mut round = FlushRound::default();
        let range = older.select_first(&mut round, Instant::now()).unwrap();
        older.defer(range.clone(), &mut round);
        let first = newer.select_first(&mut round, Instant::now()).unwrap();
        let batch = newer.select_batch(first, &round, Instant::now());
        assert_eq!(batch.len(), 3);
        assert!(!batch.iter().any(|other| other.overlaps(&range)));
        assert_eq!(newer.deferred, [range]);
    }

    #[test]
    fn consecutive_failures_defer_all_ranges() {
        let (mut flusher, _) = flusher();
        let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
        for _ in 0..MAX_CONSECUTIVE_FAILURES {
            let range = flush.select_first(&mut round, Instant::now()).unwrap();
            flusher.settle(&mut flush, &mut round, range, unavailable()).unwrap();
        }
        assert_eq!(flush.select_first(&mut round, Instant::now()), None);
        assert_eq!((round.flushed, flush.pending.len(), flush.deferred.len()), (0, 0, 4));
    }

    #[test]
    fn success_ends_a_series_of_failures() {
        let (mut flusher, _) = flusher();
        let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
        for result in [unavailable(), unavailable(), OK, unavailable()] {
            let range = flush.select_first(&mut round, Instant::now()).unwrap();
            flusher.settle(&mut flush, &mut round, range, result).unwrap();
        }
        assert_eq!((round.consecutive_failures, round.flushed), (1, 1));
        assert_eq!(flusher.progress.flushed_ranges.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn permanently_failing_range_is_halved_down_to_the_rejected_row() {
        let (mut flusher, _) = flusher();
        let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
        let range = flush.select_first(&mut round, Instant::now()).unwrap();
        flusher.settle(&mut flush, &mut round, range, OK).unwrap();
        // 512 rows: nine times halved, then rejected.
        for _ in 0..10 {
            assert!(flush.deferred.is_empty());
            let range = flush.pending.pop_front().unwrap();
            flusher.settle(&mut flush, &mut round, range, rejected()).unwrap();
        }
        assert_eq!(flush.deferred.len(), 1);
        let row = flush.deferred.pop_front().unwrap();
        assert!(row.retry_at.is_some() && row.halves(&flush.memtable).is_none());
        assert_eq!(flusher.progress.rejected_rows.load(Ordering::Relaxed), 1);
        // It is retried later, at once if a caller waits, and flushed in the end.
        let mut round = FlushRound::default();
        flush.pending = VecDeque::from([row.clone()]);
        assert_eq!(flush.select_first(&mut round, Instant::now()), None);
        let mut round = FlushRound { is_urgent: true, ..FlushRound::default() };
        flush.pending = VecDeque::from([row]);
        let row = flush.select_first(&mut round, Instant::now()).unwrap();
        flusher.settle(&mut flush, &mut round, row, OK).unwrap();
        assert_eq!(flusher.progress.rejected_rows.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn permanently_rejected_row_is_a_dead_letter() {
        let (mut flusher, disk) = flusher();
        let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
        let mut row = flush.pending[0].clone();
        row.narrow_to_first_row(&flush.memtable);
        let too_large = Err(StorageError::Rejected("too large".into()));
        flusher.settle(&mut flush, &mut round, row, too_large).unwrap();
        assert_eq!((round.flushed, flush.deferred.len()), (1, 0));
        assert!(round.errors.is_empty());
        assert!(disk.contents_without("log.state").contains_key("refused-000001"));
    }
}
