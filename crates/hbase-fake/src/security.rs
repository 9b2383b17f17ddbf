//! Authentication that a fake cluster requires.

/// Delegation tokens that a cluster accepts by SASL DIGEST-MD5, and how its servers behave.
#[derive(Clone, Debug)]
pub struct FakeTokens {
    /// Identifier and password of each token.
    pub tokens: Vec<(Vec<u8>, Vec<u8>)>,
    /// Offered protections, in the words of DIGEST-MD5: `auth`, `auth-int`, `auth-conf`.
    pub protections: &'static str,
    /// Offered ciphers of `auth-conf`.
    pub ciphers: &'static str,
    /// Maximum content in bytes of a protected message that a server sends.
    pub message_size: usize,
    /// Maximum length in bytes of a write to a socket.
    pub write_size: usize,
    /// What the servers do instead of a correct authentication.
    pub fault: Option<SaslFault>,
}

/// A fault of the authentication of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslFault {
    /// Closes the connection after this many bytes were sent.
    CloseAfter(usize),
    /// Rejects the first token.
    Reject {
        /// Java class.
        class: &'static str,
        /// Text of the failure.
        text: &'static str,
    },
    /// Accepts the client's last token, and sends a failure instead of the first response.
    RejectLate {
        /// Java class.
        class: &'static str,
        /// Text of the failure.
        text: &'static str,
    },
    /// Sends a wrong proof of the token's password.
    WrongProof,
    /// Damages the second protected message.
    DamagedMessage,
}

impl FakeTokens {
    /// Accepts one token with all protections.
    #[must_use]
    pub fn new(identifier: &[u8], password: &[u8]) -> Self {
        Self {
            tokens: vec![(identifier.to_vec(), password.to_vec())],
            protections: "auth,auth-int,auth-conf",
            ciphers: "3des,rc4,des,rc4-56,rc4-40",
            message_size: usize::MAX,
            write_size: usize::MAX,
            fault: None,
        }
    }
}
