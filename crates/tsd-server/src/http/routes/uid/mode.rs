//! Rejects operations that the mode of the daemon (`tsd.mode`) does not allow. `auth` checks the
//! permissions of users.

use tsd_protocol::ApiError;

use crate::http::request::HttpRequest;

/// Fails on a read-only daemon.
pub(super) fn check_writes(request: &HttpRequest<'_>) -> Result<(), ApiError> {
    if request.state.config.mode.writes() {
        return Ok(());
    }
    Err(ApiError::new(404, "Operation not allowed")
        .with_details("This operation is not allowed in ro mode."))
}

/// Fails on a write-only daemon.
pub(super) fn check_reads(request: &HttpRequest<'_>) -> Result<(), ApiError> {
    if request.state.config.mode.reads() {
        return Ok(());
    }
    Err(ApiError::new(404, "Operation not allowed")
        .with_details("This operation is not allowed in wo mode."))
}
