//! OpenTSDB's responses to queries that failed or were not executed.

use tsd_model::UidKind;
use tsd_query::{QueryError, RawQuery};

use super::query_error::{
    CANCELLED_BY_OPERATOR, UNRESOLVED_UIDS, no_memory, no_such_name, query_error,
};
use crate::ApiError;

/// Why a query has no result. The store or the engine wrote the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryFailureCause {
    /// The query is invalid or reached a limit.
    Rejected(QueryError),
    /// The user may not read or delete a metric of the query.
    Forbidden(String),
    /// A name has no UID.
    NoSuchName {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// A name or UID could not be resolved for another reason.
    Unresolved(String),
    /// The store failed.
    Storage(String),
    /// The store did not reply in time.
    StorageTimeout(String),
    /// The disk of the store is full, so a query cannot delete the points it read. OpenTSDB's store has no such failure.
    DiskFull(String),
    /// The daemon is busy or shutting down, or the client no longer waits for the result.
    Unavailable(String),
    /// An operator cancelled it.
    CancelledByOperator,
    /// The memory of all queries is used up.
    NoMemory {
        /// The reached limit, in MiB.
        limit_mb: u64,
        /// Key of the limit.
        key: &'static str,
    },
    /// The engine failed.
    Internal(String),
}

impl QueryFailureCause {
    /// Status of the response to a query.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Rejected(error) => query_error(error, None).status,
            // Not a 5xx: a retry would restart the query that the operator cancelled.
            Self::NoSuchName { .. } | Self::Unresolved(_) | Self::CancelledByOperator => 400,
            Self::Forbidden(_) => 403,
            Self::StorageTimeout(_) => 408,
            Self::Storage(_) => 424,
            Self::DiskFull(_) | Self::Unavailable(_) | Self::NoMemory { .. } => 503,
            Self::Internal(_) => 500,
        }
    }

    /// Message of the failure in the list of queries.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Rejected(error) => query_error(error, None).message,
            Self::NoSuchName { kind, name } => format!("no such name for '{kind}': '{name}'"),
            Self::CancelledByOperator => CANCELLED_BY_OPERATOR.to_owned(),
            Self::NoMemory { limit_mb, key } => no_memory(*limit_mb, key),
            Self::Forbidden(text)
            | Self::Unresolved(text)
            | Self::Storage(text)
            | Self::StorageTimeout(text)
            | Self::DiskFull(text)
            | Self::Unavailable(text)
            | Self::Internal(text) => text.clone(),
        }
    }

    /// Returns the API error of a query. `raw` is the query, if it was parsed.
    pub fn query_error(&self, raw: Option<&RawQuery>) -> ApiError {
        match self {
            Self::Rejected(error) => query_error(error, raw),
            Self::NoSuchName { kind, name } => ApiError::wrapped(400, no_such_name(*kind, name)),
            Self::Unavailable(text) => ApiError::overloaded(text),
            Self::Internal(text) => ApiError::internal(text.clone()),
            Self::Forbidden(text) => ApiError::new(403, "Forbidden").with_details(text.clone()),
            _ => ApiError::wrapped(self.status(), self.message()),
        }
    }

    /// Returns the API error of a series look-up. OpenTSDB reports all failures of the store alike.
    pub fn lookup_error(&self) -> ApiError {
        match self {
            Self::Rejected(error) => query_error(error, None),
            Self::NoSuchName { .. } | Self::Unresolved(_) => {
                ApiError::new(404, UNRESOLVED_UIDS).with_details(self.message())
            }
            Self::Unavailable(_) | Self::NoMemory { .. } => ApiError::overloaded(&self.message()),
            Self::CancelledByOperator | Self::DiskFull(_) | Self::Forbidden(_) => {
                self.query_error(None)
            }
            Self::Storage(_) | Self::StorageTimeout(_) | Self::Internal(_) => {
                ApiError::new(500, "Unexpected exception").with_details(self.message())
            }
        }
    }

    /// Returns the API error of a list of TSMeta.
    pub fn ts_meta_error(&self) -> ApiError {
        match self {
            Self::NoSuchName { .. } | Self::Unresolved(_) => {
                ApiError::new(404, "Unable to find one of the UIDs").with_details(self.message())
            }
            _ => self.cardinality_error(),
        }
    }

    /// Returns the API error of counting series, which OpenTSDB does not have.
    pub fn cardinality_error(&self) -> ApiError {
        match self {
            Self::Rejected(error) => query_error(error, None),
            Self::NoSuchName { .. }
            | Self::Unresolved(_)
            | Self::CancelledByOperator
            | Self::Forbidden(_)
            | Self::DiskFull(_) => self.query_error(None),
            Self::Unavailable(_) | Self::NoMemory { .. } => ApiError::overloaded(&self.message()),
            Self::Storage(_) | Self::StorageTimeout(_) | Self::Internal(_) => {
                ApiError::internal(self.message())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tsd_query::LimitError;

    use super::*;

    fn causes() -> Vec<QueryFailureCause> {
        vec![
            QueryFailureCause::Rejected(LimitError::SubQueries { count: 3, limit: 2 }.into()),
            QueryFailureCause::Forbidden("no right to read metric \"m\"".into()),
            QueryFailureCause::NoSuchName { kind: UidKind::Metric, name: "m".into() },
            QueryFailureCause::Unresolved("no UID".into()),
            QueryFailureCause::Storage("the region is gone".into()),
            QueryFailureCause::StorageTimeout("no reply".into()),
            QueryFailureCause::DiskFull("no space left".into()),
            QueryFailureCause::Unavailable("too many queries are waiting".into()),
            QueryFailureCause::CancelledByOperator,
            QueryFailureCause::NoMemory { limit_mb: 256, key: "tsd.memory.limit" },
            QueryFailureCause::Internal("a scan panicked".into()),
        ]
    }

    #[test]
    fn responses_to_failed_queries() {
        let mut lines = Vec::new();
        for cause in causes() {
            assert_eq!(cause.status(), cause.query_error(None).status, "{cause:?}");
            lines.push(format!("list: {} {}", cause.status(), cause.message()));
            lines.push(format!("query: {}", cause.query_error(None).render()));
            lines.push(format!("look-up: {}", cause.lookup_error().render()));
            lines.push(format!("cardinality: {}", cause.cardinality_error().render()));
            lines.push(format!("tsmeta: {}", cause.ts_meta_error().render()));
        }
        insta::assert_snapshot!(lines.join("\n"));
    }
}
