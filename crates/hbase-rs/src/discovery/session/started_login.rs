//! An authentication that has begun.

use crate::transport::sasl::SaslMechanism;

/// An authentication that a session starts with.
pub(super) struct StartedLogin {
    pub(super) mechanism: Box<dyn SaslMechanism>,
    pub(super) first_token: Vec<u8>,
    /// What the client presents, and what to check if the server rejects it.
    pub(super) credential: String,
}
