//! Identical queries that are asked at the same time share one execution.
//!
//! A result has every point that was acknowledged before its execution began to read. So a query joins
//! an execution that has not begun, such as one that waits for admission. While one reads, the next one
//! waits until that has ended, and then begins for all that have come by then. However many identical
//! queries come, one execution runs and one waits.
//!
//! An execution is polled by those who wait for it: it goes on when one of them leaves, and is dropped
//! with the last one.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use metrics::Counter;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tsd_query::{LimitError, Query, QueryError};

use super::{
    failure::{QueryFailure, task_failure},
    render::result::{QueryResult, SubQueryResult},
    run::{
        context::QueryContext,
        query_control::QueryControl,
        query_guard::QueryGuard,
        runner::{ActorStarter, QueryRunner},
    },
};

/// Outcome of an execution, for all who share it.
type ExecutionOutcome = Result<Arc<ExecutedQuery>, QueryFailure>;

/// A result, with the context whose memory it is.
#[derive(Debug)]
struct ExecutedQuery {
    result: QueryResult,
    /// Keeps the memory of the result reserved, and knows what it misses.
    context: Arc<QueryContext>,
}

/// An execution that several queries may await.
type SharedExecution = Shared<BoxFuture<'static, ExecutionOutcome>>;

/// The executions that run or wait. There are at most as many as queries that are submitted.
pub(crate) struct SharedExecutions {
    entries: Mutex<Vec<ExecutionEntry>>,
    last_id: AtomicU64,
    shared: Counter,
}

/// An execution in the list.
struct ExecutionEntry {
    id: u64,
    query: Arc<Query>,
    /// True once it may have read.
    has_begun: bool,
    /// Cancelled once it has ended, with or without a result.
    ended: CancellationToken,
    /// The context that it executes in, of the first query.
    context: Arc<QueryContext>,
    execution: WeakShared<BoxFuture<'static, ExecutionOutcome>>,
}

/// What a new execution is made of.
struct NewExecution {
    /// Cancelled once the execution that reads for an identical query has ended.
    after: Option<CancellationToken>,
    /// To be dropped when the new one has ended.
    listed: ListedExecution,
}

/// Keeps an execution in the list.
struct ListedExecution {
    executions: Arc<SharedExecutions>,
    id: u64,
}

impl fmt::Debug for SharedExecutions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedExecutions").finish_non_exhaustive()
    }
}

impl SharedExecutions {
    /// No executions yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::default(),
            last_id: AtomicU64::new(0),
            shared: metrics::counter!("tsd_query_shared_total"),
        })
    }

    /// True if a query may share an execution. Statistics are those of the query itself.
    pub(crate) const fn may_share(query: &Query) -> bool {
        !query.delete && !query.show_stats && !query.show_summary
    }

    /// Runs a query, or shares the execution of an identical one.
    pub(crate) async fn run(
        self: &Arc<Self>,
        runner: &QueryRunner,
        query: Query,
        control: QueryControl,
    ) -> Result<(QueryResult, QueryGuard), QueryFailure> {
        let ignore_limits = (query.override_byte_limit, query.override_data_point_limit);
        // How the response is written makes no difference to the result.
        let query = Query { ms_resolution: false, show_tsuids: false, show_query: false, ..query };
        let submitted = runner.submit(&control, ignore_limits, true)?;
        let context = Arc::clone(&submitted.registered.context);
        let result = self.result(runner, &Arc::new(query), &control, &context).await;
        runner.finish(submitted, result)
    }

    /// Awaits the result of an execution that began after the query came.
    async fn result(
        self: &Arc<Self>,
        runner: &QueryRunner,
        query: &Arc<Query>,
        control: &QueryControl,
        context: &Arc<QueryContext>,
    ) -> Result<QueryResult, QueryFailure> {
        loop {
            let start = |new| execution(&runner.starter, new, query, context);
            let (execution, is_joined) = self.join(query, context, start);
            match wait_for(execution, runner, control, context).await {
                Ok(executed) if is_joined => {
                    self.shared.increment(1);
                    context.mark_admitted();
                    return copy_result(executed, runner, context).await;
                }
                Ok(executed) => {
                    return match Arc::try_unwrap(executed) {
                        Ok(executed) => Ok(executed.result),
                        Err(executed) => copy_result(executed, runner, context).await,
                    };
                }
                // It had less time than this query, which came when its time was up.
                Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Time { .. })))
                    if is_joined && context.own_time_left() != Some(Duration::ZERO) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The execution that a query is to await: one of an identical query that has not begun, or a new
    /// one, which `start` makes. True if it is not new.
    fn join(
        self: &Arc<Self>,
        query: &Arc<Query>,
        context: &Arc<QueryContext>,
        start: impl FnOnce(NewExecution) -> BoxFuture<'static, ExecutionOutcome>,
    ) -> (SharedExecution, bool) {
        let mut entries = self.lock();
        let mut after = None;
        for entry in entries.iter().filter(|entry| entry.query == *query) {
            if entry.has_begun {
                after = Some(entry.ended.clone());
            } else if let Some(execution) = entry.execution.upgrade() {
                entry.context.extend_time_limit(context);
                return (execution, true);
            }
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let listed = ListedExecution { executions: Arc::clone(self), id };
        let execution = start(NewExecution { after, listed }).shared();
        // It is `None` only after it was polled to its end.
        if let Some(weak) = execution.downgrade() {
            entries.push(ExecutionEntry {
                id,
                query: Arc::clone(query),
                has_begun: false,
                ended: CancellationToken::new(),
                context: Arc::clone(context),
                execution: weak,
            });
        }
        (execution, false)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExecutionEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The execution of a query that others may share.
fn execution(
    starter: &ActorStarter,
    new: NewExecution,
    query: &Arc<Query>,
    context: &Arc<QueryContext>,
) -> BoxFuture<'static, ExecutionOutcome> {
    let (starter, query, context) = (starter.clone(), Arc::clone(query), Arc::clone(context));
    async move {
        let NewExecution { after, listed } = new;
        if let Some(after) = after {
            after.cancelled().await;
        }
        let listed = Arc::new(listed);
        let work = {
            let (query, context) = (Arc::clone(&query), Arc::clone(&context));
            let (engine, listed) = (Arc::clone(&starter.engine), Arc::downgrade(&listed));
            async move {
                if let Some(listed) = listed.upgrade() {
                    listed.begin();
                }
                engine.execute(&query, &context).await
            }
        };
        let result = starter.execute(CancellationToken::new(), &context, work).await?;
        drop(listed);
        Ok(Arc::new(ExecutedQuery { result, context }))
    }
    .boxed()
}

/// Awaits an execution for as long as the query may take. Others who share it are not affected.
async fn wait_for(
    execution: SharedExecution,
    runner: &QueryRunner,
    control: &QueryControl,
    context: &QueryContext,
) -> ExecutionOutcome {
    let time_is_up = async {
        match context.own_time_left() {
            None => std::future::pending().await,
            Some(left) => {
                let sleep = {
                    let _runtime = runner.engine.runtime.enter();
                    tokio::time::sleep(left)
                };
                sleep.await;
            }
        }
    };
    tokio::select! {
        biased;
        outcome = execution => outcome,
        () = context.operator_cancel.cancelled() => Err(QueryFailure::CancelledByOperator),
        () = control.cancel.cancelled() => Err(QueryFailure::Cancelled),
        () = time_is_up => Err(context.timeout_error().into()),
    }
}

/// Copies a shared result, on the query threads and into the memory of the query.
async fn copy_result(
    executed: Arc<ExecutedQuery>,
    runner: &QueryRunner,
    context: &Arc<QueryContext>,
) -> Result<QueryResult, QueryFailure> {
    let context = Arc::clone(context);
    let copy = runner.engine.runtime.spawn(async move { executed.copy(&context).await });
    AbortOnDropHandle::new(copy).await.unwrap_or_else(|error| Err(task_failure(error)))
}

impl ExecutedQuery {
    /// A copy of the result, charged to the memory of a query, in time slices of it.
    async fn copy(&self, context: &QueryContext) -> Result<QueryResult, QueryFailure> {
        let mut copy = QueryResult {
            global_annotations: self.result.global_annotations.clone(),
            ..QueryResult::default()
        };
        context.note_losses(self.context.losses());
        for sub in &self.result.sub_results {
            context.add_sub_query_stats(&sub.stats);
            let mut series = Vec::with_capacity(sub.series.len());
            let mut rest = sub.series.iter();
            while rest.len() > 0 {
                let slice = context.time_slice().await?;
                for one in rest.by_ref() {
                    context.reserve(one.memory_bytes())?;
                    series.push(one.clone());
                    if slice.is_expired() {
                        break;
                    }
                }
                slice.finish();
            }
            let (index, stats) = (sub.index, sub.stats.clone());
            copy.sub_results.push(SubQueryResult { index, series, stats });
        }
        Ok(copy)
    }
}

impl ListedExecution {
    /// Called before the execution reads: no query joins it from here on.
    fn begin(&self) {
        let mut entries = self.executions.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.has_begun = true;
        }
    }
}

impl Drop for ListedExecution {
    fn drop(&mut self) {
        let mut entries = self.executions.lock();
        let at = entries.iter().position(|entry| entry.id == self.id);
        let entry = at.map(|at| entries.swap_remove(at));
        drop(entries);
        if let Some(entry) = entry {
            entry.ended.cancel();
        }
    }
}
