//! Maps failures of queries to the causes of the protocol.

use tsd_engine::{QueryFailure, StorageError};
use tsd_meta::UidError;
use tsd_protocol::QueryFailureCause;

/// Returns the cause of a failure.
pub(crate) fn cause_of(failure: &QueryFailure) -> QueryFailureCause {
    match failure {
        QueryFailure::Rejected(error) => QueryFailureCause::Rejected(error.clone()),
        QueryFailure::Forbidden(error) => QueryFailureCause::Forbidden(error.to_string()),
        QueryFailure::Uid(UidError::NoSuchName { kind, name }) => {
            QueryFailureCause::NoSuchName { kind: *kind, name: name.clone() }
        }
        QueryFailure::Uid(error) => QueryFailureCause::Unresolved(error.to_string()),
        QueryFailure::Storage(error @ StorageError::Timeout(_)) => {
            QueryFailureCause::StorageTimeout(error.to_string())
        }
        QueryFailure::Storage(error @ StorageError::DiskFull) => {
            QueryFailureCause::DiskFull(error.to_string())
        }
        QueryFailure::Storage(error) => QueryFailureCause::Storage(error.to_string()),
        QueryFailure::Busy | QueryFailure::Cancelled | QueryFailure::Closed => {
            QueryFailureCause::Unavailable(failure.to_string())
        }
        QueryFailure::CancelledByOperator => QueryFailureCause::CancelledByOperator,
        QueryFailure::NoMemory { limit_mb, key } => {
            QueryFailureCause::NoMemory { limit_mb: *limit_mb, key }
        }
        QueryFailure::Panicked { .. } | QueryFailure::TaskLost => {
            QueryFailureCause::Internal(failure.to_string())
        }
    }
}
