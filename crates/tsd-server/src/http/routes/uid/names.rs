//! The names of UID kinds in this API, and errors of single names. Errors of the whole request are API
//! errors.

use tsd_engine::UidKind;
use tsd_meta::UidError;
use tsd_model::to_hex;
use tsd_protocol::ApiError;

use crate::failure_mapping::uid_api_error;

/// UID kinds by their names in this API.
pub(super) const KINDS: [(&str, UidKind); 3] =
    [("metric", UidKind::Metric), ("tagk", UidKind::Tagk), ("tagv", UidKind::Tagv)];

/// Why a name of the request cannot be assigned or renamed. The response has the text.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestedNameError {
    #[error("Unknown type name")]
    UnknownKind,
    #[error("Invalid {label} (\"{name}\"): illegal character: {character}")]
    IllegalCharacter { label: String, name: String, character: char },
    #[error("Invalid {label}: empty string")]
    Empty { label: String },
    /// The name to assign has a UID.
    #[error("Name already exists with UID: {}", to_hex(.0))]
    Assigned(Vec<u8>),
    /// The name to change has no UID.
    #[error("Name(\"{0}\") does not exist")]
    Missing(String),
    /// The new name of a rename has a UID.
    #[error(
        "When trying rename(\"{old}\", \"{new}\") on UniqueId({table}, {kind}, {width}): new name already assigned \
         ID=[{}]",
        signed_bytes(uid)
    )]
    Taken {
        old: String,
        new: String,
        table: String,
        kind: &'static str,
        width: usize,
        uid: Vec<u8>,
    },
    #[error(transparent)]
    Uid(UidError),
}

fn signed_bytes(bytes: &[u8]) -> String {
    let texts: Vec<String> = bytes.iter().map(|byte| byte.cast_signed().to_string()).collect();
    texts.join(", ")
}

/// Converts an error to one of a name, or to an error of the whole request.
pub(super) fn name_error(label: &str, error: UidError) -> Result<RequestedNameError, ApiError> {
    let label = label.to_owned();
    match error {
        UidError::IllegalName { name, character: Some(character), .. } => {
            Ok(RequestedNameError::IllegalCharacter { label, name, character })
        }
        UidError::IllegalName { .. } => Ok(RequestedNameError::Empty { label }),
        UidError::Throttled
        | UidError::Closed
        | UidError::Storage(_)
        | UidError::Lost
        | UidError::NotForgotten { .. } => Err(uid_api_error(&error)),
        error => Ok(RequestedNameError::Uid(error)),
    }
}
