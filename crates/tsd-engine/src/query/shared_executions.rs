//! Identical queries that are asked at the same time share one execution.
//!
//! A result has every point that was acknowledged before its execution began to read. So a query joins
//! an execution that has not begun, such as one that waits for admission. While one reads, the next one
//! waits until that has ended, and then begins for all that have come by then. However many identical
//! queries come, one execution runs and one waits.
//!
//! An execution is polled by those who wait for it: it goes on when one of them leaves, and is dropped
//! with the last one. What differs between the kinds of requests is in [`ShareableRequest`].

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
use tsd_query::{ExpQuery, GexpQuery, LimitError, Query, QueryError};

use super::{
    failure::{QueryFailure, task_failure},
    run::{
        context::QueryContext,
        query_control::QueryControl,
        query_guard::QueryGuard,
        runner::{ActorStarter, QueryRunner},
    },
    shareable_request::ShareableRequest,
};

/// Outcome of an execution, for all who share it.
type ExecutionOutcome<R> = Result<Arc<ExecutedRequest<R>>, QueryFailure>;

/// A result, with the context whose memory it is.
struct ExecutedRequest<R: ShareableRequest> {
    result: R::Output,
    /// Keeps the memory of the result reserved, and knows what it misses.
    context: Arc<QueryContext>,
}

/// An execution that several queries may await.
type SharedExecution<R> = Shared<BoxFuture<'static, ExecutionOutcome<R>>>;

/// The executions of each kind of request.
#[derive(Debug)]
pub(crate) struct SharedExecutions {
    pub(crate) queries: Arc<ExecutionList<Query>>,
    pub(crate) exps: Arc<ExecutionList<ExpQuery>>,
    pub(crate) gexps: Arc<ExecutionList<GexpQuery>>,
}

/// The executions that run or wait. There are at most as many as queries that are submitted.
pub(crate) struct ExecutionList<R: ShareableRequest> {
    entries: Mutex<Vec<ExecutionEntry<R>>>,
    last_id: AtomicU64,
    shared: Counter,
}

/// An execution in the list.
struct ExecutionEntry<R: ShareableRequest> {
    id: u64,
    request: Arc<R>,
    /// True once it may have read.
    has_begun: bool,
    /// Cancelled once it has ended, with or without a result.
    ended: CancellationToken,
    /// The context that it executes in, of the first query.
    context: Arc<QueryContext>,
    execution: WeakShared<BoxFuture<'static, ExecutionOutcome<R>>>,
}

/// What a new execution is made of.
struct NewExecution<R: ShareableRequest> {
    /// Cancelled once the execution that reads for an identical query has ended.
    after: Option<CancellationToken>,
    /// To be dropped when the new one has ended.
    listed: ListedExecution<R>,
}

/// Keeps an execution in the list.
struct ListedExecution<R: ShareableRequest> {
    executions: Arc<ExecutionList<R>>,
    id: u64,
}

impl<R: ShareableRequest> fmt::Debug for ExecutionList<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionList").finish_non_exhaustive()
    }
}

impl SharedExecutions {
    /// No executions yet.
    pub(crate) fn new() -> Self {
        Self {
            queries: ExecutionList::new(),
            exps: ExecutionList::new(),
            gexps: ExecutionList::new(),
        }
    }
}

impl<R: ShareableRequest> ExecutionList<R> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::default(),
            last_id: AtomicU64::new(0),
            shared: metrics::counter!("tsd_query_shared_total"),
        })
    }

    /// Runs a request, or shares the execution of an identical one.
    pub(crate) async fn run(
        self: &Arc<Self>,
        runner: &QueryRunner,
        request: R,
        control: QueryControl,
    ) -> Result<(R::Output, QueryGuard), QueryFailure> {
        let submitted = runner.submit(&control, request.ignored_limits(), true)?;
        let request = Arc::new(request.without_presentation());
        let context = Arc::clone(&submitted.registered.context);
        let result = self.result(runner, &request, &control, &context).await;
        runner.finish(submitted, result)
    }

    /// Awaits the result of an execution that began after the query came.
    async fn result(
        self: &Arc<Self>,
        runner: &QueryRunner,
        request: &Arc<R>,
        control: &QueryControl,
        context: &Arc<QueryContext>,
    ) -> Result<R::Output, QueryFailure> {
        loop {
            let start = |new| execution(&runner.starter, new, request, context);
            let (execution, is_joined) = self.join(request, context, start);
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
        request: &Arc<R>,
        context: &Arc<QueryContext>,
        start: impl FnOnce(NewExecution<R>) -> BoxFuture<'static, ExecutionOutcome<R>>,
    ) -> (SharedExecution<R>, bool) {
        let mut entries = self.lock();
        let mut after = None;
        for entry in entries.iter().filter(|entry| entry.request == *request) {
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
                request: Arc::clone(request),
                has_begun: false,
                ended: CancellationToken::new(),
                context: Arc::clone(context),
                execution: weak,
            });
        }
        (execution, false)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExecutionEntry<R>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The execution of a request that others may share.
fn execution<R: ShareableRequest>(
    starter: &ActorStarter,
    new: NewExecution<R>,
    request: &Arc<R>,
    context: &Arc<QueryContext>,
) -> BoxFuture<'static, ExecutionOutcome<R>> {
    let (starter, request, context) = (starter.clone(), Arc::clone(request), Arc::clone(context));
    async move {
        let NewExecution { after, listed } = new;
        if let Some(after) = after {
            after.cancelled().await;
        }
        let listed = Arc::new(listed);
        let work = {
            let (context, listed) = (Arc::clone(&context), Arc::downgrade(&listed));
            let engine = Arc::clone(&starter.engine);
            async move {
                if let Some(listed) = listed.upgrade() {
                    listed.begin();
                }
                R::execute(request, engine, context).await
            }
        };
        let result = starter.execute(CancellationToken::new(), &context, work).await?;
        drop(listed);
        Ok(Arc::new(ExecutedRequest { result, context }))
    }
    .boxed()
}

/// Awaits an execution for as long as the query may take. Others who share it are not affected.
async fn wait_for<R: ShareableRequest>(
    execution: SharedExecution<R>,
    runner: &QueryRunner,
    control: &QueryControl,
    context: &QueryContext,
) -> ExecutionOutcome<R> {
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
async fn copy_result<R: ShareableRequest>(
    executed: Arc<ExecutedRequest<R>>,
    runner: &QueryRunner,
    context: &Arc<QueryContext>,
) -> Result<R::Output, QueryFailure> {
    let context = Arc::clone(context);
    let copy = runner.engine.runtime.spawn(async move {
        // The query that started the execution has them.
        if !Arc::ptr_eq(&context, &executed.context) {
            context.note_losses(executed.context.losses());
            for sub in &executed.context.stats().sub_queries {
                context.add_sub_query_stats(sub);
            }
        }
        R::copy(&executed.result, &context).await
    });
    AbortOnDropHandle::new(copy).await.unwrap_or_else(|error| Err(task_failure(error)))
}

impl<R: ShareableRequest> ListedExecution<R> {
    /// Called before the execution reads: no query joins it from here on.
    fn begin(&self) {
        let mut entries = self.executions.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.has_begun = true;
        }
    }
}

impl<R: ShareableRequest> Drop for ListedExecution<R> {
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
