//! What a query is asked with and what comes out of it.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tsd_model::{Annotation, PointColumns};
use tsd_query::{GexpSeries, QueryError};
use tsd_storage::StorageError;

use super::{QueryClient, QueryId, QueryStages, SubQueryStages, guard::QueryGuard};
use crate::uid::UidError;

/// How a query may be ended early. Dropping the query's future ends it too.
#[derive(Clone, Debug, Default)]
pub struct QueryControl {
    /// When it must be answered; the configured time limit applies as well.
    pub deadline: Option<Instant>,
    /// Ends it when cancelled.
    pub cancel: CancellationToken,
    /// Who asks.
    pub asker: Arc<QueryClient>,
}

/// All that a query asked for.
#[derive(Debug, Default)]
pub struct QueryAnswer {
    /// Number of the query.
    pub id: QueryId,
    /// One a sub query, in request order.
    pub sub_answers: Vec<SubAnswer>,
    /// Global notes that begin inside the query range, by start; empty unless asked for.
    pub global_annotations: Vec<Annotation>,
    /// Where its time went.
    pub stages: QueryStages,
    /// To be kept until the answer was written: till then the query counts as running and its memory
    /// as taken.
    pub guard: QueryGuard,
}

/// All that a request of expressions over series asked for.
#[derive(Debug, Default)]
pub struct GexpAnswer {
    /// Series of all expressions, in request order.
    pub series: Vec<GexpSeries>,
    /// Where its time went.
    pub stages: QueryStages,
    /// To be kept until the answer was written.
    pub guard: QueryGuard,
}

/// The answer to one sub query.
#[derive(Clone, Debug, Default)]
pub struct SubAnswer {
    /// Its place in the request.
    pub index: usize,
    /// Its series, in the order in which they are to be shown.
    pub series: Vec<AnswerSeries>,
    /// Where its time went, and what it read.
    pub stages: SubQueryStages,
}

/// One series of an answer.
#[derive(Clone, Debug)]
pub struct AnswerSeries {
    /// Name of the metric.
    pub metric: String,
    /// Tags on which the series of the group agree, by the UID of the key.
    pub tags: Vec<(String, String)>,
    /// Tag keys on which they do not, by UID.
    pub aggregate_tags: Vec<String>,
    /// TSUIDs of the series in the group, ascending.
    pub tsuids: Vec<Bytes>,
    /// Points inside the query range, in time order.
    pub points: PointColumns,
    /// Notes on the series that begin inside the query range, by start; `None` where the rows read
    /// held no note at all, or none were wanted.
    pub annotations: Option<Vec<Annotation>>,
}

/// Why a query has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryFailure {
    /// The query is wrong, or its answer would be larger than a limit allows.
    #[error(transparent)]
    Refused(#[from] QueryError),
    /// A name or UID could not be resolved.
    #[error(transparent)]
    Uid(UidError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Too many queries run and wait already.
    #[error("too many queries are waiting")]
    Busy,
    /// Whoever asked went away, or cancelled it.
    #[error("the query was cancelled")]
    Cancelled,
    /// An operator cancelled it by its number.
    #[error("The query was cancelled by an operator")]
    Stopped,
    /// The memory for all queries together is used up.
    #[error(
        "Sorry, the queries that run now use all of the {limit_mb}MB of memory for queries. Please \
         try again later, or filter using more tags or decrease your time range."
    )]
    NoMemory {
        /// Memory for all queries, in MiB.
        limit_mb: u64,
    },
    /// A part of the engine failed while it worked on the query.
    #[error("the engine failed while it worked on the query")]
    Lost,
    /// The engine was shut down.
    #[error("the engine is shut down")]
    Closed,
}

impl QueryFailure {
    /// The HTTP status that says so.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Refused(error) => error.class.status(),
            // Asking again would only start again what somebody wanted to end.
            Self::Uid(_) | Self::Stopped => 400,
            Self::Storage(StorageError::Timeout(_)) => 408,
            Self::Storage(_) => 424,
            Self::Busy | Self::NoMemory { .. } | Self::Cancelled | Self::Closed => 503,
            Self::Lost => 500,
        }
    }
}

impl From<UidError> for QueryFailure {
    fn from(error: UidError) -> Self {
        match error {
            UidError::Storage(error) => Self::Storage(error),
            UidError::Throttled => Self::Busy,
            UidError::Lost => Self::Lost,
            UidError::Closed => Self::Closed,
            other => Self::Uid(other),
        }
    }
}
