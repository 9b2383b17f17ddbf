//! What a query is asked with and what comes out of it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tsd_model::{Annotation, PointColumns};
use tsd_query::{GexpSeries, QueryError};
use tsd_storage::StorageError;

use crate::uid::UidError;

/// How a query may be ended early. Dropping the query's future ends it too.
#[derive(Clone, Debug, Default)]
pub struct QueryControl {
    /// When it must be answered; the configured time limit applies as well.
    pub deadline: Option<Instant>,
    /// Ends it when cancelled.
    pub cancel: CancellationToken,
}

/// All that a query asked for.
#[derive(Clone, Debug, Default)]
pub struct QueryAnswer {
    /// One a sub query, in request order.
    pub sub_answers: Vec<SubAnswer>,
    /// Global notes that begin inside the query range, by start; empty unless asked for.
    pub global_annotations: Vec<Annotation>,
}

/// All that a request of expressions over series asked for.
#[derive(Clone, Debug, Default)]
pub struct GexpAnswer {
    /// Series of all expressions, in request order.
    pub series: Vec<GexpSeries>,
}

/// The answer to one sub query.
#[derive(Clone, Debug, Default)]
pub struct SubAnswer {
    /// Its place in the request.
    pub index: usize,
    /// Its series, in the order in which they are to be shown.
    pub series: Vec<AnswerSeries>,
    /// Rows read.
    pub rows: u64,
    /// Cells read; a packed run counts its points.
    pub cells: u64,
    /// Bytes of these cells.
    pub bytes: u64,
    /// Time it took.
    pub elapsed: Duration,
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
    /// It was cancelled.
    #[error("the query was cancelled")]
    Cancelled,
    /// A part of the engine failed while it worked on the query.
    #[error("the engine failed while it worked on the query")]
    Lost,
    /// The engine was shut down.
    #[error("the engine is shut down")]
    Closed,
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
