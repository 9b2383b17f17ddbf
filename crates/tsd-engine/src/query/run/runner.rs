//! Limits the number of queries, and starts an actor for each, which awaits admission and runs it
//! ([`super::query_actor`]).

use std::{fmt, future::Future, sync::Arc};

use actix::ArbiterHandle;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;
use tsd_query::{LimitError, Query, QueryError};

use super::{
    context::{NewQuery, QueryContext},
    memory_budget::{MemoryBudget, TotalMemoryBudget},
    metrics::{QueryMetrics, QueryTimer},
    query_actor::{NewQueryActor, QueryActor},
    query_control::QueryControl,
    query_guard::QueryGuard,
    query_message::{QueryMessage, QueryWork},
    registry::{QueryRegistry, RegisteredQuery},
    scheduler::{Scheduler, SchedulerHandle},
};
use crate::query::{engine::QueryEngine, failure::QueryFailure};

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
    pub(crate) starter: ActorStarter,
    metrics: QueryMetrics,
}

/// Starts the actors of queries.
#[derive(Clone)]
pub(crate) struct ActorStarter {
    pub(crate) engine: Arc<QueryEngine>,
    /// Permits for queries that run.
    admission: Arc<Semaphore>,
    /// The thread of the query actors.
    thread: ArbiterHandle,
}

/// A query that was submitted and registered.
pub(crate) struct SubmittedQuery<'r> {
    timer: QueryTimer<'r>,
    pub(crate) registered: RegisteredQuery,
    _permit: SemaphorePermit<'r>,
}

impl fmt::Debug for QueryRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRunner").finish_non_exhaustive()
    }
}

impl QueryRunner {
    pub(crate) fn new(engine: Arc<QueryEngine>, thread: ArbiterHandle) -> Self {
        let config = &engine.config;
        let heavy = config.max_running.max(1);
        Self {
            registry: QueryRegistry::new(Arc::clone(&engine.clock), config.allow_duplicates),
            memory: TotalMemoryBudget::new(config.max_total_memory_bytes, engine.memory.clone()),
            scheduler: Scheduler::new(engine.threads, heavy),
            submitted: Semaphore::new(heavy + config.max_waiting),
            starter: ActorStarter {
                engine: Arc::clone(&engine),
                admission: Arc::new(Semaphore::new(heavy * ADMITTED_PER_HEAVY)),
                thread,
            },
            metrics: QueryMetrics::new(),
            engine,
        }
    }

    /// Fails if a query has more sub queries than allowed.
    pub(crate) fn check_size(&self, query: &Query) -> Result<(), QueryFailure> {
        let (count, limit) = (query.sub_queries.len(), self.engine.config.max_sub_queries);
        if limit > 0 && count > limit {
            return Err(QueryError::from(LimitError::SubQueries { count, limit }).into());
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
        let submitted = self.submit(&control, ignore_limits, false)?;
        let context = Arc::clone(&submitted.registered.context);
        let work = work(Arc::clone(&self.engine), Arc::clone(&context));
        let result = self.starter.execute(control.cancel.child_token(), &context, work).await;
        self.finish(submitted, result)
    }

    /// Counts and registers a query. `is_shareable` says whether others may share its execution.
    pub(crate) fn submit(
        &self,
        control: &QueryControl,
        ignore_limits: (bool, bool),
        is_shareable: bool,
    ) -> Result<SubmittedQuery<'_>, QueryFailure> {
        let timer = self.metrics.begin();
        let Ok(permit) = self.submitted.try_acquire() else {
            timer.end(Err((&QueryFailure::Busy, Some("busy"))));
            return Err(QueryFailure::Busy);
        };
        match self.register(control, ignore_limits, is_shareable) {
            Ok(registered) => Ok(SubmittedQuery { timer, registered, _permit: permit }),
            Err(failure) => {
                timer.end(Err((&failure, Some("duplicate"))));
                Err(failure)
            }
        }
    }

    /// Records how the execution of a query ended.
    pub(crate) fn finish<T>(
        &self,
        submitted: SubmittedQuery<'_>,
        result: Result<T, QueryFailure>,
    ) -> Result<(T, QueryGuard), QueryFailure> {
        let SubmittedQuery { timer, mut registered, _permit } = submitted;
        let context = Arc::clone(&registered.context);
        let result = result.and_then(|output| context.reserve(RESPONSE_BYTES).map(|()| output));
        match result {
            Ok(output) => {
                timer.end(Ok(()));
                if !context.losses().is_empty() {
                    metrics::counter!("tsd_query_partial_total").increment(1);
                }
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
        is_shareable: bool,
    ) -> Result<RegisteredQuery, QueryFailure> {
        let config = &self.engine.config;
        let own =
            control.deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
        self.registry.register(NewQuery {
            client: Arc::clone(&control.client),
            started_ms: self.engine.clock.now_ms(),
            ignore_limits,
            memory: self.query_memory(),
            scheduler: Arc::new(SchedulerHandle::new(&self.scheduler)),
            scans: Semaphore::new(config.max_scans.max(1)),
            time_limit: [own, config.timeout].into_iter().flatten().min(),
            is_shareable,
        })
    }

    /// Memory budget of one query. Its limit is below the total, so that a query running alone
    /// fails as too large, not as one that may be retried.
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
}

impl ActorStarter {
    /// Has an actor execute `work`. Dropping the future, or `abandoned`, ends it.
    pub(crate) async fn execute<T: Send + 'static>(
        &self,
        abandoned: CancellationToken,
        context: &Arc<QueryContext>,
        work: impl Future<Output = Result<T, QueryFailure>> + Send + 'static,
    ) -> Result<T, QueryFailure> {
        let (sender, mut output) = oneshot::channel();
        let _abandon = abandoned.clone().drop_guard();
        let actor = QueryActor::start(
            &self.thread,
            NewQueryActor {
                context: Arc::clone(context),
                abandoned,
                admission: Arc::clone(&self.admission),
                runtime: self.engine.runtime.clone(),
                max_scans: self.engine.config.max_scans.max(1),
            },
        );
        context.set_actor(actor.clone());
        let work: QueryWork = Box::pin(async move {
            // The receiver is dropped after the actor only.
            let _ = sender.send(work.await?);
            Ok(())
        });
        match actor.ask(|reply| QueryMessage::Execute { work, reply }).await {
            Ok(ended) => ended.and_then(|()| output.try_recv().map_err(|_| QueryFailure::TaskLost)),
            Err(_) if actor.restarts() > 0 => Err(QueryFailure::TaskLost),
            Err(_) => Err(QueryFailure::Closed),
        }
    }
}
