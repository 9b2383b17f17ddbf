//! Errors that a request caused. Their status is never a 5xx, since operators are paged on those.

use tsd_query::RawQuery;

use super::dump::dump;
use crate::{ApiError, http::api_error::UNREADABLE_JSON};

/// Status of an error that a request caused.
#[derive(Clone, Copy, Debug)]
enum FaultStatus {
    BadRequest = 400,
    NotFound = 404,
    TooLarge = 413,
}

/// An error that a request caused.
#[derive(Debug)]
pub(super) struct RequestFault {
    status: FaultStatus,
    /// Description of the error.
    pub(super) message: String,
    details: String,
}

impl RequestFault {
    fn new(status: FaultStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), details: String::new() }
    }

    /// 400 without details.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(FaultStatus::BadRequest, message)
    }

    /// 400 with the same text as message and details, like OpenTSDB for wrapped exceptions.
    pub(super) fn wrapped(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::bad_request(text.clone()).with_details(text)
    }

    /// 400 of the validation step, with a dump of the query as details.
    pub(super) fn invalid(message: impl Into<String>, raw: Option<&RawQuery>) -> Self {
        Self::bad_request(message).with_details(raw.map(dump).unwrap_or_default())
    }

    /// 400 for a body that is not the expected JSON.
    pub(super) fn bad_json(details: impl Into<String>) -> Self {
        Self::bad_request(UNREADABLE_JSON).with_details(details)
    }

    /// 404.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(FaultStatus::NotFound, message)
    }

    /// 413 for a query that reaches a limit.
    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(FaultStatus::TooLarge, message)
    }

    /// Sets the details.
    pub(super) fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }
}

impl From<RequestFault> for ApiError {
    fn from(fault: RequestFault) -> Self {
        Self::new(fault.status as u16, fault.message).with_details(fault.details)
    }
}
