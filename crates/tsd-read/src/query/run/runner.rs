//! Limits the number of queries, and starts an actor for each, which awaits admission and runs the query
//! ([`super::query_actor`]).

use parking_lot::Mutex;
use std::{fmt, future::Future, sync::Arc};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tsd_query::{LimitError, Query, QueryError};
use tsd_runtime::ActorThread;

use super::{
    admission::Admission,
    context::{NewQuery, QueryContext},
    memory_budget::MemoryBudget,
    metrics::{QueryMetrics, QueryTimer},
    query_actor::{NewQueryActor, QueryActor},
    query_control::{QueryBounds, QueryControl},
    query_guard::QueryGuard,
    query_message::{QueryMessage, QueryWork},
    registry::{QueryRegistry, RegisteredQuery},
    scheduler::{Scheduler, SchedulerHandle},
};
use crate::query::{engine::QueryEngine, failure::QueryFailure};

/// Admits and runs queries.
pub(crate) struct QueryRunner {
    pub(crate) engine: Arc<QueryEngine>,
    pub(crate) registry: Arc<QueryRegistry>,
    pub(crate) admission: Arc<Admission>,
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
    /// The thread of the query actors.
    thread: ActorThread,
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
    pub(crate) fn new(engine: Arc<QueryEngine>, thread: ActorThread) -> Self {
        let config = &engine.shared.config;
        let wide = config.max_running.max(1);
        // A quarter of the places is kept for queries that do not wait for wide ones.
        let waiting = config.max_waiting - config.max_waiting / 4;
        let (limit, process) = (config.max_total_memory_bytes, engine.shared.memory.clone());
        Self {
            registry: QueryRegistry::new(Arc::clone(&engine.shared.clock), config),
            admission: Admission::new(limit, process, (wide, waiting)),
            scheduler: Scheduler::new(engine.threads),
            submitted: Semaphore::new(wide + config.max_waiting),
            starter: ActorStarter { engine: Arc::clone(&engine), thread },
            metrics: QueryMetrics::new(),
            engine,
        }
    }

    /// Fails if a query has more sub queries than allowed.
    pub(crate) fn check_size(&self, query: &Query) -> Result<(), QueryFailure> {
        let (count, limit) = (query.sub_queries.len(), self.engine.shared.config.max_sub_queries);
        if limit > 0 && count > limit {
            return Err(QueryError::from(LimitError::SubQueries { count, limit }).into());
        }
        Ok(())
    }

    /// Runs a query. `ignore_limits` says whether the query asks to ignore the limit on bytes, and the limit on data
    /// points. `work` is called again if the query begins again. Dropping the future cancels the query.
    pub(crate) async fn run<T, W>(
        &self,
        control: QueryControl,
        ignore_limits: (bool, bool),
        work: impl Fn(Arc<QueryEngine>, Arc<QueryContext>) -> W + Send + 'static,
    ) -> Result<(T, QueryGuard), QueryFailure>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, QueryFailure>> + Send + 'static,
    {
        let submitted = self.submit(&control, ignore_limits, false)?;
        let context = Arc::clone(&submitted.registered.context);
        let make_work = {
            let (engine, context) = (Arc::clone(&self.engine), Arc::clone(&context));
            move || work(Arc::clone(&engine), Arc::clone(&context))
        };
        let result = self.starter.execute(control.cancel.child_token(), &context, make_work).await;
        self.finish(submitted, result)
    }

    /// Counts and registers a query. `is_shareable` says whether identical queries may share its execution.
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
        match result {
            Ok(output) => {
                timer.end(Ok(()));
                let files = context.losses();
                if !files.is_empty() {
                    metrics::counter!("tsd_query_partial_total").increment(1);
                    tracing::info!(id = ?context.id, ?files, "a query got what is left of damaged files");
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
        let config = &self.engine.shared.config;
        let own =
            control.deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
        self.registry.register(NewQuery {
            client: Arc::clone(&control.client),
            started_ms: self.engine.shared.clock.now_ms(),
            ignore_limits,
            memory: self.query_memory(control.bounds),
            response_bytes: config.sizes.response_bytes.saturating_add(control.response_bytes),
            scheduler: Arc::new(SchedulerHandle::new(&self.scheduler)),
            scans: Semaphore::new(config.max_scans.max(1)),
            time_limit: [own, config.timeout].into_iter().flatten().min(),
            max_bytes: control.bounds.max_bytes,
            is_shareable,
            allows_damaged: control.allows_damaged || config.allow_damaged,
        })
    }

    /// Memory budget of one query. Its limit is below the total, so that a query that runs alone fails as too large,
    /// not with an error that suggests a retry.
    fn query_memory(&self, bounds: QueryBounds) -> MemoryBudget {
        let own = self.engine.shared.config.max_memory_bytes;
        let most = self.admission.limit() / 4 * 3;
        let (limit, key) = if most > 0 && (own == 0 || most < own) {
            (most, self.admission.key())
        } else {
            (own, "tsd.query.max_memory_bytes")
        };
        let of_client = bounds.max_memory_bytes;
        let (limit, key) = if of_client > 0 && (limit == 0 || of_client < limit) {
            (of_client, QueryBounds::MEMORY_KEY)
        } else {
            (limit, key)
        };
        let margin = self.engine.shared.config.sizes.margin_bytes;
        MemoryBudget::new(Arc::clone(&self.admission), margin, limit, key)
    }
}

impl ActorStarter {
    /// Lets an actor execute the work that `make_work` creates, again if the query begins again. Dropping the future,
    /// or cancelling `abandoned`, ends it.
    pub(crate) async fn execute<T, W>(
        &self,
        abandoned: CancellationToken,
        context: &Arc<QueryContext>,
        make_work: impl Fn() -> W + Send + 'static,
    ) -> Result<T, QueryFailure>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, QueryFailure>> + Send + 'static,
    {
        let output = Arc::new(Mutex::new(None));
        let _abandon = abandoned.clone().drop_guard();
        let actor = QueryActor::start(
            &self.thread,
            NewQueryActor {
                context: Arc::clone(context),
                abandoned,
                runtime: self.engine.runtime.clone(),
                max_scans: self.engine.shared.config.max_scans.max(1),
            },
        );
        context.set_actor(actor.clone());
        let make_work = {
            let output = Arc::clone(&output);
            move || -> QueryWork {
                let (work, output) = (make_work(), Arc::clone(&output));
                Box::pin(async move {
                    let result = work.await?;
                    *output.lock() = Some(result);
                    Ok(())
                })
            }
        };
        let make_work = Box::new(make_work);
        match actor.ask(|reply| QueryMessage::Execute { make_work, reply }).await {
            Ok(ended) => ended.and_then(|()| {
                let output = output.lock().take();
                output.ok_or(QueryFailure::TaskLost)
            }),
            Err(_) if actor.restarts() > 0 => Err(QueryFailure::TaskLost),
            Err(_) => Err(QueryFailure::Closed),
        }
    }
}
