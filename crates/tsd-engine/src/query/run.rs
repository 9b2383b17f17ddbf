//! One query under way: what it may spend, what it spent, and whether it should go on.
//!
//! Every task of a query shares one of these.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tsd_query::{QueryError, Watch};

use super::{
    QueryClient, QueryFailure, QueryId, QueryStages, RunningQuery, RunningStage, SubQueryStages,
    budget::ADVICE,
    memory::Memory,
    scheduler::{Slice, Turns},
};

/// A query under way.
#[derive(Debug)]
pub(crate) struct QueryRun {
    pub(crate) id: QueryId,
    pub(crate) asker: Arc<QueryClient>,
    pub(crate) started_ms: i64,
    pub(crate) started: Instant,
    /// Queries that ran when it was asked, itself among them.
    pub(crate) beside: usize,
    /// Its wish to be free of the limit on bytes, and on data points.
    pub(crate) lifts: (bool, bool),
    /// Cancelled by an operator.
    pub(crate) stop: CancellationToken,
    memory: Memory,
    turns: Arc<Turns>,
    /// Scans it may still open.
    scans: Semaphore,
    time: Option<Duration>,
    refused_for: OnceLock<&'static str>,
    progress: Progress,
    sub_queries: Mutex<Vec<SubQueryStages>>,
}

/// What a query is made of.
pub(crate) struct NewRun {
    pub(crate) asker: Arc<QueryClient>,
    pub(crate) started_ms: i64,
    pub(crate) lifts: (bool, bool),
    pub(crate) memory: Memory,
    pub(crate) turns: Turns,
    pub(crate) max_scans: usize,
    pub(crate) time: Option<Duration>,
}

/// How far it is, for whoever looks.
#[derive(Debug, Default)]
struct Progress {
    stage: AtomicU8,
    rows: AtomicU64,
    cells: AtomicU64,
    bytes: AtomicU64,
    scans_done: AtomicUsize,
    scans_total: AtomicUsize,
    waited_nanos: AtomicU64,
}

/// What a query does, as far as it is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Waiting,
    Resolving,
    Scanning,
    Aggregating,
    Naming,
    Evaluating,
    Sending,
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Resolving,
        Self::Scanning,
        Self::Aggregating,
        Self::Naming,
        Self::Evaluating,
        Self::Sending,
    ];
}

impl QueryRun {
    pub(crate) fn new(id: QueryId, beside: usize, new: NewRun) -> Self {
        let NewRun { asker, started_ms, lifts, memory, turns, max_scans, time } = new;
        Self {
            id,
            asker,
            started_ms,
            started: Instant::now(),
            beside,
            lifts,
            stop: CancellationToken::new(),
            memory,
            turns: Arc::new(turns),
            scans: Semaphore::new(max_scans.max(1)),
            time,
            refused_for: OnceLock::new(),
            progress: Progress::default(),
            sub_queries: Mutex::default(),
        }
    }

    /// Its turns on the processors.
    pub(crate) const fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Says what the query does now. Sub queries run beside one another; the last word counts.
    pub(crate) fn enter(&self, step: Step) {
        self.progress.stage.store(step as u8, Ordering::Relaxed);
    }

    /// The query was let in.
    pub(crate) fn let_in(&self) {
        let waited = self.started.elapsed().as_nanos() as u64;
        self.progress.waited_nanos.store(waited, Ordering::Relaxed);
        self.enter(Step::Resolving);
    }

    /// Waits for a turn on the processors. Whatever takes long is done in turns, and nothing is waited
    /// for in one.
    pub(crate) async fn slice(&self) -> Result<Slice, QueryFailure> {
        self.turns.next().await.map_err(|_| {
            self.refuse("heavy");
            QueryFailure::Busy
        })
    }

    /// In the middle of a call that cannot wait: takes the next turn if the slice is over.
    pub(crate) fn renew(&self, slice: Slice, has_ended: impl Fn() -> bool) -> Option<Slice> {
        self.turns.renew(slice, has_ended)
    }

    /// Waits until the query may open one more scan.
    pub(crate) async fn open_scan(&self) -> SemaphorePermit<'_> {
        loop {
            // It is never closed.
            if let Ok(permit) = self.scans.acquire().await {
                return permit;
            }
        }
    }

    /// Counts scans that are about to begin.
    pub(crate) fn expect_scans(&self, count: usize) {
        self.progress.scans_total.fetch_add(count, Ordering::Relaxed);
        self.enter(Step::Scanning);
    }

    /// Counts a scan that ended.
    pub(crate) fn scan_done(&self) {
        self.progress.scans_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts rows that were read.
    pub(crate) fn count(&self, rows: u64, cells: u64, bytes: u64) {
        self.progress.rows.fetch_add(rows, Ordering::Relaxed);
        self.progress.cells.fetch_add(cells, Ordering::Relaxed);
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes memory that is given back with the answer, or by [`Self::release`].
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), QueryFailure> {
        self.memory.hold(bytes).inspect_err(|failure| {
            let total = matches!(failure, QueryFailure::NoMemory { .. });
            self.refuse(if total { "total_memory" } else { "memory" });
        })
    }

    /// Takes memory for something that took `before` and now takes more, or gives some back.
    pub(crate) fn hold_change(&self, before: usize, now: usize) -> Result<(), QueryFailure> {
        if now >= before {
            return self.hold(now - before);
        }
        self.release(before - now);
        Ok(())
    }

    /// The bound of its memory; 0 where there is none.
    pub(crate) const fn memory_limit(&self) -> u64 {
        self.memory.limit()
    }

    /// Whether so many bytes more could be taken.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), QueryFailure> {
        self.hold(bytes)?;
        self.release(bytes);
        Ok(())
    }

    /// Gives memory back before the answer is out.
    pub(crate) fn release(&self, bytes: usize) {
        self.memory.release(bytes);
    }

    /// Whether there is time left.
    pub(crate) fn check_time(&self) -> Result<(), QueryError> {
        match self.time_left() {
            Some(Duration::ZERO) => Err(self.timed_out()),
            _ => Ok(()),
        }
    }

    /// Time left; `None` without a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.time.map(|time| time.saturating_sub(self.started.elapsed()))
    }

    /// What a query is told whose time is up.
    pub(crate) fn timed_out(&self) -> QueryError {
        self.refuse("timeout");
        QueryError::too_large(format!(
            "Sorry, your query timed out. Time limit: {} ms, fetch time: {} ms. {ADVICE}",
            self.time.unwrap_or_default().as_millis(),
            self.started.elapsed().as_millis()
        ))
    }

    /// Remembers the first limit that was reached.
    pub(crate) fn refuse(&self, limit: &'static str) {
        // The first one ended the query.
        let _ = self.refused_for.set(limit);
    }

    /// The limit that ended it.
    pub(crate) fn refused_for(&self) -> Option<&'static str> {
        self.refused_for.get().copied()
    }

    /// Takes the numbers of a sub query that is done.
    pub(crate) fn tell(&self, stages: &SubQueryStages) {
        let mut all = self.sub_queries.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(stages.clone());
    }

    /// The numbers as they are now.
    pub(crate) fn stages(&self) -> QueryStages {
        let mut sub_queries =
            self.sub_queries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sub_queries.sort_by_key(|sub| sub.index);
        let before = Duration::from_nanos(self.progress.waited_nanos.load(Ordering::Relaxed));
        QueryStages {
            string_to_uid: sub_queries.iter().map(|sub| sub.string_to_uid).sum(),
            total: self.started.elapsed(),
            cpu: self.turns.spent(),
            waited: before + self.turns.waited(),
            peak_memory_bytes: self.memory.peak(),
            sub_queries,
            ..QueryStages::default()
        }
    }

    /// Whether it waits to be let in.
    pub(crate) fn is_waiting(&self) -> bool {
        self.progress.stage.load(Ordering::Relaxed) == Step::Waiting as u8
    }

    /// What an operator sees of it.
    pub(crate) fn show(&self) -> RunningQuery {
        let progress = &self.progress;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let step = usize::from(progress.stage.load(Ordering::Relaxed));
        let stage = match Step::ALL.get(step).copied().unwrap_or(Step::Waiting) {
            Step::Waiting => RunningStage::Waiting,
            Step::Resolving => RunningStage::Resolving,
            Step::Scanning => RunningStage::Scanning {
                done: progress.scans_done.load(Ordering::Relaxed),
                total: progress.scans_total.load(Ordering::Relaxed),
            },
            Step::Aggregating => RunningStage::Aggregating,
            Step::Naming => RunningStage::Naming,
            Step::Evaluating => RunningStage::Evaluating,
            Step::Sending => RunningStage::Sending,
        };
        RunningQuery {
            id: self.id,
            asker: Arc::clone(&self.asker),
            started_ms: self.started_ms,
            elapsed: self.started.elapsed(),
            stage,
            rows: load(&progress.rows),
            cells: load(&progress.cells),
            bytes: load(&progress.bytes),
            memory_bytes: self.memory.held(),
            cpu: self.turns.spent(),
        }
    }
}

/// Ends long arithmetic when its query should not go on.
impl Watch for &QueryRun {
    fn go_on(&mut self) -> Result<(), QueryError> {
        if self.stop.is_cancelled() {
            return Err(QueryError::bad_request(QueryFailure::Stopped.to_string()));
        }
        self.check_time()
    }

    fn hold(&mut self, bytes: usize) -> Result<(), QueryError> {
        QueryRun::hold(self, bytes).map_err(|failure| match failure {
            QueryFailure::Refused(error) => error,
            other => QueryError::too_large(other.to_string()),
        })
    }
}
