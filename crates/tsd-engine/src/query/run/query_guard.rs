//! Keeps a query registered, and its memory reserved, until its response was written.

use std::{sync::Arc, time::Duration};

use tokio::runtime;
use tokio_util::task::AbortOnDropHandle;

use super::{query_list::QueryId, registry::RegisteredQuery, scheduler::SchedulerHandle};
use crate::query::stats::QueryStats;

/// Keeps a query in the list of running queries, and its memory reserved, until its response was
/// written.
///
/// Dropping it records that the response was not written completely.
#[derive(Debug, Default)]
pub struct QueryGuard {
    registered: Option<RegisteredQuery>,
    threads: QueryThreads,
}

/// The query threads, scheduled by time slices. Their priority is below that of listeners and
/// writers.
#[derive(Clone, Debug, Default)]
pub struct QueryThreads(Option<(runtime::Handle, Arc<SchedulerHandle>)>);

/// A task that panicked, or that the engine's shutdown dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine failed while it wrote the answer")]
pub struct QueryTaskLost;

impl QueryThreads {
    /// Runs a short piece of work on a query thread, in a time slice of the query; without query
    /// threads, on the caller's. Dropping the future cancels work that has not begun.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryTaskLost> {
        let Some((runtime, scheduler)) = &self.0 else { return Ok(work()) };
        let scheduler = Arc::clone(scheduler);
        let task = runtime.spawn(async move {
            let slice = scheduler.acquire_slice().await.map_err(|_| QueryTaskLost)?;
            let result = work();
            slice.finish();
            Ok(result)
        });
        AbortOnDropHandle::new(task).await.map_err(|_| QueryTaskLost)?
    }
}

impl QueryGuard {
    pub(crate) fn new(registered: RegisteredQuery, threads: runtime::Handle) -> Self {
        let threads =
            QueryThreads(Some((threads, Arc::clone(&registered.context.query.scheduler))));
        Self { registered: Some(registered), threads }
    }

    /// The threads on which the response is to be encoded.
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

    /// Names of the quarantined files of which the result may miss points, if queries return what is left;
    /// empty if it is complete.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        self.registered.as_ref().map(|registered| registered.context.losses()).unwrap_or_default()
    }

    /// True if an operator cancelled the query; the response should then be aborted.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.registered
            .as_ref()
            .is_some_and(|registered| registered.context.operator_cancel.is_cancelled())
    }

    /// Records that the response was written completely; encoding it took `serialization`.
    pub fn mark_sent(self, serialization: Duration) {
        if let Some(registered) = self.registered {
            registered.mark_sent(serialization);
        }
    }
}
