//! Limits of CPU-bound query work.
//!
//! When a query ends, its tasks are dropped, but only at an await point. Loops that never await check these limits
//! instead.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tsd_query::{ExecutionLimits, QueryError};

use super::{context::QueryContext, query_list::RunningStage, scheduler::TimeSlice};
use crate::query::failure::{QueryFailure, task_failure};

/// Limits of one CPU-bound task: its time slice, and the deadline, end and memory budget of its query.
#[derive(Debug)]
pub(crate) struct TaskLimits<'a> {
    context: &'a QueryContext,
    /// `None` after the query has ended.
    slice: Option<TimeSlice>,
    /// True if the work renews the slice itself, which may block the thread.
    is_renewed: bool,
}

impl<'a> TaskLimits<'a> {
    /// Limits of a task that already has its first time slice.
    pub(crate) const fn new(context: &'a QueryContext, slice: TimeSlice) -> Self {
        Self { context, slice: Some(slice), is_renewed: true }
    }

    /// Limits of short work in the task of the query, which keeps its slice.
    ///
    /// Sub queries share that task. If one of them blocked, the others could not use permits granted to them. With all
    /// permits granted to such sub queries, the task and all other queries would wait forever.
    pub(crate) const fn in_query_task(context: &'a QueryContext, slice: TimeSlice) -> Self {
        Self { context, slice: Some(slice), is_renewed: false }
    }

    /// True if the task should yield its time slice.
    pub(crate) fn is_expired(&self) -> bool {
        self.slice.as_ref().is_none_or(TimeSlice::is_expired)
    }
}

impl ExecutionLimits for TaskLimits<'_> {
    fn check(&mut self) -> Result<(), QueryError> {
        if self.is_renewed
            && let Some(slice) = self.slice.take()
        {
            self.slice = self.context.query.scheduler.renew(slice, || self.context.has_ended());
        }
        self.context.check_ended()?;
        let mut context = self.context;
        ExecutionLimits::check(&mut context)
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), QueryError> {
        let mut context = self.context;
        ExecutionLimits::reserve(&mut context, bytes)
    }
}

/// Evaluates in a task of its own, so that the caller may be dropped at any time.
pub(crate) async fn evaluate<T: Send + 'static>(
    stage: RunningStage,
    context: &Arc<QueryContext>,
    work: impl FnOnce(&mut dyn ExecutionLimits) -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryFailure> {
    context.set_stage(stage);
    let in_task = Arc::clone(context);
    let task = tokio::spawn(context.track(async move {
        let slice = in_task.time_slice().await?;
        Ok::<T, QueryFailure>(work(&mut TaskLimits::new(&in_task, slice))?)
    }));
    AbortOnDropHandle::new(task).await.unwrap_or_else(|error| Err(task_failure(error)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::time::{Duration, Instant};

    use futures_util::future::join;
    use tokio::{sync::Semaphore, task::yield_now};
    use tsd_runtime::ProcessMemory;

    use super::*;
    use crate::query::run::{
        admission::Admission,
        context::NewQuery,
        memory_budget::MemoryBudget,
        query_list::QueryId,
        scheduler::{Scheduler, SchedulerHandle},
    };

    fn context(scheduler: &Arc<Scheduler>) -> QueryContext {
        let memory = Admission::new(0, ProcessMemory::unlimited(), (1, 1));
        let query = NewQuery {
            client: Arc::default(),
            started_ms: 0,
            ignore_limits: (false, false),
            memory: MemoryBudget::new(memory, 1 << 10, 0, "key"),
            response_bytes: 0,
            scheduler: Arc::new(SchedulerHandle::new(scheduler)),
            scans: Semaphore::new(1),
            time_limit: None,
            max_bytes: 0,
            is_shareable: false,
            allows_damaged: false,
        };
        QueryContext::new(QueryId(1), 1, query)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_in_the_task_of_a_query_never_waits_for_permits_of_its_sub_queries() {
        let scheduler = Scheduler::new(1);
        let context = Arc::new(context(&scheduler));
        // Ends a wait that would last forever; the check then fails.
        let ender = Arc::clone(&context);
        let guard = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            ender.set_ended();
        });
        // One more than there are permits; the work of the last one has used up its slice.
        let others = futures_util::future::join_all((0..2).map(|_| async {
            yield_now().await;
            drop(context.time_slice().await.unwrap());
        }));
        let work = async {
            let slice = context.time_slice().await.unwrap();
            let held = context.time_slice().await.unwrap();
            let mut limits = TaskLimits::in_query_task(&context, slice);
            while scheduler.runnable() == 0 {
                yield_now().await;
            }
            let begun = Instant::now();
            while !limits.is_expired() {
                assert!(begun.elapsed() < Duration::from_mins(1));
            }
            drop(held);
            limits.check().unwrap();
        };
        join(work, others).await;
        guard.abort();
    }
}
