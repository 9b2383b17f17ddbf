//! [`Reads`]: the interface of reads for their callers.

use std::sync::Arc;

use tsd_model::Annotation;
use tsd_query::{ExpQuery, ExpResult, GexpQuery, Query, SubQuery};
use tsd_runtime::{ActorThread, ThreadProbe};

use crate::{
    metric_rights::MetricRights,
    query::{
        ExecutionList, ExplainedSubQuery, GexpOutput, GexpResult, QueryClass, QueryContext,
        QueryControl, QueryEngine, QueryFailure, QueryGuard, QueryId, QueryList, QueryResult,
        QueryRunner, RowScans, ShareableRequest, SharedExecutions,
    },
    query_pool::QueryPool,
    read_shared::ReadShared,
    read_subject::ReadSubject,
};

/// Reads of a store. Its methods may be called from any thread and any runtime.
#[derive(Debug)]
pub struct Reads {
    runner: QueryRunner,
    /// `None` if each query has an execution of its own.
    shared_executions: Option<SharedExecutions>,
}

impl Reads {
    /// Reads on the threads of a pool. `coordinators` is the thread of the query actors, which should have no others,
    /// so that they reply at once.
    #[must_use]
    pub fn new(shared: ReadShared, pool: &QueryPool, coordinators: ActorThread) -> Self {
        let shared_executions = shared.config.share_executions.then(SharedExecutions::new);
        let engine = Arc::new(QueryEngine::new(shared, pool.handle(), pool.threads()));
        Self { runner: QueryRunner::new(engine, coordinators), shared_executions }
    }

    #[cfg(feature = "testing")]
    pub(crate) const fn runner(&self) -> &QueryRunner {
        &self.runner
    }

    /// Gives the query threads a task, to see whether one of them runs its tasks.
    #[must_use]
    pub fn probe_threads(&self) -> ThreadProbe {
        ThreadProbe::send("queries", |task| {
            self.runner.engine.runtime.spawn(async { task() });
        })
    }

    /// Executes a query. Dropping the future cancels it and closes its scans.
    ///
    /// The result is complete, unless the control or [`QueryConfig::allow_damaged`](crate::QueryConfig) allows damaged
    /// data. [`QueryGuard::losses`] then has the quarantined files from which the result may miss points.
    pub async fn query(
        &self,
        query: Query,
        control: QueryControl,
    ) -> Result<QueryResult, QueryFailure> {
        self.runner.check_size(&query)?;
        let (mut result, guard) = self.run_request(query, control, |all| &all.queries).await?;
        result.id = guard.id();
        result.stats = guard.stats();
        result.guard = guard;
        Ok(result)
    }

    /// Executes a request, or shares the execution of an identical one in the list of its kind.
    async fn run_request<R: ShareableRequest>(
        &self,
        request: R,
        control: QueryControl,
        list_of: impl FnOnce(&SharedExecutions) -> &Arc<ExecutionList<R>>,
    ) -> Result<(R::Output, QueryGuard), QueryFailure> {
        // Checked for each request: an execution that it joins belongs to another client.
        let subject = ReadSubject::Query(request.query());
        subject.check(&control.rights, &self.runner.engine.shared).await?;
        match &self.shared_executions {
            // A shared execution has the limits of the client that began it.
            Some(shared) if request.may_share() && control.bounds.are_off() => {
                list_of(shared).run(&self.runner, request, control).await
            }
            _ => {
                let ignore_limits = request.ignored_limits();
                let request = Arc::new(request);
                let work = move |engine, context| Arc::clone(&request).execute(engine, context);
                self.runner.run(control, ignore_limits, work).await
            }
        }
    }

    /// Runs work that is limited and scheduled like a query. It runs again if it has outgrown its memory. Dropping the
    /// future cancels it; keep the guard until the response is written. Fails before it runs if the client may not read
    /// the metrics of `subject`.
    pub(crate) async fn run_limited<T, W>(
        &self,
        control: QueryControl,
        subject: ReadSubject<'_>,
        work: impl Fn(Arc<QueryEngine>, Arc<QueryContext>) -> W + Send + 'static,
    ) -> Result<(T, QueryGuard), QueryFailure>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, QueryFailure>> + Send + 'static,
    {
        subject.check(&control.rights, &self.runner.engine.shared).await?;
        self.runner.run(control, (false, false), work).await
    }

    /// Executes an expression query (`/api/query/exp`).
    ///
    /// Keep the guard until the response is written. It also has the stages.
    pub async fn query_exp(
        &self,
        query: ExpQuery,
        control: QueryControl,
    ) -> Result<(ExpResult, QueryGuard), QueryFailure> {
        self.runner.check_size(&query.query)?;
        self.run_request(query, control, |all| &all.exps).await
    }

    /// Executes a Graphite-style expression query (`/api/query/gexp`).
    pub async fn query_gexp(
        &self,
        query: GexpQuery,
        control: QueryControl,
    ) -> Result<GexpResult, QueryFailure> {
        self.runner.check_size(&query.query)?;
        let (output, guard) = self.run_request(query, control, |all| &all.gexps).await?;
        let GexpOutput { series, global_annotations } = output;
        Ok(GexpResult { series, global_annotations, stats: guard.stats(), guard })
    }

    /// Lists global annotations that begin in an inclusive range of epoch milliseconds and do not end after it. Limited
    /// and scheduled like a query; keep the guard until the response is written.
    pub async fn global_annotations(
        &self,
        range_ms: (i64, i64),
        control: QueryControl,
    ) -> Result<(Vec<Annotation>, QueryGuard), QueryFailure> {
        let work = move |engine: Arc<QueryEngine>, context: Arc<QueryContext>| async move {
            let reserve = |bytes| context.reserve(bytes);
            engine.shared.annotations.global(range_ms, reserve).await
        };
        self.run_limited(control, ReadSubject::NoMetric, work).await
    }

    /// Plans a query and returns what it would read. Resolves its names, but reads no data.
    pub async fn explain(
        &self,
        query: &Query,
        rights: &MetricRights,
    ) -> Result<Vec<ExplainedSubQuery>, QueryFailure> {
        self.runner.check_size(query)?;
        ReadSubject::Query(query).check(rights, &self.runner.engine.shared).await?;
        self.runner.engine.explain(query).await
    }

    /// The scans of the rows that a sub query reads in a range of epoch milliseconds; `None` if no row can match.
    pub async fn row_scans(
        &self,
        sub: &SubQuery,
        range_ms: (i64, i64),
    ) -> Result<Option<RowScans>, QueryFailure> {
        self.runner.engine.row_scans(sub, range_ms).await
    }

    /// Running and recently completed queries.
    #[must_use]
    pub async fn queries(&self) -> QueryList {
        self.runner.registry.list().await
    }

    /// True if a query waits for memory that other queries hold, including those whose responses are being sent.
    #[must_use]
    pub fn queries_wait_for_memory(&self) -> bool {
        self.runner.admission.is_memory_awaited()
    }

    /// Cancels a query by its number. False if it is not running.
    #[must_use]
    pub fn cancel_query(&self, id: QueryId) -> bool {
        self.runner.registry.cancel(id)
    }

    /// Clears the query cache.
    pub fn drop_cache(&self) {
        if let Some(days) = &self.runner.engine.days {
            days.clear();
        }
    }

    /// Sets the gauges of queries. Call it before a scrape.
    pub fn set_gauges(&self) {
        let set = |name: &'static str, value: u64| metrics::gauge!(name).set(value as f64);
        let QueryRunner { registry, scheduler, admission, .. } = &self.runner;
        let (running, waiting) = registry.count();
        set("tsd_query_running", running as u64);
        set("tsd_query_queued", waiting as u64);
        set("tsd_query_runnable", scheduler.runnable() as u64);
        set("tsd_query_memory_bytes", admission.granted());
        set("tsd_query_memory_limit_bytes", admission.limit());
        for class in QueryClass::ALL {
            let (running, waiting) = admission.count(class);
            let class = class.as_str();
            metrics::gauge!("tsd_query_admitted", "class" => class).set(running as f64);
            metrics::gauge!("tsd_query_waiting", "class" => class).set(waiting as f64);
        }
    }
}
