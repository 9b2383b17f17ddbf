//! Cancellation of CPU-bound query work.
//!
//! Dropping a query's future drops its tasks, but a task is dropped only at an await point. Loops
//! that never await check a flag instead.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tsd_query::{ExecutionLimits, QueryError};

use super::{context::QueryContext, scheduler::TimeSlice};

/// Set once a query has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancellationFlag(Arc<AtomicBool>);

/// Sets the flag when dropped.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(CancellationFlag);

impl CancellationFlag {
    /// True if the query has ended.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the query has ended; no client sees the error.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.is_set() { Err(QueryError::internal("the query was cancelled")) } else { Ok(()) }
    }

    /// Returns a guard that sets the flag when it is dropped.
    pub(crate) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Limits of one CPU-bound task: cancellation, its time slice, and the query's deadline and memory.
#[derive(Debug)]
pub(crate) struct TaskLimits<'a> {
    cancellation: &'a CancellationFlag,
    context: &'a QueryContext,
    /// `None` once the query has ended.
    slice: Option<TimeSlice>,
}

impl<'a> TaskLimits<'a> {
    /// Limits of a task that has its first time slice.
    pub(crate) const fn new(
        cancellation: &'a CancellationFlag,
        context: &'a QueryContext,
        slice: TimeSlice,
    ) -> Self {
        Self { cancellation, context, slice: Some(slice) }
    }

    /// True if the task should yield its time slice.
    pub(crate) fn is_expired(&self) -> bool {
        self.slice.as_ref().is_none_or(TimeSlice::is_expired)
    }
}

impl ExecutionLimits for TaskLimits<'_> {
    fn check(&mut self) -> Result<(), QueryError> {
        if let Some(slice) = self.slice.take() {
            self.slice = self.context.query.scheduler.renew(slice, || self.cancellation.is_set());
        }
        self.cancellation.check()?;
        let mut context = self.context;
        ExecutionLimits::check(&mut context)
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), QueryError> {
        let mut context = self.context;
        ExecutionLimits::reserve(&mut context, bytes)
    }
}
