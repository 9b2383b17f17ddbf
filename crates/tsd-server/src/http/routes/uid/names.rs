//! The kinds of UIDs by their names in this API, and errors about a name; those of the whole request are
//! API errors.

use tsd_engine::{UidError, UidKind};
use tsd_protocol::ApiError;

/// UID kinds by their names in this API.
pub(super) const KINDS: [(&str, UidKind); 3] =
    [("metric", UidKind::Metric), ("tagk", UidKind::Tagk), ("tagv", UidKind::Tagv)];

/// Converts an error to a text about a name, or to an error of the whole request.
pub(super) fn name_error(label: &str, error: UidError) -> Result<String, ApiError> {
    match error {
        UidError::IllegalName { name, character: Some(character), .. } => {
            Ok(format!("Invalid {label} (\"{name}\"): illegal character: {character}"))
        }
        UidError::IllegalName { .. } => Ok(format!("Invalid {label}: empty string")),
        UidError::Throttled | UidError::Closed => Err(ApiError::overloaded(&error.to_string())),
        UidError::Storage(_) | UidError::Lost | UidError::NotForgotten { .. } => {
            Err(ApiError::internal(error.to_string()))
        }
        error => Ok(error.to_string()),
    }
}
