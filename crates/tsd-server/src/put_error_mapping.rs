//! Maps write errors of the engine to the errors of each protocol.

use tsd_engine::PutError;
use tsd_meta::UidError;
use tsd_protocol::{PutPointError, TelnetPutError};

use crate::refused_points::RefusalCause;

/// Returns the telnet error.
pub(crate) fn to_telnet_error(error: &PutError) -> TelnetPutError {
    match error {
        PutError::Uid(UidError::NoSuchName { kind, name }) => {
            TelnetPutError::UnknownName { kind: kind.as_str(), name: name.clone() }
        }
        PutError::Throttled(_) => TelnetPutError::PleaseThrottle(error.to_string()),
        PutError::Expired { .. } => TelnetPutError::Expired(error.to_string()),
        PutError::Filtered(_) => TelnetPutError::Filtered(error.to_string()),
        PutError::Forbidden(_) => TelnetPutError::Forbidden(error.to_string()),
        PutError::NewSeriesLimit(text) => TelnetPutError::NewSeriesLimit(text.clone()),
        PutError::Storage(_) | PutError::Lost | PutError::Closed => {
            TelnetPutError::Storage(error.to_string())
        }
        // The UID filter rejected the name or no UIDs are left, which OpenTSDB only logs. Parsing finds
        // all other errors.
        _ => TelnetPutError::NoUid(error.to_string()),
    }
}

/// Returns the HTTP error of a point.
pub(crate) fn to_http_error(error: &PutError) -> PutPointError {
    match error {
        PutError::Uid(UidError::NoSuchName { .. }) => PutPointError::UnknownName,
        PutError::Uid(error) => PutPointError::NoUid(error.to_string()),
        PutError::Throttled(_) => PutPointError::Throttled,
        PutError::Expired { .. } => PutPointError::Expired(error.to_string()),
        PutError::Filtered(_) => PutPointError::Filtered(error.to_string()),
        PutError::Forbidden(_) => PutPointError::Forbidden(error.to_string()),
        PutError::NewSeriesLimit(text) => PutPointError::NewSeriesLimit(text.clone()),
        PutError::Storage(cause) if cause.is_permanent() => {
            PutPointError::Unstorable(error.to_string())
        }
        PutError::Storage(_) | PutError::Lost | PutError::Closed => {
            PutPointError::Storage(error.to_string())
        }
        _ => PutPointError::Unexpected(error.to_string()),
    }
}

/// Returns the cause of a telnet error, for the log.
pub(crate) fn telnet_cause(error: &TelnetPutError) -> RefusalCause {
    match error {
        TelnetPutError::NoUid(_) => RefusalCause::NoUid,
        other => RefusalCause::Kind(other.kind()),
    }
}

/// Returns the cause of an HTTP error, for the log.
pub(crate) fn http_cause(error: &PutPointError) -> RefusalCause {
    match error {
        PutPointError::NoUid(_) => RefusalCause::NoUid,
        other => RefusalCause::Kind(other.kind()),
    }
}
