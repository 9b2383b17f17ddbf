//! Splits a signed token and reads its header.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::{token_error::TokenError, unique_json::parse_object};

/// An algorithm of signatures by public keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

/// A token whose signature was not verified yet.
#[derive(Debug)]
pub(super) struct SignedToken<'t> {
    pub(super) algorithm: Algorithm,
    /// Id of the key.
    pub(super) kid: Option<String>,
    /// The bytes that the signature covers.
    pub(super) message: &'t [u8],
    claims: &'t [u8],
    pub(super) signature: Vec<u8>,
}

impl Algorithm {
    /// Finds an algorithm by its name in RFC 7518 and RFC 8037; `None` for others, such as `none` and `HS256`.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "PS256" => Self::Ps256,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// Returns true if a token has the form of a signed token: three parts. A token that `tsdb user add` makes has no dot.
pub(crate) fn is_signed_token(token: &[u8]) -> bool {
    token.split(|byte| *byte == b'.').count() == 3
}

impl<'t> SignedToken<'t> {
    /// Reads the header of a token. The length of the token was checked before.
    pub(super) fn parse(token: &'t [u8]) -> Result<Self, TokenError> {
        let mut parts = token.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        let message = token.get(..header.len() + 1 + claims.len()).ok_or(TokenError::Malformed)?;
        let header = parse_object(&decode(header)?).map_err(|_| TokenError::Malformed)?;
        if header.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        let name = header.get("alg").and_then(Value::as_str).ok_or(TokenError::Malformed)?;
        let algorithm = Algorithm::from_name(name).ok_or(TokenError::Algorithm)?;
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid.clone()),
            Some(_) => return Err(TokenError::Malformed),
        };
        Ok(Self { algorithm, kid, message, claims, signature: decode(signature)? })
    }

    /// Reads the claims; call it after the signature was verified.
    pub(super) fn claims(&self) -> Result<Map<String, Value>, TokenError> {
        let claims = decode(self.claims).map_err(|_| TokenError::Claims)?;
        parse_object(&claims).map_err(|_| TokenError::Claims)
    }
}

fn decode(part: &[u8]) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}
