//! Maps write errors of the engine to the errors of each protocol.

use tsd_engine::{PutError, UidError};
use tsd_protocol::{PutPointError, TelnetPutError};

/// Returns the telnet error; `None` where OpenTSDB sends no reply.
pub(crate) fn to_telnet_error(error: &PutError) -> Option<TelnetPutError> {
    match error {
        PutError::Uid(UidError::NoSuchName { kind, name }) => {
            Some(TelnetPutError::UnknownName { kind: kind.as_str(), name: name.clone() })
        }
        PutError::Throttled => Some(TelnetPutError::PleaseThrottle(error.to_string())),
        PutError::Storage(_) | PutError::Lost | PutError::Closed => {
            Some(TelnetPutError::Storage(error.to_string()))
        }
        // Rejected by the UID filter, no UIDs left, or a failed lookup. Other errors were reported
        // before.
        _ => None,
    }
}

/// Returns the HTTP error of a point.
pub(crate) fn to_http_error(error: &PutError) -> PutPointError {
    match error {
        PutError::Uid(UidError::NoSuchName { .. }) => PutPointError::UnknownName,
        PutError::Throttled => PutPointError::Throttled,
        PutError::Storage(_) | PutError::Lost | PutError::Closed => {
            PutPointError::Storage(error.to_string())
        }
        _ => PutPointError::Unexpected,
    }
}
