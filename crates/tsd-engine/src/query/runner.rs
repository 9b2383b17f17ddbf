//! Admits queries, runs each on the query threads, and enforces cancellation and deadlines.
//!
//! The caller awaits the result outside of the query threads, so a cancellation or a deadline takes
//! effect at once however busy they are. Work in progress is dropped at its next await point.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tsd_query::{Query, QueryError};

use super::{
    QueryControl, QueryEngine, QueryFailure, QueryGuard,
    context::{NewQuery, QueryContext},
    memory_budget::{MemoryBudget, TotalMemoryBudget},
    metrics::QueryMetrics,
    registry::{QueryRegistry, RegisteredQuery},
    scheduler::Scheduler,
};

/// Admitted queries for each heavy query that may run; the others are light or paused.
const ADMITTED_PER_HEAVY: usize = 4;

/// Memory of a response beside its result, in bytes: the chunks that are generated and not sent yet,
/// and the state of their compression.
const RESPONSE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 256 << 10 };

/// Admits and runs queries.
pub(crate) struct QueryRunner {
    pub(crate) engine: Arc<QueryEngine>,
    pub(crate) registry: Arc<QueryRegistry>,
    pub(crate) memory: Arc<TotalMemoryBudget>,
    pub(crate) scheduler: Arc<Scheduler>,
    /// Permits for queries that run or are queued.
    submitted: Semaphore,
    /// Permits for queries that run.
    admitted: Semaphore,
    metrics: QueryMetrics,
}

impl fmt::Debug for QueryRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRunner").finish_non_exhaustive()
    }
}

impl QueryRunner {
    pub(crate) fn new(engine: Arc<QueryEngine>) -> Self {
        let config = &engine.config;
        let heavy = config.max_running.max(1);
        Self {
            registry: QueryRegistry::new(Arc::clone(&engine.clock), config.allow_duplicates),
            memory: TotalMemoryBudget::new(config.max_total_memory_bytes, engine.memory.clone()),
            scheduler: Scheduler::new(engine.threads, heavy),
            submitted: Semaphore::new(heavy + config.max_waiting),
            admitted: Semaphore::new(heavy * ADMITTED_PER_HEAVY),
            metrics: QueryMetrics::new(),
            engine,
        }
    }

    /// Fails if a query has more sub queries than allowed.
    pub(crate) fn check_size(&self, query: &Query) -> Result<(), QueryFailure> {
        let (count, limit) = (query.sub_queries.len(), self.engine.config.max_sub_queries);
        if limit > 0 && count > limit {
            return Err(QueryError::too_large(format!(
                "Sorry, your query has {count} sub queries and our limit is {limit}. Please split it \
                 into several queries."
            ))
            .into());
        }
        Ok(())
    }

    /// Runs a query. `ignore_limits` says whether it asks to ignore the limit on bytes, and that on
    /// data points. Dropping the future cancels the query.
    pub(crate) async fn run<T, W>(
        &self,
        control: QueryControl,
        ignore_limits: (bool, bool),
        work: impl FnOnce(Arc<QueryEngine>, Arc<QueryContext>) -> W,
    ) -> Result<(T, QueryGuard), QueryFailure>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, QueryFailure>> + Send + 'static,
    {
        let timer = self.metrics.begin();
        let Ok(_submitted) = self.submitted.try_acquire() else {
            timer.end(Err((&QueryFailure::Busy, Some("busy"))));
            return Err(QueryFailure::Busy);
        };
        let mut registered = match self.register(&control, ignore_limits) {
            Ok(registered) => registered,
            Err(failure) => {
                timer.end(Err((&failure, Some("duplicate"))));
                return Err(failure);
            }
        };
        let context = Arc::clone(&registered.context);
        let result = tokio::select! {
            biased;
            () = control.cancel.cancelled() => Err(QueryFailure::Cancelled),
            () = context.operator_cancel.cancelled() => Err(QueryFailure::CancelledByOperator),
            () = sleep(context.time_left()) => Err(context.timeout_error().into()),
            result = self.execute(&context, work) => result,
        };
        let result = result.and_then(|output| context.reserve(RESPONSE_BYTES).map(|()| output));
        match result {
            Ok(output) => {
                timer.end(Ok(()));
                registered.begin_response();
                Ok((output, QueryGuard::new(registered, self.engine.runtime.clone())))
            }
            Err(failure) => {
                timer.end(Err((&failure, context.limit_reached())));
                registered.fail(&failure);
                Err(failure)
            }
        }
    }

    fn register(
        &self,
        control: &QueryControl,
        ignore_limits: (bool, bool),
    ) -> Result<RegisteredQuery, QueryFailure> {
        let config = &self.engine.config;
        let own =
            control.deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
        self.registry.register(NewQuery {
            client: Arc::clone(&control.client),
            started_ms: self.engine.clock.now_ms(),
            ignore_limits,
            memory: self.query_memory(),
            scheduler: Arc::new(self.scheduler.register()),
            scans: Semaphore::new(config.max_scans.max(1)),
            time_limit: [own, config.timeout].into_iter().flatten().min(),
        })
    }

    /// Memory budget of one query. Its limit is below the total, so that a query running alone
    /// fails as too large (413), not as retryable (503).
    fn query_memory(&self) -> MemoryBudget {
        let own = self.engine.config.max_memory_bytes;
        let most = self.memory.limit() / 4 * 3;
        let (limit, key) = if most > 0 && (own == 0 || most < own) {
            (most, self.memory.key())
        } else {
            (own, "tsd.query.max_memory_bytes")
        };
        MemoryBudget::new(Arc::clone(&self.memory), limit, key)
    }

    /// Waits for admission, then runs `work` on the query threads.
    async fn execute<T, W>(
        &self,
        context: &Arc<QueryContext>,
        work: impl FnOnce(Arc<QueryEngine>, Arc<QueryContext>) -> W,
    ) -> Result<T, QueryFailure>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, QueryFailure>> + Send + 'static,
    {
        let _admitted = self.admitted.acquire().await.map_err(|_| QueryFailure::Closed)?;
        context.mark_admitted();
        let work = work(Arc::clone(&self.engine), Arc::clone(context));
        let task = AbortOnDropHandle::new(self.engine.runtime.spawn(work));
        task.await.unwrap_or_else(|error| {
            if error.is_panic() {
                tracing::error!(id = context.id.0, "query task panicked");
                Err(QueryFailure::TaskLost)
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
