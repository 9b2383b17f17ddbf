//! Keeps a query registered, and its memory reserved, until its response is written.

use std::{sync::Arc, time::Duration};

use tokio::runtime;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    query_list::QueryId,
    registry::RegisteredQuery,
    scheduler::{SchedulerHandle, TimeSlice},
};
use crate::query::stats::QueryStats;

/// Keeps a query in the list of running queries, and its memory reserved, until its response is written.
///
/// Dropping it early records that the response was not written completely.
#[derive(Debug, Default)]
pub struct QueryGuard {
    registered: Option<RegisteredQuery>,
    threads: QueryThreads,
}

/// The query threads, scheduled by time slices. They have a lower priority than listeners and writers.
#[derive(Clone, Debug, Default)]
pub struct QueryThreads(Option<(runtime::Handle, Arc<SchedulerHandle>)>);

/// Time slices of work that takes longer than one slice.
#[derive(Debug)]
pub struct WorkSlices<'a> {
    /// `None` without query threads.
    scheduler: Option<&'a SchedulerHandle>,
    /// `None` without query threads, and after nobody waits for the work any more.
    slice: Option<TimeSlice>,
    /// Cancelled when nobody waits for the work.
    is_abandoned: CancellationToken,
}

/// The failure of a task that panicked, or that was dropped by the engine's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine failed while it wrote the answer")]
pub struct QueryTaskLost;

impl QueryThreads {
    /// Runs short work on a query thread, in a time slice of the query; without query threads, on the caller's thread.
    /// Dropping the future cancels work that has not begun.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryTaskLost> {
        self.call_in_slices(move |_| work()).await
    }

    /// Runs long work like [`Self::call`]. The work must renew its time slice about every millisecond, and stop if it
    /// cannot, which means that the future was dropped.
    pub async fn call_in_slices<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WorkSlices<'_>) -> T + Send + 'static,
    ) -> Result<T, QueryTaskLost> {
        let is_abandoned = CancellationToken::new();
        let Some((runtime, scheduler)) = &self.0 else {
            return Ok(work(&mut WorkSlices { scheduler: None, slice: None, is_abandoned }));
        };
        let _on_drop = is_abandoned.clone().drop_guard();
        let scheduler = Arc::clone(scheduler);
        let task = runtime.spawn(async move {
            let slice = Some(scheduler.acquire_slice().await);
            work(&mut WorkSlices { scheduler: Some(&*scheduler), slice, is_abandoned })
        });
        AbortOnDropHandle::new(task).await.map_err(|_| QueryTaskLost)
    }
}

impl WorkSlices<'_> {
    /// Lets other queries work first if the time slice has expired. Returns false if nobody waits for the work any
    /// more.
    pub fn renew(&mut self) -> bool {
        if self.is_abandoned.is_cancelled() {
            return false;
        }
        let Some(scheduler) = self.scheduler else { return true };
        let slice = self.slice.take();
        self.slice =
            slice.and_then(|slice| scheduler.renew(slice, || self.is_abandoned.is_cancelled()));
        self.slice.is_some()
    }
}

impl QueryGuard {
    pub(crate) fn new(registered: RegisteredQuery, threads: runtime::Handle) -> Self {
        let threads =
            QueryThreads(Some((threads, Arc::clone(&registered.context.query.scheduler))));
        Self { registered: Some(registered), threads }
    }

    /// The threads for encoding the response.
    #[must_use]
    pub const fn threads(&self) -> &QueryThreads {
        &self.threads
    }

    /// Number of the query.
    #[must_use]
    pub fn id(&self) -> QueryId {
        self.registered.as_ref().map(|registered| registered.context.id).unwrap_or_default()
    }

    /// Statistics of the query so far.
    #[must_use]
    pub fn stats(&self) -> QueryStats {
        self.registered.as_ref().map(RegisteredQuery::stats).unwrap_or_default()
    }

    /// Names of the quarantined files from which the result may miss points, if the query accepts intact data; empty
    /// if the result is complete.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        self.registered.as_ref().map(|registered| registered.context.losses()).unwrap_or_default()
    }

    /// True if an operator cancelled the query. The response should then be aborted.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.registered
            .as_ref()
            .is_some_and(|registered| registered.context.operator_cancel.is_cancelled())
    }

    /// A token that tells work on other threads that an operator cancelled the query.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        let registered = self.registered.as_ref();
        registered.map(|registered| registered.context.operator_cancel.clone()).unwrap_or_default()
    }

    /// Records that the response was written completely. Encoding it took `serialization`.
    pub fn mark_sent(self, serialization: Duration) {
        if let Some(registered) = self.registered {
            registered.mark_sent(serialization);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;

    use super::*;
    use crate::query::run::scheduler::Scheduler;

    fn threads() -> QueryThreads {
        let handle = Arc::new(SchedulerHandle::new(&Scheduler::new(1)));
        QueryThreads(Some((runtime::Handle::current(), handle)))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn long_work_goes_on_as_long_as_somebody_waits() {
        let threads = threads();
        let work = |slices: &mut WorkSlices<'_>| (0..1_000).take_while(|_| slices.renew()).count();
        assert_eq!(threads.call_in_slices(work).await, Ok(1_000));
        // On the caller's thread.
        let here = QueryThreads::default();
        let work = |slices: &mut WorkSlices<'_>| slices.renew() && slices.renew();
        assert_eq!(here.call_in_slices(work).await, Ok(true));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_that_nobody_waits_for_ends() {
        let (begun, wait_for_begin) = mpsc::channel();
        let (ended, wait_for_end) = mpsc::channel();
        let threads = threads();
        let work = tokio::spawn(async move {
            let work = threads.call_in_slices(move |slices| {
                begun.send(()).unwrap();
                while slices.renew() {}
                ended.send(()).unwrap();
            });
            work.await
        });
        tokio::task::spawn_blocking(move || wait_for_begin.recv()).await.unwrap().unwrap();
        work.abort();
        tokio::task::spawn_blocking(move || wait_for_end.recv()).await.unwrap().unwrap();
    }
}
