//! The context of one running query: its deadline and limits, whether it was cancelled or has ended, its
//! time slices, its progress and its statistics.
//!
//! All tasks of a query share one. It does not know the store.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tsd_query::{ExecutionLimits, LimitError, QueryError};

use super::{
    memory_budget::MemoryBudget,
    query_list::{QueryClient, QueryId, RunningQuery, RunningStage},
    query_message::QueryMessage,
    scheduler::{SchedulerHandle, TimeSlice},
};
use crate::{
    actor::ActorRef,
    query::{
        failure::QueryFailure,
        stats::{QueryStats, SubQueryStats},
    },
};

/// Limits, progress and statistics of a running query.
#[derive(Debug)]
pub(crate) struct QueryContext {
    pub(crate) id: QueryId,
    pub(crate) query: NewQuery,
    pub(crate) started: Instant,
    /// Queries that ran when it was submitted, including itself.
    pub(crate) running_at_start: usize,
    /// Cancelled by an operator.
    pub(crate) operator_cancel: CancellationToken,
    /// Set once it has ended. Loops that never await check it.
    ended: AtomicBool,
    actor: OnceLock<ActorRef<QueryMessage>>,
    limit_reached: OnceLock<&'static str>,
    /// Nanoseconds from the start until the last query that shares the execution times out.
    shared_limit_nanos: AtomicU64,
    progress: QueryProgress,
    sub_queries: Mutex<Vec<SubQueryStats>>,
    /// Quarantined files of which the result may miss points.
    losses: Mutex<BTreeSet<String>>,
}

/// What a [`QueryContext`] is made of.
#[derive(Debug)]
pub(crate) struct NewQuery {
    pub(crate) client: Arc<QueryClient>,
    pub(crate) started_ms: i64,
    /// Whether it asks to ignore the limit on bytes, and that on data points.
    pub(crate) ignore_limits: (bool, bool),
    pub(crate) memory: MemoryBudget,
    pub(crate) scheduler: Arc<SchedulerHandle>,
    /// Permits for open scans.
    pub(crate) scans: Semaphore,
    pub(crate) time_limit: Option<Duration>,
    /// True if identical queries may share its execution, which then goes on without it.
    pub(crate) is_shareable: bool,
}

/// Progress counters, for the list of running queries.
#[derive(Debug, Default)]
struct QueryProgress {
    stage: Mutex<RunningStage>,
    rows: AtomicU64,
    cells: AtomicU64,
    bytes: AtomicU64,
    scans_done: AtomicUsize,
    scans_total: AtomicUsize,
    queued_nanos: AtomicU64,
}

impl QueryContext {
    pub(crate) fn new(id: QueryId, running_at_start: usize, query: NewQuery) -> Self {
        Self {
            id,
            query,
            started: Instant::now(),
            running_at_start,
            operator_cancel: CancellationToken::new(),
            ended: AtomicBool::new(false),
            actor: OnceLock::new(),
            limit_reached: OnceLock::new(),
            shared_limit_nanos: AtomicU64::new(0),
            progress: QueryProgress::default(),
            sub_queries: Mutex::default(),
            losses: Mutex::default(),
        }
    }

    /// Sets the actor that coordinates the query, once.
    pub(crate) fn set_actor(&self, actor: ActorRef<QueryMessage>) {
        let _ = self.actor.set(actor);
    }

    /// The actor that coordinates the query.
    pub(crate) fn actor(&self) -> Option<&ActorRef<QueryMessage>> {
        self.actor.get()
    }

    /// Records that the query has ended, with or without a result.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// True if the query has ended: what still works for it stops.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Fails once the query has ended; no client sees the error.
    pub(crate) fn check_ended(&self) -> Result<(), QueryError> {
        if self.has_ended() { Err(QueryError::Ended) } else { Ok(()) }
    }

    /// Sets the stage. Sub queries run concurrently; the last writer wins.
    pub(crate) fn set_stage(&self, stage: RunningStage) {
        *self.lock_stage() = stage;
    }

    fn lock_stage(&self) -> MutexGuard<'_, RunningStage> {
        self.progress.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the query was admitted and is no longer queued.
    pub(crate) fn mark_admitted(&self) {
        let queued = self.started.elapsed().as_nanos() as u64;
        self.progress.queued_nanos.store(queued, Ordering::Relaxed);
        self.set_stage(RunningStage::Resolving);
    }

    /// Waits for a time slice. CPU-bound work runs in slices and must not await in one.
    pub(crate) async fn time_slice(&self) -> Result<TimeSlice, QueryFailure> {
        self.query.scheduler.acquire_slice().await.map_err(|_| {
            self.record_limit("heavy");
            QueryFailure::Busy
        })
    }

    /// Waits until the query may open one more scan.
    pub(crate) async fn acquire_scan_permit(&self) -> SemaphorePermit<'_> {
        loop {
            // The semaphore is never closed.
            if let Ok(permit) = self.query.scans.acquire().await {
                return permit;
            }
        }
    }

    /// Counts scans that are about to begin.
    pub(crate) fn add_scans(&self, count: usize) {
        self.progress.scans_total.fetch_add(count, Ordering::Relaxed);
        self.set_stage(RunningStage::Scanning);
    }

    /// Counts a scan that ended.
    pub(crate) fn finish_scan(&self) {
        self.progress.scans_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts rows that were read.
    pub(crate) fn record_rows(&self, rows: u64, cells: u64, bytes: u64) {
        self.progress.rows.fetch_add(rows, Ordering::Relaxed);
        self.progress.cells.fetch_add(cells, Ordering::Relaxed);
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reserves memory until [`Self::release`] or the end of the query.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), QueryFailure> {
        self.query.memory.reserve(bytes).inspect_err(|failure| {
            let total = matches!(failure, QueryFailure::NoMemory { .. });
            self.record_limit(if total { "total_memory" } else { "memory" });
        })
    }

    /// Changes a reservation of `before` bytes to `after` bytes.
    pub(crate) fn adjust_reservation(
        &self,
        before: usize,
        after: usize,
    ) -> Result<(), QueryFailure> {
        if after >= before {
            return self.reserve(after - before);
        }
        self.release(before - after);
        Ok(())
    }

    /// Fails if so many more bytes could not be reserved now.
    pub(crate) fn check_available(&self, bytes: usize) -> Result<(), QueryFailure> {
        self.reserve(bytes)?;
        self.release(bytes);
        Ok(())
    }

    /// Releases memory before the end of the query.
    pub(crate) fn release(&self, bytes: usize) {
        self.query.memory.release(bytes);
    }

    /// Fails once the time limit is reached.
    pub(crate) fn check_time(&self) -> Result<(), QueryError> {
        match self.time_left() {
            Some(Duration::ZERO) => Err(self.timeout_error()),
            _ => Ok(()),
        }
    }

    /// Time left to the execution; `None` without a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let shared = self.shared_limit_nanos.load(Ordering::Relaxed);
        let limit = self.query.time_limit.filter(|_| shared != u64::MAX)?;
        Some(limit.max(Duration::from_nanos(shared)).saturating_sub(self.started.elapsed()))
    }

    /// Time left to the query itself, whoever shares its execution; `None` without a limit.
    pub(crate) fn own_time_left(&self) -> Option<Duration> {
        self.query.time_limit.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// Gives the execution the time of another query that shares it.
    pub(crate) fn extend_time_limit(&self, other: &Self) {
        let limit = other.query.time_limit.map_or(u64::MAX, |limit| {
            let until = other.started.saturating_duration_since(self.started) + limit;
            u64::try_from(until.as_nanos()).unwrap_or(u64::MAX)
        });
        self.shared_limit_nanos.fetch_max(limit, Ordering::Relaxed);
    }

    /// The error of a query that reached its time limit.
    pub(crate) fn timeout_error(&self) -> QueryError {
        self.record_limit("timeout");
        let limit = self.query.time_limit.unwrap_or_default();
        LimitError::Time { limit, elapsed: self.started.elapsed() }.into()
    }

    /// Records which limit ended the query, for metrics.
    pub(crate) fn record_limit(&self, limit: &'static str) {
        // Only the first limit reached counts.
        let _ = self.limit_reached.set(limit);
    }

    /// The limit that ended it.
    pub(crate) fn limit_reached(&self) -> Option<&'static str> {
        self.limit_reached.get().copied()
    }

    /// Adds the statistics of a completed sub query.
    pub(crate) fn add_sub_query_stats(&self, stats: &SubQueryStats) {
        let mut all = self.sub_queries.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(stats.clone());
    }

    /// Notes quarantined files of which the result may miss points.
    pub(crate) fn note_losses(&self, files: impl IntoIterator<Item = String>) {
        self.lock_losses().extend(files);
    }

    /// The quarantined files of which the result may miss points, sorted.
    pub(crate) fn losses(&self) -> Vec<String> {
        self.lock_losses().iter().cloned().collect()
    }

    fn lock_losses(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current statistics.
    pub(crate) fn stats(&self) -> QueryStats {
        let mut sub_queries =
            self.sub_queries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sub_queries.sort_by_key(|sub| sub.index);
        let queued = Duration::from_nanos(self.progress.queued_nanos.load(Ordering::Relaxed));
        QueryStats {
            string_to_uid: sub_queries.iter().map(|sub| sub.string_to_uid).sum(),
            total: self.started.elapsed(),
            cpu: self.query.scheduler.cpu_time(),
            waited: queued + self.query.scheduler.wait_time(),
            peak_memory_bytes: self.query.memory.peak(),
            sub_queries,
            ..QueryStats::default()
        }
    }

    /// True if the query waits to be admitted.
    pub(crate) fn is_queued(&self) -> bool {
        *self.lock_stage() == RunningStage::Queued
    }

    /// Its entry in the list of running queries.
    pub(crate) fn snapshot(&self) -> RunningQuery {
        let progress = &self.progress;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RunningQuery {
            id: self.id,
            client: Arc::clone(&self.query.client),
            started_ms: self.query.started_ms,
            elapsed: self.started.elapsed(),
            stage: *self.lock_stage(),
            scans: (
                progress.scans_done.load(Ordering::Relaxed),
                progress.scans_total.load(Ordering::Relaxed),
            ),
            rows: load(&progress.rows),
            cells: load(&progress.cells),
            bytes: load(&progress.bytes),
            memory_bytes: self.query.memory.reserved(),
            cpu: self.query.scheduler.cpu_time(),
        }
    }
}

/// The operator's cancellation, the deadline and the memory budget; no time slice.
impl ExecutionLimits for &QueryContext {
    fn check(&mut self) -> Result<(), QueryError> {
        // A shared execution ends when nobody waits for it.
        if self.operator_cancel.is_cancelled() && !self.query.is_shareable {
            return Err(QueryError::CancelledByOperator);
        }
        self.check_time()
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), QueryError> {
        QueryContext::reserve(self, bytes).map_err(|failure| match failure {
            QueryFailure::Rejected(error) => error,
            QueryFailure::NoMemory { limit_mb, key } => {
                LimitError::TotalMemory { limit_mb, key }.into()
            }
            // A reservation has no other failure.
            _ => QueryError::Ended,
        })
    }
}
