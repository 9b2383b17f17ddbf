//! What is held until an answer was written.

use std::{sync::Arc, time::Duration};

use tokio::runtime;
use tokio_util::task::AbortOnDropHandle;

use super::{QueryId, QueryStages, registry::Registered, scheduler::Turns};

/// Keeps a query among the running ones, and its memory taken, until its answer was written or
/// dropped.
///
/// Dropping it says that the answer was not written to its end.
#[derive(Debug, Default)]
pub struct QueryGuard {
    registered: Option<Registered>,
    threads: QueryThreads,
}

/// The threads that queries work on, in turn. Those of listeners and writers come before them.
#[derive(Clone, Debug, Default)]
pub struct QueryThreads(Option<(runtime::Handle, Arc<Turns>)>);

/// Work that ended in a panic, or that was still to be done when the engine was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine failed while it wrote the answer")]
pub struct QueryTaskLost;

impl QueryThreads {
    /// Does a short piece of work on one of these threads, when it is the query's turn; where there are
    /// no such threads, right here. Dropping the future leaves out work that was not begun.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryTaskLost> {
        let Some((runtime, turns)) = &self.0 else { return Ok(work()) };
        let turns = Arc::clone(turns);
        let task = runtime.spawn(async move {
            let slice = turns.next().await.map_err(|_| QueryTaskLost)?;
            let done = work();
            slice.end();
            Ok(done)
        });
        AbortOnDropHandle::new(task).await.map_err(|_| QueryTaskLost)?
    }
}

impl QueryGuard {
    pub(crate) fn new(registered: Registered, threads: runtime::Handle) -> Self {
        let threads = QueryThreads(Some((threads, Arc::clone(registered.run().turns()))));
        Self { registered: Some(registered), threads }
    }

    /// Where the answer is to be written.
    #[must_use]
    pub const fn threads(&self) -> &QueryThreads {
        &self.threads
    }

    /// Number of the query.
    #[must_use]
    pub fn id(&self) -> QueryId {
        self.registered.as_ref().map(|registered| registered.run().id).unwrap_or_default()
    }

    /// Where the time of the query went so far.
    #[must_use]
    pub fn stages(&self) -> QueryStages {
        self.registered.as_ref().map(Registered::stages).unwrap_or_default()
    }

    /// Whether an operator cancelled the query; writing its answer should then end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.registered.as_ref().is_some_and(|registered| registered.run().stop.is_cancelled())
    }

    /// The answer was written to its end, with this HTTP status; writing it took `serialization`.
    pub fn sent(self, status: u16, serialization: Duration) {
        if let Some(registered) = self.registered {
            registered.sent(status, serialization);
        }
    }
}
