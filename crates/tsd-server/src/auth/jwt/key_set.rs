//! The key set of an identity provider.

use serde_json::Value;

use super::{
    key::{Key, KeyFieldError},
    signed_token::SignedToken,
    token_error::TokenError,
    unique_json::parse_object,
};

/// Maximum keys of a set.
const MAX_KEYS: usize = 64;
/// Maximum keys that one token is verified with: it may have no id of a key.
const MAX_TRIES: usize = 8;

/// Public keys that sign tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// A text is not a key set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// The text is not JSON.
    #[error("the key set is not a JSON object: {0}")]
    Json(String),
    /// The object has no list of keys.
    #[error("the key set has no list keys")]
    NoList,
    /// The set has too many keys.
    #[error("the key set has {0} keys; the limit is {MAX_KEYS}")]
    TooMany(usize),
    /// A member of the list is not an object.
    #[error("keys[{0}] is not an object")]
    NotAnObject(usize),
    /// A field of a key is wrong.
    #[error("keys[{index}].{field} {what}")]
    Field {
        /// Number of the key, from 0.
        index: usize,
        /// Name of the field.
        field: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// No key can sign tokens.
    #[error(
        "none of the {0} keys verifies tokens: expected RSA, EC (P-256, P-384) or OKP (Ed25519) for RS256, PS256, ES256, \
         ES384 or EdDSA"
    )]
    NoKey(usize),
}

impl KeySet {
    /// Parses a JSON Web Key Set. Keys of other uses, kinds and algorithms are left out.
    pub fn parse(text: &str) -> Result<Self, KeySetError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let set =
            parse_object(text.as_bytes()).map_err(|error| KeySetError::Json(error.to_string()))?;
        let Some(Value::Array(members)) = set.get("keys") else { return Err(KeySetError::NoList) };
        if members.len() > MAX_KEYS {
            return Err(KeySetError::TooMany(members.len()));
        }
        let mut keys = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let fields = member.as_object().ok_or(KeySetError::NotAnObject(index))?;
            let key = Key::parse(fields).map_err(|KeyFieldError { field, what }| {
                KeySetError::Field { index, field, what }
            })?;
            keys.extend(key);
        }
        if keys.is_empty() {
            return Err(KeySetError::NoKey(members.len()));
        }
        Ok(Self { keys })
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if the set has no key. No parsed set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns true if the set has the key with this fingerprint.
    pub(crate) fn contains(&self, fingerprint: &[u8; 32]) -> bool {
        self.keys.iter().any(|key| key.fingerprint == *fingerprint)
    }

    /// Verifies a signature. Returns the fingerprint of its key.
    pub(super) fn verify(&self, token: &SignedToken<'_>) -> Result<[u8; 32], TokenError> {
        let candidates = self.keys.iter().filter(|key| key.is_candidate(token)).take(MAX_TRIES);
        let mut error = TokenError::UnknownKey;
        for key in candidates {
            if key.has_signed(token) {
                return Ok(key.fingerprint);
            }
            error = TokenError::Signature;
        }
        Err(error)
    }
}
