//! Hashes of passwords and tokens, as the file of users has them.
//!
//! - A password has an argon2id hash in the usual form (`$argon2id$v=19$...`).
//! - A token has `sha256:` and 64 hexadecimal digits. Tokens have enough entropy without a slow hash.

use argon2::{
    Argon2, Params,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use tsd_protocol::MAX_SECRET_BYTES;

/// Limits of the cost of a hash, which bound the cost of one attempt.
pub(super) const MAX_MEMORY_KIB: u32 = 128 << 10;
pub(super) const MAX_PASSES: u32 = 16;
pub(super) const MAX_PARALLELISM: u32 = 4;
/// Prefix of the hash of a token.
pub(super) const TOKEN_HASH: &str = "sha256:";
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// A hash of a password.
#[derive(Clone, Debug)]
pub(super) struct StoredPassword {
    hash: PasswordHash,
    memory_bytes: usize,
}

/// Why a text is not the hash of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredPasswordError {
    /// The text is malformed.
    Malformed,
    /// Its parameters exceed the limits.
    Cost,
}

/// A password or token cannot be hashed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HashError(String);

impl From<getrandom::Error> for HashError {
    fn from(error: getrandom::Error) -> Self {
        Self(error.to_string())
    }
}

impl StoredPassword {
    pub(super) fn parse(text: &str) -> Result<Self, StoredPasswordError> {
        if !text.starts_with("$argon2id$") {
            return Err(StoredPasswordError::Malformed);
        }
        let hash = PasswordHash::new(text).map_err(|_| StoredPasswordError::Malformed)?;
        let params = Params::try_from(&hash).map_err(|_| StoredPasswordError::Malformed)?;
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(StoredPasswordError::Malformed);
        }
        if params.m_cost() > MAX_MEMORY_KIB
            || params.t_cost() > MAX_PASSES
            || params.p_cost() > MAX_PARALLELISM
        {
            return Err(StoredPasswordError::Cost);
        }
        let memory_bytes = params.m_cost() as usize * 1_024;
        Ok(Self { hash, memory_bytes })
    }

    /// A hash without a known password.
    pub(super) fn decoy() -> Result<Self, StoredPasswordError> {
        // A valid hash with the default costs. Its password does not matter.
        const TEXT: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdG9mYWRlY295MDA\
                            $AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        Self::parse(TEXT)
    }

    /// Bytes of memory that a verification needs.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns true if the hash belongs to the password. Blocks for tens of milliseconds. The comparison
    /// takes constant time.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        Argon2::default().verify_password(password, &self.hash).is_ok()
    }
}

/// Hashes a password for the file of users.
pub fn hash_password(password: &[u8]) -> Result<String, HashError> {
    if password.is_empty() || password.len() > MAX_SECRET_BYTES {
        return Err(HashError(format!("a password has 1 to {MAX_SECRET_BYTES} bytes")));
    }
    if password.iter().any(u8::is_ascii_control) {
        return Err(HashError("a password has no control characters".to_owned()));
    }
    let hash = Argon2::default().hash_password(password);
    hash.map(|hash| hash.to_string()).map_err(|error| HashError(error.to_string()))
}

/// Hashes a token for the file of users.
#[must_use]
pub fn hash_token(token: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(token).into();
    format!("{TOKEN_HASH}{}", to_hex(&digest))
}

/// Makes a random token.
pub fn new_token() -> Result<String, HashError> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Renders bytes as lower-case hexadecimal digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    let mut text = String::new();
    for byte in bytes {
        // Writing to memory cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Parses the hexadecimal digits of a SHA-256 hash.
pub(super) fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if digits.len() != digest.len() * 2 {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|p| !p.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// The least cost: tests hash many passwords.
    pub(crate) fn cheap_hash(password: &str) -> String {
        let params = Params::new(16, 1, 1, None).unwrap();
        Argon2::from(params).hash_password(password.as_bytes()).unwrap().to_string()
    }

    #[test]
    fn hashes_are_salted_and_tokens_random() {
        let hash = || hash_password(b"secret").unwrap();
        assert_ne!(hash(), hash());
        assert!(StoredPassword::parse(&hash()).unwrap().verify(b"secret"));
        assert_ne!(new_token().unwrap(), new_token().unwrap());
        assert!(hash_password(b"").is_err() && hash_password(b"a\nb").is_err());
        assert!(hash_password(&[b'x'; MAX_SECRET_BYTES + 1]).is_err());
    }
}
