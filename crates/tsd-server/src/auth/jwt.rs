//! Verifies signed tokens of an identity provider: JSON Web Tokens (RFC 7519) in the compact form of RFC 7515.
//!
//! The keys come from a key set in a file (RFC 7517). No key is fetched, and nothing in the header of a token selects
//! anything but a key of the set. The algorithm must fit the key, so a public key is never the secret of an HMAC.

mod claims;
mod key;
mod key_set;
mod signed_token;
mod token_error;
mod unique_json;

pub(super) use self::{claims::TokenClaims, signed_token::is_signed_token};
pub use self::{
    claims::TokenRules,
    key_set::{KeySet, KeySetError},
    token_error::TokenError,
};

use self::{claims::claims_of, signed_token::SignedToken};

/// Begins the name of each user with a signed token. No user of the file has such a name.
pub(super) const USER_PREFIX: &str = "jwt:";

/// A token with a right signature, and its claims.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    pub(super) claims: TokenClaims,
    /// Identifies the key that signed the token.
    pub(super) key: [u8; 32],
}

/// Verifies the signature of a token, and then its claims at `now_ms`.
pub(super) fn verify(
    token: &[u8],
    keys: &KeySet,
    rules: &TokenRules,
    now_ms: i64,
) -> Result<VerifiedToken, TokenError> {
    let token = SignedToken::parse(token)?;
    let key = keys.verify(&token)?;
    Ok(VerifiedToken { claims: claims_of(&token.claims()?, rules, now_ms)?, key })
}

#[cfg(test)]
pub(crate) mod tests;
