//! Why a signed token is refused.

/// Why a signed token is refused. The texts go to the client, to the log and to the audit log. They have only
/// characters that the header `WWW-Authenticate` allows, and nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token is not a signed token.
    #[error("the token is malformed")]
    Malformed,
    /// The token has another algorithm than those of public keys.
    #[error("the token has an algorithm other than RS256, PS256, ES256, ES384 and EdDSA")]
    Algorithm,
    /// The header names extensions.
    #[error("the token needs extensions (crit), which are not supported")]
    Critical,
    /// No key of the set has the id and the algorithm of the token.
    #[error("the key set has no key with the id and the algorithm of the token")]
    UnknownKey,
    /// The signature does not belong to a key of the set.
    #[error("the signature of the token is wrong")]
    Signature,
    /// The claims cannot be read.
    #[error("the claims of the token cannot be read")]
    Claims,
    /// The token has no time of expiry.
    #[error("the token has no valid claim exp")]
    NoExpiry,
    /// The time of the token is over.
    #[error("the token has expired")]
    Expired,
    /// The time of the token has not begun.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The token comes from the future.
    #[error("the token was issued in the future")]
    IssuedInFuture,
    /// The token is of another issuer.
    #[error("the token has another issuer than the configured one")]
    Issuer,
    /// The token is for another service.
    #[error("the token is for another audience than the configured one")]
    Audience,
    /// The token names no user.
    #[error("the token has no valid name of a user")]
    User,
}

impl TokenError {
    /// Returns true if the signature of the token was not found to be right. Only such a token may be a guess.
    pub(crate) const fn is_unsigned(self) -> bool {
        matches!(
            self,
            Self::Malformed | Self::Algorithm | Self::Critical | Self::UnknownKey | Self::Signature
        )
    }

    /// Returns true if the token may be accepted later.
    pub(crate) const fn is_too_early(self) -> bool {
        matches!(self, Self::NotYetValid | Self::IssuedInFuture)
    }
}
