//! Limits of CPU-bound query work.
//!
//! The end of a query drops its tasks, but a task is dropped only at an await point. Loops that never
//! await check these limits instead.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tsd_query::{ExecutionLimits, QueryError};

use super::{context::QueryContext, query_list::RunningStage, scheduler::TimeSlice};
use crate::query::failure::{QueryFailure, task_failure};

/// Limits of one CPU-bound task: its time slice, and the deadline, the end and the memory of its query.
#[derive(Debug)]
pub(crate) struct TaskLimits<'a> {
    context: &'a QueryContext,
    /// `None` once the query has ended.
    slice: Option<TimeSlice>,
}

impl<'a> TaskLimits<'a> {
    /// Limits of a task that has its first time slice.
    pub(crate) const fn new(context: &'a QueryContext, slice: TimeSlice) -> Self {
        Self { context, slice: Some(slice) }
    }

    /// True if the task should yield its time slice.
    pub(crate) fn is_expired(&self) -> bool {
        self.slice.as_ref().is_none_or(TimeSlice::is_expired)
    }
}

impl ExecutionLimits for TaskLimits<'_> {
    fn check(&mut self) -> Result<(), QueryError> {
        if let Some(slice) = self.slice.take() {
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

/// Evaluates in a task of its own, so that the caller can be dropped at any time.
pub(crate) async fn evaluate<T: Send + 'static>(
    stage: RunningStage,
    context: &Arc<QueryContext>,
    work: impl FnOnce(&mut dyn ExecutionLimits) -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryFailure> {
    context.set_stage(stage);
    let context = Arc::clone(context);
    let task = tokio::spawn(async move {
        let slice = context.time_slice().await?;
        Ok::<T, QueryFailure>(work(&mut TaskLimits::new(&context, slice))?)
    });
    AbortOnDropHandle::new(task).await.unwrap_or_else(|error| Err(task_failure(error)))
}
