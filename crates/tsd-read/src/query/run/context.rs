//! The context of one running query: deadline, limits, cancellation, time slices, progress and statistics.
//!
//! All tasks of a query share it. It does not depend on the store.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tsd_query::{ExecutionLimits, LimitError, QueryError};
use tsd_runtime::ActorRef;

use super::{
    admission::Claim,
    memory_budget::MemoryBudget,
    query_control::QueryBounds,
    query_list::{QueryClient, QueryId, RunningQuery, RunningStage},
    query_message::QueryMessage,
    scheduler::{SchedulerHandle, TimeSlice},
};
use crate::query::{
    failure::QueryFailure,
    stats::{QueryStats, SubQueryStats},
};

/// Limits, progress and statistics of a running query.
#[derive(Debug)]
pub(crate) struct QueryContext {
    pub(crate) id: QueryId,
    pub(crate) query: NewQuery,
    pub(crate) started: Instant,
    /// Queries that ran when this query was submitted, including itself.
    pub(crate) running_at_start: usize,
    /// Cancelled when an operator cancels the query.
    pub(crate) operator_cancel: CancellationToken,
    /// Set when the query has ended. Loops that never await check it.
    ended: AtomicBool,
    /// Set while the tasks of the query stop before it begins again.
    restarting: AtomicBool,
    /// The tasks of the query.
    tasks: TaskTracker,
    actor: OnceLock<ActorRef<QueryMessage>>,
    limit_reached: OnceLock<&'static str>,
    /// Nanoseconds from the start until the deadline of the last query that shares the execution.
    shared_limit_nanos: AtomicU64,
    progress: QueryProgress,
    sub_queries: Mutex<Vec<SubQueryStats>>,
    /// Quarantined files from which the result may miss points.
    losses: Mutex<BTreeSet<String>>,
}

/// Properties with which a [`QueryContext`] is created.
#[derive(Debug)]
pub(crate) struct NewQuery {
    pub(crate) client: Arc<QueryClient>,
    pub(crate) started_ms: i64,
    /// Whether the query asks to ignore the limit on bytes, and the limit on data points.
    pub(crate) ignore_limits: (bool, bool),
    pub(crate) memory: MemoryBudget,
    /// Bytes that the response needs in addition to the result.
    pub(crate) response_bytes: usize,
    pub(crate) scheduler: Arc<SchedulerHandle>,
    /// Permits for open scans.
    pub(crate) scans: Semaphore,
    pub(crate) time_limit: Option<Duration>,
    /// Most bytes that the query may read, by the limit of its client; 0 means no limit.
    pub(crate) max_bytes: u64,
    /// True if identical queries may share the execution, which then continues without this query.
    pub(crate) is_shareable: bool,
    /// True if the intact data of damaged files is enough.
    pub(crate) allows_damaged: bool,
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
    /// When the query was last queued; `None` stands for its start.
    queued_since: Mutex<Option<Instant>>,
    queued_nanos: AtomicU64,
}

impl QueryContext {
    pub(crate) fn new(id: QueryId, running_at_start: usize, query: NewQuery) -> Self {
        query.memory.set_order(id.0);
        Self {
            id,
            query,
            started: Instant::now(),
            running_at_start,
            operator_cancel: CancellationToken::new(),
            ended: AtomicBool::new(false),
            restarting: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            actor: OnceLock::new(),
            limit_reached: OnceLock::new(),
            shared_limit_nanos: AtomicU64::new(0),
            progress: QueryProgress::default(),
            sub_queries: Mutex::default(),
            losses: Mutex::default(),
        }
    }

    /// Sets the actor that coordinates the query. Only the first call has an effect.
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
        self.query.memory.end_run();
    }

    /// True if the query has ended or begins again, so that its tasks must stop.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.restarting.load(Ordering::Relaxed)
    }

    /// Tracks work of the query, whose log lines name the request. The query begins again only after all tracked work
    /// was dropped.
    pub(crate) fn track<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.tasks.track_future(self.query.client.origin.clone().scope(work))
    }

    /// True if the query failed only because it has outgrown its grant, and must begin again.
    pub(crate) fn must_restart(&self) -> bool {
        !self.ended.load(Ordering::Relaxed) && self.query.memory.has_larger_claim()
    }

    /// Stops all work of the query and waits until it was dropped. Returns the claim with which the query begins
    /// again.
    pub(crate) async fn stop_to_restart(&self) -> Option<Claim> {
        self.restarting.store(true, Ordering::Relaxed);
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
        let claim = self.query.memory.take_larger_claim();
        self.restarting.store(false, Ordering::Relaxed);
        self.lock_sub_queries().clear();
        let progress = &self.progress;
        for counter in [&progress.rows, &progress.cells, &progress.bytes] {
            counter.store(0, Ordering::Relaxed);
        }
        progress.scans_done.store(0, Ordering::Relaxed);
        progress.scans_total.store(0, Ordering::Relaxed);
        claim
    }

    /// Fails if the query has ended. No client sees the error.
    pub(crate) fn check_ended(&self) -> Result<(), QueryError> {
        if self.has_ended() { Err(QueryError::Ended) } else { Ok(()) }
    }

    /// Sets the stage. Sub queries run concurrently, so the last writer wins.
    pub(crate) fn set_stage(&self, stage: RunningStage) {
        *self.lock_stage() = stage;
    }

    fn lock_stage(&self) -> MutexGuard<'_, RunningStage> {
        self.progress.stage.lock()
    }

    /// The claim of the query before it knows what to read.
    pub(crate) fn first_claim(&self) -> Claim {
        self.query.memory.claim_of((self.query.response_bytes as u64).saturating_mul(2))
    }

    /// Waits until the query may run, and reserves the memory of its response.
    pub(crate) async fn admit(&self, claim: Claim) -> Result<(), QueryFailure> {
        let admitted = self.query.memory.admit(claim).await;
        self.memory_outcome(admitted)?;
        self.mark_admitted();
        self.reserve(self.query.response_bytes)
    }

    /// Records that the query waits for admission, possibly again.
    pub(crate) fn mark_queued(&self) {
        *self.lock_queued_since() = Some(Instant::now());
        self.set_stage(RunningStage::Queued);
    }

    /// Records that the query was admitted and is no longer queued.
    pub(crate) fn mark_admitted(&self) {
        let since = self.lock_queued_since().take().unwrap_or(self.started);
        let waited = since.elapsed();
        self.progress.queued_nanos.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
        let class = self.query.memory.class().as_str();
        metrics::histogram!("tsd_query_admission_seconds", "class" => class)
            .record(waited.as_secs_f64());
        self.set_stage(RunningStage::Resolving);
    }

    fn lock_queued_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.progress.queued_since.lock()
    }

    /// Waits for a time slice. CPU-bound work runs in slices, and must not await while it has one.
    pub(crate) async fn time_slice(&self) -> Result<TimeSlice, QueryFailure> {
        let slice = self.query.scheduler.acquire_slice().await;
        if self.query.scheduler.is_heavy() {
            self.memory_outcome(self.query.memory.make_wide())?;
        }
        Ok(slice)
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

    /// Fails if the query has read more than its client may read at once.
    pub(crate) fn check_client_bytes(&self) -> Result<(), QueryError> {
        let limit = self.query.max_bytes;
        if limit > 0 && self.progress.bytes.load(Ordering::Relaxed) > limit {
            self.record_limit("client_bytes");
            return Err(LimitError::ClientBytes { limit, key: QueryBounds::BYTES_KEY }.into());
        }
        Ok(())
    }

    /// Reserves memory until [`Self::release`] or the end of the query.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), QueryFailure> {
        self.memory_outcome(self.query.memory.reserve(bytes))
    }

    /// Requests the memory that a read is estimated to need.
    pub(crate) fn expect_memory(&self, bytes: u64) -> Result<(), QueryFailure> {
        self.memory_outcome(self.query.memory.expect(bytes))
    }

    /// Forbids that the query begins again, because it has effects from now on.
    pub(crate) fn forbid_restart(&self) {
        self.query.memory.forbid_restart();
    }

    /// Records the limit that ended the query, unless the query begins again.
    fn memory_outcome(&self, outcome: Result<(), QueryFailure>) -> Result<(), QueryFailure> {
        outcome.inspect_err(|failure| {
            if !self.query.memory.has_larger_claim() {
                self.record_limit(match failure {
                    QueryFailure::NoMemory { .. } => "total_memory",
                    QueryFailure::Busy => "busy",
                    _ => "memory",
                });
            }
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

    /// Fails if this many more bytes cannot be reserved now.
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

    /// Time left for the execution; `None` without a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let shared = self.shared_limit_nanos.load(Ordering::Relaxed);
        let limit = self.query.time_limit.filter(|_| shared != u64::MAX)?;
        Some(limit.max(Duration::from_nanos(shared)).saturating_sub(self.started.elapsed()))
    }

    /// Time left for this query, regardless of others that share its execution; `None` without a limit.
    pub(crate) fn own_time_left(&self) -> Option<Duration> {
        self.query.time_limit.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// Extends the time of the execution for another query that shares it.
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

    /// Records for metrics which limit ended the query.
    pub(crate) fn record_limit(&self, limit: &'static str) {
        // Only the first limit reached counts.
        let _ = self.limit_reached.set(limit);
    }

    /// The limit that ended the query.
    pub(crate) fn limit_reached(&self) -> Option<&'static str> {
        self.limit_reached.get().copied()
    }

    /// Adds the statistics of a completed sub query.
    pub(crate) fn add_sub_query_stats(&self, stats: &SubQueryStats) {
        self.lock_sub_queries().push(stats.clone());
    }

    fn lock_sub_queries(&self) -> MutexGuard<'_, Vec<SubQueryStats>> {
        self.sub_queries.lock()
    }

    /// Notes quarantined files from which the result may miss points.
    pub(crate) fn note_losses(&self, files: impl IntoIterator<Item = String>) {
        self.lock_losses().extend(files);
    }

    /// The quarantined files from which the result may miss points, sorted.
    pub(crate) fn losses(&self) -> Vec<String> {
        self.lock_losses().iter().cloned().collect()
    }

    fn lock_losses(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.losses.lock()
    }

    /// Current statistics.
    pub(crate) fn stats(&self) -> QueryStats {
        let mut sub_queries = self.lock_sub_queries().clone();
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

    /// True if the query waits for admission.
    pub(crate) fn is_queued(&self) -> bool {
        *self.lock_stage() == RunningStage::Queued
    }

    /// The entry of the query in the list of running queries.
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
            granted_bytes: self.query.memory.granted(),
            class: self.query.memory.class(),
            restarts: self.query.memory.restarts(),
            cpu: self.query.scheduler.cpu_time(),
        }
    }
}

/// Checks the operator's cancellation, the deadline and the memory budget, but no time slice.
impl ExecutionLimits for &QueryContext {
    fn check(&mut self) -> Result<(), QueryError> {
        // A shared execution ends only when no query waits for it.
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
            // Reservations fail in no other way.
            _ => QueryError::Ended,
        })
    }
}
