//! Lets queries in, runs each on the threads for queries, and ends those that must not go on.
//!
//! Whoever asks waits here, on a thread of its own: a cancel or a deadline is answered at once however
//! busy the threads for queries are, and the work that was begun is dropped at its next wait.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tsd_query::{Query, QueryError};

use super::{
    QueryContext, QueryControl, QueryFailure, QueryGuard,
    memory::{Memory, TotalMemory},
    metrics::QueryMetrics,
    registry::{Registered, Registry},
    run::{NewRun, QueryRun},
    scheduler::Scheduler,
};

/// Queries that are let in, for each heavy one that gets turns: the rest are small or wait.
const LET_IN_A_HEAVY: usize = 4;

/// Runs queries.
pub(crate) struct QueryRunner {
    context: Arc<QueryContext>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) memory: Arc<TotalMemory>,
    pub(crate) scheduler: Arc<Scheduler>,
    /// Queries that may still be asked.
    room: Semaphore,
    /// Queries that may still be let in.
    places: Semaphore,
    metrics: QueryMetrics,
}

impl fmt::Debug for QueryRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRunner").finish_non_exhaustive()
    }
}

impl QueryRunner {
    pub(crate) fn new(context: Arc<QueryContext>) -> Self {
        let config = &context.config;
        let heavy = config.max_running.max(1);
        Self {
            registry: Registry::new(Arc::clone(&context.clock), config.allow_duplicates),
            memory: TotalMemory::new(config.max_total_memory_bytes),
            scheduler: Scheduler::new(context.threads, heavy),
            room: Semaphore::new(heavy + config.max_waiting),
            places: Semaphore::new(heavy * LET_IN_A_HEAVY),
            metrics: QueryMetrics::new(),
            context,
        }
    }

    /// Whether a query has no more sub queries than allowed.
    pub(crate) fn check_size(&self, query: &Query) -> Result<(), QueryFailure> {
        let (count, limit) = (query.sub_queries.len(), self.context.config.max_sub_queries);
        if limit > 0 && count > limit {
            return Err(QueryError::too_large(format!(
                "Sorry, your query has {count} sub queries and our limit is {limit}. Please split it \
                 into several queries."
            ))
            .into());
        }
        Ok(())
    }

    /// What queries share.
    pub(crate) const fn context(&self) -> &Arc<QueryContext> {
        &self.context
    }

    /// Does the work of a query. `lifts` are its wishes to be free of the limit on bytes, and on data
    /// points. Dropping the future ends the work.
    pub(crate) async fn run<T, W>(
        &self,
        control: QueryControl,
        lifts: (bool, bool),
        work: impl FnOnce(Arc<QueryContext>, Arc<QueryRun>) -> W,
    ) -> Result<(T, QueryGuard), QueryFailure>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, QueryFailure>> + Send + 'static,
    {
        let timer = self.metrics.begin();
        let Ok(_room) = self.room.try_acquire() else {
            timer.end(Err((&QueryFailure::Busy, Some("busy"))));
            return Err(QueryFailure::Busy);
        };
        let mut registered = match self.enter(&control, lifts) {
            Ok(registered) => registered,
            Err(failure) => {
                timer.end(Err((&failure, Some("duplicate"))));
                return Err(failure);
            }
        };
        let run = Arc::clone(registered.run());
        let result = tokio::select! {
            biased;
            () = control.cancel.cancelled() => Err(QueryFailure::Cancelled),
            () = run.stop.cancelled() => Err(QueryFailure::Stopped),
            () = sleep(run.time_left()) => Err(run.timed_out().into()),
            result = self.work(&run, work) => result,
        };
        match result {
            Ok(answer) => {
                timer.end(Ok(()));
                registered.answered();
                Ok((answer, QueryGuard::new(registered, self.context.runtime.clone())))
            }
            Err(failure) => {
                timer.end(Err((&failure, run.refused_for())));
                registered.failed(&failure);
                Err(failure)
            }
        }
    }

    fn enter(
        &self,
        control: &QueryControl,
        lifts: (bool, bool),
    ) -> Result<Registered, QueryFailure> {
        let config = &self.context.config;
        let own =
            control.deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
        self.registry.enter(NewRun {
            asker: Arc::clone(&control.asker),
            started_ms: self.context.clock.now_ms(),
            lifts,
            memory: Memory::new(Arc::clone(&self.memory), self.most_memory()),
            turns: self.scheduler.admit(),
            max_scans: config.max_scans,
            time: [own, config.timeout].into_iter().flatten().min(),
        })
    }

    /// Memory one query may take. One that is alone must be told to ask for less, not to come back
    /// later, so it gets less than there is for all.
    fn most_memory(&self) -> u64 {
        let own = self.context.config.max_memory_bytes;
        let most = self.memory.limit() / 4 * 3;
        if own == 0 || most == 0 { own.max(most) } else { own.min(most) }
    }

    /// Waits for a place, then works on the threads for queries.
    async fn work<T, W>(
        &self,
        run: &Arc<QueryRun>,
        work: impl FnOnce(Arc<QueryContext>, Arc<QueryRun>) -> W,
    ) -> Result<T, QueryFailure>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, QueryFailure>> + Send + 'static,
    {
        let _place = self.places.acquire().await.map_err(|_| QueryFailure::Closed)?;
        run.let_in();
        let work = work(Arc::clone(&self.context), Arc::clone(run));
        let task = AbortOnDropHandle::new(self.context.runtime.spawn(work));
        task.await.unwrap_or_else(|error| {
            if error.is_panic() {
                tracing::error!(id = run.id.0, "a query ended in a panic");
                Err(QueryFailure::Lost)
            } else {
                Err(QueryFailure::Closed)
            }
        })
    }
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
