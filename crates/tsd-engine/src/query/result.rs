//! Results and failures of queries, and how a query is controlled.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tsd_model::{Annotation, PointColumns};
use tsd_query::{GexpSeries, QueryError};
use tsd_storage::StorageError;

use super::{QueryClient, QueryId, QueryStats, SubQueryStats, query_guard::QueryGuard};
use crate::uid::UidError;

/// Deadline, cancellation and client of a query. Dropping the query's future cancels it too.
#[derive(Clone, Debug, Default)]
pub struct QueryControl {
    /// When it times out; the configured time limit applies as well.
    pub deadline: Option<Instant>,
    /// Cancels the query.
    pub cancel: CancellationToken,
    /// The client.
    pub client: Arc<QueryClient>,
}

/// Result of a query.
#[derive(Debug, Default)]
pub struct QueryResult {
    /// Number of the query.
    pub id: QueryId,
    /// One for each sub query, in request order.
    pub sub_results: Vec<SubQueryResult>,
    /// Global annotations that start inside the query range, by start; `None` unless requested and
    /// there are some in its hours.
    pub global_annotations: Option<Vec<Annotation>>,
    /// Statistics of the query.
    pub stats: QueryStats,
    /// Keep until the response was written: until then the query counts as running and its memory
    /// as reserved.
    pub guard: QueryGuard,
}

/// Result of a request of expressions over series.
#[derive(Debug, Default)]
pub struct GexpResult {
    /// Series of all expressions, in request order.
    pub series: Vec<GexpSeries>,
    /// Statistics of the query.
    pub stats: QueryStats,
    /// Keep until the response was written.
    pub guard: QueryGuard,
}

/// Result of one sub query.
#[derive(Clone, Debug, Default)]
pub struct SubQueryResult {
    /// Its index in the request.
    pub index: usize,
    /// Its series, in the order of the response.
    pub series: Vec<ResultSeries>,
    /// Statistics of the sub query.
    pub stats: SubQueryStats,
}

/// One series of a result.
#[derive(Clone, Debug)]
pub struct ResultSeries {
    /// Name of the metric.
    pub metric: String,
    /// Tags that all series of the group have in common, ordered by the UID of the key.
    pub tags: Vec<(String, String)>,
    /// Tag keys whose values differ, ordered by UID.
    pub aggregate_tags: Vec<String>,
    /// TSUIDs of the series in the group, ascending.
    pub tsuids: Vec<Bytes>,
    /// Points inside the query range, in time order.
    pub points: PointColumns,
    /// Annotations of the series that start inside the query range, by start; `None` if the rows
    /// read had no annotation at all, or none were requested.
    pub annotations: Option<Vec<Annotation>>,
}

/// Why a query has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryFailure {
    /// The query is invalid, or reached a limit.
    #[error(transparent)]
    Rejected(#[from] QueryError),
    /// A name or UID could not be resolved.
    #[error(transparent)]
    Uid(UidError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Too many queries are running or queued.
    #[error("too many queries are waiting")]
    Busy,
    /// The client disconnected, or cancelled it.
    #[error("the query was cancelled")]
    Cancelled,
    /// An operator cancelled it.
    #[error("The query was cancelled by an operator")]
    CancelledByOperator,
    /// The memory budget of all queries is exhausted.
    #[error(
        "Sorry, what runs now uses all of the {limit_mb}MB of memory ({key}). Please try again \
         later, or filter using more tags or decrease your time range."
    )]
    NoMemory {
        /// The limit that is reached, in MiB.
        limit_mb: u64,
        /// Its key.
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
    /// The HTTP status of the response.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Rejected(error) => error.class.status(),
            // Not a 5xx: a retry would restart what the operator ended.
            Self::Uid(_) | Self::CancelledByOperator => 400,
            Self::Storage(StorageError::Timeout(_)) => 408,
            Self::Storage(_) => 424,
            Self::Busy | Self::NoMemory { .. } | Self::Cancelled | Self::Closed => 503,
            Self::Panicked { .. } | Self::TaskLost => 500,
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
