//! Parses the file of users.
//!
//! - A line has a name, a hash, and roles or permissions separated by commas.
//! - `#` begins a comment, at the start of a line or of a word after the roles.
//! - The hash of a password is argon2id in the usual form (`$argon2id$v=19$...`).
//! - The hash of a token is `sha256:` and 64 hexadecimal digits. Tokens have enough entropy without a
//!   slow hash.
//! - The word `certificate` instead of a hash lets clients log in by a client certificate of this name.
//! - A name has at most one password, and any number of tokens, each with its own permissions.

use std::collections::{HashMap, hash_map::Entry};

use argon2::{
    Argon2, Params,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::{
    Identity, Permissions, UnknownPermission,
    credentials::{MAX_SECRET_BYTES, is_certificate_name, is_name},
};

/// Maximum lines with a user.
const MAX_USERS: usize = 100_000;
/// Limits of the cost of a hash, which bound the cost of one attempt.
const MAX_MEMORY_KIB: u32 = 128 << 10;
const MAX_PASSES: u32 = 16;
const MAX_PARALLELISM: u32 = 4;
/// Prefix of the hash of a token.
const TOKEN_HASH: &str = "sha256:";
/// Stands for the hash in the line of a client certificate.
const CERTIFICATE: &str = "certificate";
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The users of a file.
#[derive(Debug)]
pub struct Users {
    passwords: HashMap<String, PasswordUser>,
    /// By the hash of the token. A client cannot choose the bytes of a hash, so the time of a look-up
    /// reveals nothing about stored tokens.
    tokens: HashMap<[u8; 32], Identity>,
    /// By the name in the client certificate.
    certificates: HashMap<String, Identity>,
    /// Verified for unknown names, so that the time of a response does not reveal which names exist.
    decoy: StoredPassword,
}

/// A user with a password.
#[derive(Debug)]
pub(super) struct PasswordUser {
    pub(super) password: StoredPassword,
    pub(super) identity: Identity,
}

/// A hash of a password.
#[derive(Clone, Debug)]
pub(super) struct StoredPassword {
    hash: PasswordHash,
    memory_bytes: usize,
}

/// A line of the file is invalid. The text never shows a hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct UsersError {
    line: usize,
    what: UserLineError,
}

/// Why a line of the file is not a user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserLineError {
    /// The line does not have three words.
    #[error("expected NAME HASH ROLES, with commas and no blanks between roles")]
    Words,
    /// The first word is not a name.
    #[error("a name has at most 128 bytes, no colon and no control character")]
    Name,
    /// The third word has an unknown role.
    #[error(transparent)]
    Permission(#[from] UnknownPermission),
    /// The hash of a token is malformed.
    #[error("expected 64 hexadecimal digits after {TOKEN_HASH}")]
    TokenHash,
    /// The hash is of an unknown kind, or malformed.
    #[error(
        "the hash is neither argon2id ($argon2id$v=19$...) nor sha256: and the hash of a token, nor the word \
         {CERTIFICATE}"
    )]
    Hash,
    /// The hash of a password exceeds the limits of its cost.
    #[error(
        "the hash costs too much: expected m <= {MAX_MEMORY_KIB}, t <= {MAX_PASSES} and \
         p <= {MAX_PARALLELISM}"
    )]
    HashCost,
    /// The token occurs twice.
    #[error("an earlier line has the same token")]
    SameToken,
    /// The user of this name has a password already.
    #[error("{0} has a password in an earlier line")]
    SecondPassword(String),
    /// The certificates of this name have a line already.
    #[error("an earlier line has the certificate {0}")]
    SecondCertificate(String),
    /// The file has too many users.
    #[error("more than {MAX_USERS} users")]
    TooManyUsers,
}

impl UsersError {
    /// Returns the reason, without the number of the line.
    #[must_use]
    pub const fn what(&self) -> &UserLineError {
        &self.what
    }
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

impl Users {
    /// Parses the content of the file.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = Self {
            passwords: HashMap::new(),
            tokens: HashMap::new(),
            certificates: HashMap::new(),
            decoy: StoredPassword::decoy()?,
        };
        // Some editors write a byte order mark, which would belong to the first name.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (at, line) in text.lines().enumerate() {
            let line_number = at + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            users.add(line).map_err(|what| UsersError { line: line_number, what })?;
            if users.len() > MAX_USERS {
                let what = UserLineError::TooManyUsers;
                return Err(UsersError { line: line_number, what });
            }
        }
        // An unknown name costs as much as the most expensive known name.
        if let Some(user) = users.passwords.values().max_by_key(|user| user.password.memory_bytes) {
            users.decoy = user.password.clone();
        }
        Ok(users)
    }

    /// Number of passwords, tokens and names of certificates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.passwords.len() + self.tokens.len() + self.certificates.len()
    }

    /// Returns true if the file has no users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add(&mut self, line: &str) -> Result<(), UserLineError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, hash, grants) = match words[..] {
            [name, hash, grants] => (name, hash, grants),
            [name, hash, grants, comment, ..] if comment.starts_with('#') => (name, hash, grants),
            _ => return Err(UserLineError::Words),
        };
        let is_certificate = hash == CERTIFICATE;
        if !(is_name(name) || is_certificate && is_certificate_name(name)) {
            return Err(UserLineError::Name);
        }
        let permissions = Permissions::parse(grants)?;
        let credential = Sha256::digest(hash).into();
        let identity = Identity::new(name, permissions, credential);
        if let Some(digits) = hash.strip_prefix(TOKEN_HASH) {
            let digest = from_hex(digits).ok_or(UserLineError::TokenHash)?;
            return match self.tokens.entry(digest) {
                Entry::Vacant(entry) => {
                    entry.insert(identity);
                    Ok(())
                }
                Entry::Occupied(_) => Err(UserLineError::SameToken),
            };
        }
        if is_certificate {
            return match self.certificates.entry(name.to_owned()) {
                Entry::Vacant(entry) => {
                    entry.insert(identity);
                    Ok(())
                }
                Entry::Occupied(_) => Err(UserLineError::SecondCertificate(name.to_owned())),
            };
        }
        let password = StoredPassword::parse(hash)?;
        match self.passwords.entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(PasswordUser { password, identity });
                Ok(())
            }
            Entry::Occupied(_) => Err(UserLineError::SecondPassword(name.to_owned())),
        }
    }

    /// Returns the user with a password and this name.
    pub(super) fn with_password(&self, name: &str) -> Option<&PasswordUser> {
        self.passwords.get(name)
    }

    /// Returns the hash to verify for a name without a password.
    pub(super) const fn decoy(&self) -> &StoredPassword {
        &self.decoy
    }

    /// Returns the user with a token.
    pub(super) fn with_token(&self, token: &[u8]) -> Option<&Identity> {
        self.tokens.get(&<[u8; 32]>::from(Sha256::digest(token)))
    }

    /// Returns the user of a client certificate with this name.
    pub(super) fn with_certificate(&self, name: &str) -> Option<&Identity> {
        self.certificates.get(name)
    }

    /// Returns the current version of an identity of earlier users, if its credential is unchanged.
    pub(super) fn renew(&self, identity: &Identity) -> Option<&Identity> {
        let same = |other: &&Identity| {
            other.name == identity.name && other.credential == identity.credential
        };
        let by_password = self.passwords.get(identity.name()).map(|user| &user.identity);
        let by_certificate = || self.certificates.get(identity.name()).filter(same);
        by_password.filter(same).or_else(by_certificate).or_else(|| self.tokens.values().find(same))
    }
}

impl StoredPassword {
    fn parse(text: &str) -> Result<Self, UserLineError> {
        if !text.starts_with("$argon2id$") {
            return Err(UserLineError::Hash);
        }
        let hash = PasswordHash::new(text).map_err(|_| UserLineError::Hash)?;
        let params = Params::try_from(&hash).map_err(|_| UserLineError::Hash)?;
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(UserLineError::Hash);
        }
        if params.m_cost() > MAX_MEMORY_KIB
            || params.t_cost() > MAX_PASSES
            || params.p_cost() > MAX_PARALLELISM
        {
            return Err(UserLineError::HashCost);
        }
        let memory_bytes = params.m_cost() as usize * 1_024;
        Ok(Self { hash, memory_bytes })
    }

    /// A hash without a known password.
    fn decoy() -> Result<Self, UsersError> {
        // A valid hash with the default costs. Its password does not matter.
        const TEXT: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdG9mYWRlY295MDA\
                            $AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        Self::parse(TEXT).map_err(|what| UsersError { line: 0, what })
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
    use std::fmt::Write as _;

    let digest: [u8; 32] = Sha256::digest(token).into();
    let mut text = TOKEN_HASH.to_owned();
    for byte in digest {
        // Writing to memory cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Makes a random token.
pub fn new_token() -> Result<String, HashError> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn from_hex(digits: &str) -> Option<[u8; 32]> {
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
    use crate::Permission;

    /// The least cost: tests hash many passwords.
    pub(crate) fn cheap_hash(password: &str) -> String {
        let params = Params::new(16, 1, 1, None).unwrap();
        Argon2::from(params).hash_password(password.as_bytes()).unwrap().to_string()
    }

    #[test]
    fn lines_are_names_hashes_and_roles() {
        let (token, hash) = (new_token().unwrap(), cheap_hash("secret"));
        let text = format!(
            "# users\n\n alice {hash} READER,TELNET_PUT \nalice {} GUEST\n",
            hash_token(&token)
        );
        let users = Users::parse(&text).unwrap();
        assert_eq!(users.len(), 2);
        let alice = users.with_password("alice").unwrap();
        assert!(alice.password.verify(b"secret"));
        assert!(!alice.password.verify(b"Secret"));
        assert!(alice.identity.may(Permission::HttpQuery));
        assert!(alice.identity.may(Permission::TelnetPut));
        let by_token = users.with_token(token.as_bytes()).unwrap();
        assert_eq!(by_token.name(), "alice");
        assert!(!by_token.may(Permission::HttpQuery), "a token has permissions of its own");
        assert!(users.with_token(b"other").is_none());
        assert!(users.with_password("bob").is_none());
        assert!(Users::parse("# nobody").unwrap().is_empty());
    }

    #[test]
    fn a_certificate_has_a_name_and_roles() {
        let hash = cheap_hash("p");
        let text = format!(
            "spiffe://a/b certificate WRITER\nalice {hash} READER\nalice certificate GUEST"
        );
        let users = Users::parse(&text).unwrap();
        assert_eq!(users.len(), 3);
        let writer = users.with_certificate("spiffe://a/b").unwrap();
        assert!(writer.may(Permission::HttpPut) && !writer.may(Permission::HttpQuery));
        let alice = users.with_certificate("alice").unwrap();
        assert!(!alice.may(Permission::HttpQuery), "a certificate has permissions of its own");
        assert!(users.with_certificate("bob").is_none());
        let later = Users::parse("alice certificate READER").unwrap();
        assert!(later.renew(alice).unwrap().may(Permission::HttpQuery));
        assert!(later.renew(writer).is_none());
        let error = Users::parse("a certificate READER\na certificate GUEST").unwrap_err();
        assert_eq!(error.to_string(), "line 2: an earlier line has the certificate a");
    }

    /// Issue 37: a comment failed the start, and the byte order mark became a letter of the name.
    #[test]
    fn a_comment_may_follow_a_user_and_a_byte_order_mark_is_no_name() {
        let hash = cheap_hash("secret");
        let text = format!("\u{feff}alice {hash} READER # the first\nbob {hash} READER #second\n");
        let users = Users::parse(&text).unwrap();
        assert!(users.with_password("alice").is_some() && users.with_password("bob").is_some());
    }

    #[test]
    fn errors_name_the_line_and_show_no_hash() {
        let hash = cheap_hash("p");
        let token = hash_token("t");
        for (text, expected) in [
            ("alice".to_owned(), "line 1: expected NAME HASH ROLES"),
            (format!("alice {hash}"), "line 1: expected NAME HASH ROLES"),
            (format!("alice {hash} READER, WRITER"), "line 1: expected NAME HASH ROLES"),
            (format!("#\nal:ice {hash} READER"), "line 2: a name has"),
            (format!("alice {hash} READERS"), "line 1: \"READERS\" is neither a role"),
            ("alice secret READER".to_owned(), "line 1: the hash is neither"),
            ("alice $argon2id$v=19$m=16 READER".to_owned(), "line 1: the hash is neither"),
            ("alice $argon2i$v=19$m=16,t=1,p=1$AAAA$AAAA READER".to_owned(), "the hash is neither"),
            (format!("alice {} READER", hash.replace("t=1", "t=99")), "costs too much"),
            (format!("alice {} READER", hash.replace("m=16", "m=4000000")), "costs too much"),
            ("alice sha256:00 READER".to_owned(), "line 1: expected 64 hexadecimal digits"),
            (format!("a {hash} READER\na {hash} READER"), "line 2: a has a password"),
            (format!("a {token} READER\nb {token} READER"), "line 2: an earlier line has the same"),
        ] {
            let error = Users::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("AAAA") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_identity_is_renewed_while_its_hash_stays() {
        let (first, second) = (cheap_hash("p"), cheap_hash("q"));
        let before = Users::parse(&format!("alice {first} READER")).unwrap();
        let identity = &before.with_password("alice").unwrap().identity;
        let renewed = |text: String| Users::parse(&text).unwrap().renew(identity).cloned();
        let now = renewed(format!("alice {first} WRITER")).unwrap();
        assert!(now.may(Permission::HttpPut) && !now.may(Permission::HttpQuery));
        assert_eq!(renewed(format!("alice {second} READER")), None);
        assert_eq!(renewed(format!("bob {first} READER")), None);
        let token = hash_token("t");
        let by_token = Users::parse(&format!("c {token} READER")).unwrap();
        let identity = by_token.with_token(b"t").unwrap();
        assert!(by_token.renew(identity).is_some());
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
