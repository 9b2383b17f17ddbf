//! Failures of the engine in the words of each protocol.

use tsd_engine::{PutError, UidError};
use tsd_protocol::{PutPointError, TelnetPutError};

/// What a telnet client is told; `None` where OpenTSDB is silent.
pub(crate) fn to_telnet_error(error: &PutError) -> Option<TelnetPutError> {
    match error {
        PutError::Uid(UidError::NoSuchName { kind, name }) => {
            Some(TelnetPutError::UnknownName { kind: kind.as_str(), name: name.clone() })
        }
        PutError::Throttled => Some(TelnetPutError::PleaseThrottle(error.to_string())),
        PutError::Storage(_) | PutError::Lost | PutError::Closed => {
            Some(TelnetPutError::Storage(error.to_string()))
        }
        // A veto of the UID filter, no UIDs left, a failed look-up; the rest was refused before.
        _ => None,
    }
}

/// What an HTTP client is told of its point.
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
