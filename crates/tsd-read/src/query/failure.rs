//! Why a query has no result.

use std::{any::Any, sync::Arc};

use tokio::task::JoinError;
use tsd_meta::UidError;
use tsd_query::{LimitError, QueryError};
use tsd_storage::StorageError;

use crate::metric_rights::MetricForbidden;

/// Cause why a query has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryFailure {
    /// The query is invalid, or reached a limit.
    #[error(transparent)]
    Rejected(#[from] QueryError),
    /// The client may not read or delete a metric of the query.
    #[error(transparent)]
    Forbidden(#[from] MetricForbidden),
    /// A name or UID could not be resolved.
    #[error(transparent)]
    Uid(UidError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Too many queries are running or queued.
    #[error("too many queries are waiting")]
    Busy,
    /// The client disconnected or cancelled the query.
    #[error("the query was cancelled")]
    Cancelled,
    /// An operator cancelled the query.
    #[error("an operator cancelled the query")]
    CancelledByOperator,
    /// The memory budget of all queries is exhausted.
    #[error("running queries use all of the {limit_mb} MB of memory ({key})")]
    NoMemory {
        /// The limit, in MiB.
        limit_mb: u64,
        /// Configuration key of the limit.
        key: &'static str,
    },
    /// A task of the query panicked.
    #[error("the engine failed while it worked on the query: {cause}")]
    Panicked {
        /// Text of the panic.
        cause: Arc<str>,
    },
    /// An actor that the query needs panicked.
    #[error("the engine failed while it worked on the query")]
    TaskLost,
    /// The engine was shut down.
    #[error("the engine is shut down")]
    Closed,
}

impl QueryFailure {
    /// If the query is too large for a limit of memory, that limit in MiB and its key; otherwise `None`.
    #[must_use]
    pub const fn exceeded_memory(&self) -> Option<(u64, &'static str)> {
        match self {
            Self::Rejected(QueryError::Limit(LimitError::Memory { limit_mb, key })) => {
                Some((*limit_mb, *key))
            }
            _ => None,
        }
    }
}

impl From<UidError> for QueryFailure {
    fn from(error: UidError) -> Self {
        match error {
            UidError::Storage(error) => Self::Storage(error),
            UidError::Throttled => Self::Busy,
            UidError::Lost => Self::TaskLost,
            UidError::Closed => Self::Closed,
            other => Self::Uid(other),
        }
    }
}

/// The failure of a query whose task ended without a result.
pub(crate) fn task_failure(error: JoinError) -> QueryFailure {
    match error.try_into_panic() {
        Ok(panic) => {
            let cause = panic_text(&*panic);
            tracing::error!(cause, "query task panicked");
            QueryFailure::Panicked { cause: cause.into() }
        }
        Err(_) => QueryFailure::Closed,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}
