//! Lets identical queries that arrive at the same time share one execution.
//!
//! A result has every point that was acknowledged before its execution began to read. So a query may join an execution
//! that has not begun, such as one that waits for admission. While an execution reads, the next one waits until it has
//! ended, and then begins for all queries that have arrived by then. However many identical queries arrive, one
//! execution runs and one waits.
//!
//! The queries that wait for an execution poll it. It continues when one of them leaves, and is dropped with the last
//! one. Differences between the kinds of requests are in [`ShareableRequest`].

use parking_lot::Mutex;
use std::{
    fmt,
    sync::{
        Arc,
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

/// How often the query that started an execution checks whether the others have copied the result.
const COPY_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Outcome of an execution, for all queries that share it.
type ExecutionOutcome<R> = Result<Arc<ExecutedRequest<R>>, QueryFailure>;

/// A result, with the context to whose memory it is charged.
struct ExecutedRequest<R: ShareableRequest> {
    result: R::Output,
    /// Keeps the memory of the result reserved, and knows the quarantined files from which the result may miss points.
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

/// The executions that run or wait, at most one for each submitted query.
pub(crate) struct ExecutionList<R: ShareableRequest> {
    entries: Mutex<Vec<ExecutionEntry<R>>>,
    last_id: AtomicU64,
    shared: Counter,
}

/// An execution in the list.
struct ExecutionEntry<R: ShareableRequest> {
    id: u64,
    request: Arc<R>,
    /// True if it may have read already.
    has_begun: bool,
    /// Cancelled when it has ended, with or without a result.
    ended: CancellationToken,
    /// The context in which it executes, which is that of the first query.
    context: Arc<QueryContext>,
    execution: WeakShared<BoxFuture<'static, ExecutionOutcome<R>>>,
}

/// Properties with which an execution is created.
struct NewExecution<R: ShareableRequest> {
    /// Cancelled when the present execution for an identical query has ended.
    after: Option<CancellationToken>,
    /// Must be dropped when the new execution has ended.
    listed: ListedExecution<R>,
}

/// Keeps an execution in the list until it is dropped.
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

    /// Awaits the result of an execution that began after the query arrived.
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
                    let copied = copy_result(executed, runner, context).await;
                    // Other queries have the memory that the copy needs: wait for it in another execution.
                    if copied.is_err() && context.must_restart() {
                        context.stop_to_restart().await;
                        continue;
                    }
                    self.shared.increment(1);
                    context.mark_admitted();
                    return copied;
                }
                Ok(executed) => return Ok(own_result(executed).await),
                // The execution had less time than this query, which joined when its time was up: try again.
                Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Time { .. })))
                    if is_joined && context.own_time_left() != Some(Duration::ZERO) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The execution to await: one of an identical query that has not begun, or a new one, created by `start`. True if
    /// the query joins another one's execution.
    fn join(
        self: &Arc<Self>,
        request: &Arc<R>,
        context: &Arc<QueryContext>,
        start: impl FnOnce(NewExecution<R>) -> BoxFuture<'static, ExecutionOutcome<R>>,
    ) -> (SharedExecution<R>, bool) {
        let mut entries = self.entries.lock();
        let mut after = None;
        let is_same = |entry: &&ExecutionEntry<R>| {
            let allows_damaged = entry.context.query.allows_damaged;
            entry.request == *request && allows_damaged == context.query.allows_damaged
        };
        for entry in entries.iter().filter(is_same) {
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
        // The downgrade fails only after the future was polled to completion.
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
        let make_work = {
            let (context, listed) = (Arc::clone(&context), Arc::downgrade(&listed));
            let engine = Arc::clone(&starter.engine);
            move || {
                if let Some(listed) = listed.upgrade() {
                    listed.begin();
                }
                R::execute(Arc::clone(&request), Arc::clone(&engine), Arc::clone(&context))
            }
        };
        let result = starter.execute(CancellationToken::new(), &context, make_work).await?;
        drop(listed);
        Ok(Arc::new(ExecutedRequest { result, context }))
    }
    .boxed()
}

/// Awaits an execution until the deadline of this query. Other queries that share it are not affected.
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

/// The result for the query that started the execution, after the others have copied it.
async fn own_result<R: ShareableRequest>(mut executed: Arc<ExecutedRequest<R>>) -> R::Output {
    loop {
        match Arc::try_unwrap(executed) {
            Ok(executed) => return executed.result,
            Err(shared) => executed = shared,
        }
        tokio::time::sleep(COPY_POLL_INTERVAL).await;
    }
}

/// Copies a shared result on the query threads, and charges it to the memory of the query.
async fn copy_result<R: ShareableRequest>(
    executed: Arc<ExecutedRequest<R>>,
    runner: &QueryRunner,
    context: &Arc<QueryContext>,
) -> Result<R::Output, QueryFailure> {
    let copying = Arc::clone(context);
    let copy = runner.engine.runtime.spawn(context.track(async move {
        let context = copying;
        context.reserve(context.query.response_bytes)?;
        // The query that started the execution already has the losses and statistics.
        if !Arc::ptr_eq(&context, &executed.context) {
            context.note_losses(executed.context.losses());
            for sub in &executed.context.stats().sub_queries {
                context.add_sub_query_stats(sub);
            }
        }
        R::copy(&executed.result, &context).await
    }));
    AbortOnDropHandle::new(copy).await.unwrap_or_else(|error| Err(task_failure(error)))
}

impl<R: ShareableRequest> ListedExecution<R> {
    /// Called before the execution reads. From here on no query joins it.
    fn begin(&self) {
        let mut entries = self.executions.entries.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.has_begun = true;
        }
    }
}

impl<R: ShareableRequest> Drop for ListedExecution<R> {
    fn drop(&mut self) {
        let mut entries = self.executions.entries.lock();
        let at = entries.iter().position(|entry| entry.id == self.id);
        let entry = at.map(|at| entries.swap_remove(at));
        drop(entries);
        if let Some(entry) = entry {
            entry.ended.cancel();
        }
    }
}
