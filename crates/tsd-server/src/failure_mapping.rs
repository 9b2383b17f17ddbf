//! Maps failures of names and cells to errors of the API.
//!
//! The matches list each cause, so that a new cause needs a decision: an error of the request is never a
//! 5xx, since operators are paged on those.

use tsd_engine::StorageError;
use tsd_meta::{MetaError, UidError};
use tsd_protocol::ApiError;

/// Returns the API error of a name or UID that was not resolved, assigned or listed.
pub(crate) fn uid_api_error(error: &UidError) -> ApiError {
    match error {
        UidError::Storage(error) => storage_api_error(error),
        UidError::Throttled | UidError::Closed => ApiError::overloaded(&error.to_string()),
        UidError::Lost
        | UidError::NotForgotten { .. }
        | UidError::WrongWidth { .. }
        | UidError::NumbersTaken { .. }
        | UidError::RandomExhausted { .. } => ApiError::internal(error.to_string()),
        UidError::NoSuchName { kind, name } => {
            ApiError::new(400, format!("No such name for '{kind}': '{name}'"))
        }
        UidError::NoSuchUid { .. }
        | UidError::NameTaken { .. }
        | UidError::IllegalName { .. }
        | UidError::NameTooLong { .. }
        | UidError::BlockedByFilter { .. }
        | UidError::CreationForbidden { .. }
        | UidError::SeriesLimit { .. }
        | UidError::NewSeriesLimit(_)
        | UidError::AllAssigned { .. }
        | UidError::BeingChanged { .. } => ApiError::wrapped(400, error.to_string()),
    }
}

/// Returns the API error of a meta object, which messages call `what`.
pub(crate) fn meta_api_error(error: &MetaError, what: &str) -> ApiError {
    match error {
        MetaError::Contended => ApiError::new(500, format!("Failed to save the {what} to storage"))
            .with_details("This may be caused by another process modifying storage data"),
        MetaError::WrongWidth { kind, found, expected } => ApiError::wrapped(
            400,
            format!("Wrong id.length = {found} which is != {expected} required for '{kind}'"),
        ),
        MetaError::NoSuchUid { .. } | MetaError::NotStored => {
            ApiError::wrapped(400, error.to_string())
        }
        MetaError::Uid(error) => uid_api_error(error),
        MetaError::Storage(error) => storage_api_error(error),
        MetaError::Unreadable(_) | MetaError::Panicked(_) => ApiError::internal(error.to_string()),
    }
}

/// Returns the API error of cells that were not read or written.
pub(crate) fn storage_api_error(error: &StorageError) -> ApiError {
    match error {
        // No store accepts the request; for example, a text exceeds its size limit.
        StorageError::InvalidBatch(_) | StorageError::Rejected(_) => {
            ApiError::wrapped(400, error.to_string())
        }
        // As for puts: the client may retry once space is freed.
        StorageError::DiskFull => ApiError::wrapped(503, error.to_string()),
        other => ApiError::internal(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 37: a rename on a full disk was a 500, while a put was a 503.
    #[test]
    fn a_full_disk_is_503() {
        let error = storage_api_error(&StorageError::DiskFull);
        assert_eq!((error.status, &*error.message), (503, "no space left on the data disk"));
        assert_eq!(uid_api_error(&UidError::Storage(StorageError::DiskFull)).status, 503);
    }
}
