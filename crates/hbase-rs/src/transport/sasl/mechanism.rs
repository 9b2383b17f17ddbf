//! What the exchange needs of a mechanism.

use crate::{security::Protection, transport::TransportError};

/// The client's side of one authentication, and the keys that it results in.
pub(crate) trait SaslMechanism: Send {
    /// Handles a token of the server.
    fn step(&mut self, token: &[u8]) -> Result<SaslStep, TransportError>;

    /// Protects a message: by a checksum, and by encryption if it is `confidential`. Messages have sequence numbers:
    /// they are sent in the order in which they are wrapped.
    fn wrap(&mut self, plain: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError>;

    /// Verifies a message of the server and returns its content. A `confidential` message that is not encrypted is
    /// an error. Messages are unwrapped in the order in which they arrive.
    fn unwrap(&mut self, wrapped: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError>;
}

/// What follows a token of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SaslStep {
    /// Send this token, which may be empty. The server replies with another token.
    Continue(Vec<u8>),
    /// Send this token, which may be empty. The server replies with a wrapped offer of protections, as in GSSAPI.
    #[cfg_attr(
        not(any(test, feature = "kerberos")),
        expect(dead_code, reason = "GSSAPI is a feature")
    )]
    Negotiate(Vec<u8>),
    /// The authentication is complete with this protection, as in DIGEST-MD5. Nothing is sent.
    Complete(Protection),
}
