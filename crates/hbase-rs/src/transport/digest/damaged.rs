//! The error of malformed messages.

use crate::transport::{TransportError, TransportErrorKind};

/// The error of bytes that the server should not have sent.
pub(super) fn damaged(what: &str) -> TransportError {
    let message = format!("the server sent {what} in DIGEST-MD5");
    TransportError::new(TransportErrorKind::Unreachable, message)
}
