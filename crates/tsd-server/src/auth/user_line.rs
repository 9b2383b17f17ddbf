//! Parses one line of the file of users: `NAME HASH ROLES [FIELD=VALUE ...] [# comment]`.
//!
//! - The word `certificate` instead of a hash lets clients log in by a client certificate of this name.
//! - The word `claim` instead of a hash gives the roles to users whose signed token claims this name as a role.
//! - ROLES are roles and permissions separated by commas.
//! - The field `expires` is the time at which the credential ends.
//! - The field `metrics` names the metrics for which the permissions count.
//! - The fields `points`, `series`, `queries`, `bytes` and `memory` are limits of the user.
//! - `#` begins a comment, at the start of a line or of a word after the roles.

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use sha2::{Digest as _, Sha256};
use tsd_engine::{MetricRights, MetricRightsError};
use tsd_protocol::{is_certificate_name, is_user_name};

use super::{
    Identity, Permission, Permissions, UnknownPermission, jwt,
    secrets::{
        MAX_MEMORY_KIB, MAX_PARALLELISM, MAX_PASSES, StoredPassword, StoredPasswordError,
        TOKEN_HASH, from_hex, to_hex,
    },
    user_limits::{UserLimitError, UserLimits},
};

/// Stands for the hash in the line of a client certificate.
const CERTIFICATE: &str = "certificate";
/// Stands for the hash in the line of a role that signed tokens claim.
const CLAIM: &str = "claim";
/// Maximum lines with a user.
pub(super) const MAX_USERS: usize = 100_000;
/// Bytes of a credential's hash that its shown id has.
const ID_BYTES: usize = 4;

/// A line of the file of users: one credential and its rights.
#[derive(Clone, Debug)]
pub struct UserLine {
    pub(super) secret: StoredSecret,
    pub(super) identity: Identity,
    roles: String,
    metrics: Option<String>,
    limits: Vec<String>,
}

/// What verifies a client.
#[derive(Clone, Debug)]
pub(super) enum StoredSecret {
    Password(Box<StoredPassword>),
    /// SHA-256 of the token.
    Token([u8; 32]),
    /// A client certificate with the name of the line.
    Certificate,
    /// A signed token that claims the name of the line as a role.
    Claim,
}

/// Why a line of the file is not a user. No text shows a hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserLineError {
    /// The line does not have three words.
    #[error(
        "expected NAME HASH ROLES [expires=TIME] [metrics=RIGHTS] [LIMIT=VALUE ...], with commas and no blanks between roles"
    )]
    Words,
    /// The first word is not a name.
    #[error("a name has at most 128 bytes, no colon and no control character")]
    Name,
    /// The name belongs to users with signed tokens.
    #[error("names that begin with {prefix} belong to users with signed tokens", prefix = jwt::USER_PREFIX)]
    ReservedName,
    /// The third word has an unknown role.
    #[error(transparent)]
    Permission(#[from] UnknownPermission),
    /// The hash of a token is malformed.
    #[error("expected 64 hexadecimal digits after {TOKEN_HASH}")]
    TokenHash,
    /// The hash is of an unknown kind, or malformed.
    #[error(
        "the hash is neither argon2id ($argon2id$v=19$...) nor sha256: and the hash of a token, nor the word \
         {CERTIFICATE} or {CLAIM}"
    )]
    Hash,
    /// The hash of a password exceeds the limits of its cost.
    #[error(
        "the hash costs too much: expected m <= {MAX_MEMORY_KIB}, t <= {MAX_PASSES} and \
         p <= {MAX_PARALLELISM}"
    )]
    HashCost,
    /// A word after the roles has an unknown name.
    #[error(
        "unknown field {0:?}: expected expires=, metrics=, points=, series=, queries=, bytes= or memory="
    )]
    UnknownField(String),
    /// A field occurs twice.
    #[error("the line has the field {0} twice")]
    RepeatedField(String),
    /// The time of expiry cannot be read.
    #[error(transparent)]
    Expiry(#[from] ExpiryError),
    /// The rights by metric cannot be read.
    #[error(transparent)]
    Rights(#[from] MetricRightsError),
    /// A limit cannot be read.
    #[error(transparent)]
    Limit(#[from] UserLimitError),
    /// The token occurs twice.
    #[error("an earlier line has the same token")]
    SameToken,
    /// The user of this name has a password already.
    #[error("{0} has a password in an earlier line")]
    SecondPassword(String),
    /// The certificates of this name have a line already.
    #[error("an earlier line has the certificate {0}")]
    SecondCertificate(String),
    /// The claim of this name has a line already.
    #[error("an earlier line has the claim {0}")]
    SecondClaim(String),
    /// The file has too many users.
    #[error("more than {MAX_USERS} users")]
    TooManyUsers,
}

/// A text is not a time of expiry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time: expected 2027-03-01T00:00:00Z, or a date for its first second in UTC"
)]
pub struct ExpiryError(String);

impl UserLine {
    /// Parses a line; `None` for an empty line and for a comment.
    #[must_use]
    pub fn parse(line: &str) -> Option<Result<Self, UserLineError>> {
        let line = line.trim();
        (!line.is_empty() && !line.starts_with('#')).then(|| Self::parse_words(line))
    }

    fn parse_words(line: &str) -> Result<Self, UserLineError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, hash, roles, fields @ ..] = &words[..] else {
            return Err(UserLineError::Words);
        };
        let is_word = [CERTIFICATE, CLAIM].contains(hash);
        if !(is_user_name(name) || is_word && is_certificate_name(name)) {
            return Err(UserLineError::Name);
        }
        if name.starts_with(jwt::USER_PREFIX) && *hash != CLAIM {
            return Err(UserLineError::ReservedName);
        }
        let (mut expires, mut rights, mut limits) = (None, None, UserLimits::default());
        let mut written_limits = Vec::new();
        for word in fields.iter().take_while(|word| !word.starts_with('#')) {
            let (field, value) = word.split_once('=').ok_or(UserLineError::Words)?;
            let is_repeated = match field {
                "expires" => expires.replace(parse_expiry(value)?).is_some(),
                "metrics" => rights.replace((MetricRights::parse(value)?, value)).is_some(),
                _ => match limits.set(field, value) {
                    Some(set) => {
                        written_limits.push((*word).to_owned());
                        set?
                    }
                    None => return Err(UserLineError::UnknownField(field.to_owned())),
                },
            };
            if is_repeated {
                return Err(UserLineError::RepeatedField(field.to_owned()));
            }
        }
        let permissions = Permissions::parse(roles)?;
        let secret = StoredSecret::parse(hash)?;
        // All certificates, and all claims, have the same word for a hash.
        let credential = match &secret {
            StoredSecret::Certificate => Sha256::digest(name),
            StoredSecret::Claim => Sha256::digest(format!("{CLAIM} {name}")),
            StoredSecret::Password(_) | StoredSecret::Token(_) => Sha256::digest(hash),
        };
        let identity = Identity::new(name, permissions, credential.into())
            .expiring(expires)
            .with_rights(rights.as_ref().map(|(rights, _)| rights.clone()).unwrap_or_default())
            .with_limits(limits);
        let metrics = rights.map(|(_, text)| text.to_owned());
        Ok(Self { secret, identity, roles: (*roles).to_owned(), metrics, limits: written_limits })
    }

    /// Name of the user.
    #[must_use]
    pub fn name(&self) -> &str {
        self.identity.name()
    }

    /// The user with its rights and limits.
    #[cfg(test)]
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Kind of the credential: `password`, `token`, `certificate` or `claim`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.secret {
            StoredSecret::Password(_) => "password",
            StoredSecret::Token(_) => "token",
            StoredSecret::Certificate => CERTIFICATE,
            StoredSecret::Claim => CLAIM,
        }
    }

    /// Returns true for a password.
    #[must_use]
    pub const fn is_password(&self) -> bool {
        matches!(self.secret, StoredSecret::Password(_))
    }

    /// Roles and permissions as written.
    #[must_use]
    pub fn roles(&self) -> &str {
        &self.roles
    }

    /// When the credential expires; `None` if it does not.
    #[must_use]
    pub const fn expires(&self) -> Option<Timestamp> {
        self.identity.expires()
    }

    /// Rights by metric as written; `None` if the permissions count for all metrics.
    #[must_use]
    pub fn metrics(&self) -> Option<&str> {
        self.metrics.as_deref()
    }

    /// Limits as written, such as `points=50k/s`.
    #[must_use]
    pub fn limits(&self) -> &[String] {
        &self.limits
    }

    /// Identifies the credential to a reader, without its hash.
    #[must_use]
    pub fn id(&self) -> String {
        to_hex(self.identity.credential.get(..ID_BYTES).unwrap_or_default())
    }

    /// Names of the permissions.
    #[must_use]
    pub fn permissions(&self) -> Vec<&'static str> {
        let held = Permission::ALL.iter().filter(|permission| self.identity.may(**permission));
        held.map(|permission| permission.as_str()).collect()
    }

    /// Returns true if the line has this password or token. Blocks for tens of milliseconds.
    #[must_use]
    pub fn verify(&self, secret: &[u8]) -> bool {
        match &self.secret {
            StoredSecret::Password(password) => password.verify(secret),
            StoredSecret::Token(digest) => *digest == <[u8; 32]>::from(Sha256::digest(secret)),
            // The handshake verifies a certificate, and the key set a signed token.
            StoredSecret::Certificate | StoredSecret::Claim => false,
        }
    }
}

impl StoredSecret {
    fn parse(hash: &str) -> Result<Self, UserLineError> {
        if hash == CERTIFICATE {
            return Ok(Self::Certificate);
        }
        if hash == CLAIM {
            return Ok(Self::Claim);
        }
        if let Some(digits) = hash.strip_prefix(TOKEN_HASH) {
            return from_hex(digits).map(Self::Token).ok_or(UserLineError::TokenHash);
        }
        StoredPassword::parse(hash).map(|hash| Self::Password(Box::new(hash))).map_err(|error| {
            match error {
                StoredPasswordError::Malformed => UserLineError::Hash,
                StoredPasswordError::Cost => UserLineError::HashCost,
            }
        })
    }
}

/// Parses a time of expiry: a time with its zone, or a date.
pub fn parse_expiry(text: &str) -> Result<Timestamp, ExpiryError> {
    let error = || ExpiryError(text.chars().take(64).collect());
    // The parser of dates would drop a time without a zone.
    if text.len() == "2027-03-01".len() {
        let date: Date = text.parse().map_err(|_| error())?;
        let begin = date.to_zoned(TimeZone::UTC).map_err(|_| error())?;
        return Ok(begin.timestamp());
    }
    text.parse().map_err(|_| error())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::auth::{cheap_hash, hash_token};

    fn expires(text: &str) -> Result<Option<Timestamp>, UserLineError> {
        let line = format!("a {} READER {text}", hash_token("t"));
        UserLine::parse(&line).unwrap().map(|line| line.expires())
    }

    #[test]
    fn a_line_may_have_an_expiry_before_its_comment() {
        let march = Some("2027-03-01T00:00:00Z".parse().unwrap());
        for text in [
            "expires=2027-03-01T00:00:00Z",
            "expires=2027-03-01",
            "expires=2027-03-01T01:00:00+01:00 # expires=x",
        ] {
            assert_eq!(expires(text).unwrap(), march, "{text}");
        }
        assert_eq!(expires("").unwrap(), None);
        assert_eq!(expires("#expires=2027-03-01").unwrap(), None);
        for (text, expected) in [
            ("expires=soon", "\"soon\" is not a time"),
            ("expires=2027-03-01T00:00:00", "is not a time"),
            ("expires=2027-02-30", "is not a time"),
            ("expires=", "is not a time"),
            ("expires=2027-03-01 expires=2027-03-02", "the field expires twice"),
            ("expire=2027-03-01", "unknown field \"expire\""),
            ("expires 2027-03-01", "expected NAME HASH ROLES"),
            ("metrics=sys.*", "\"sys.*\" is not a right: expected read:PATTERN"),
            ("metrics=read:a metrics=read:b", "the field metrics twice"),
        ] {
            let error = expires(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_line_is_shown_without_its_hash() {
        let hash = cheap_hash("secret");
        let line = UserLine::parse(&format!("a {hash} READER,telnet_put")).unwrap().unwrap();
        assert_eq!(
            (line.name(), line.kind(), line.roles()),
            ("a", "password", "READER,telnet_put")
        );
        assert_eq!(line.permissions(), ["TELNET_PUT", "HTTP_QUERY"]);
        assert!(line.verify(b"secret") && !line.verify(b"Secret"));
        let token = UserLine::parse(&format!("a {} ADMINISTRATOR", hash_token("t"))).unwrap();
        let token = token.unwrap();
        assert_eq!((token.kind(), token.permissions().len()), ("token", 7));
        assert!(token.verify(b"t") && !token.verify(b"T"));
        assert!(token.id().len() == 8 && !hash_token("t").contains(&token.id()));
        let limited = format!("a {} READER metrics=read:sys.*|write:app.*", hash_token("t"));
        let limited = UserLine::parse(&limited).unwrap().unwrap();
        assert_eq!(limited.metrics(), Some("read:sys.*|write:app.*"));
        assert!(line.limits().is_empty());
        let slow = format!("a {} READER bytes=1GiB expires=2027-01-01 points=off", hash_token("t"));
        let slow = UserLine::parse(&slow).unwrap().unwrap();
        assert_eq!(slow.limits(), ["bytes=1GiB", "points=off"]);
        assert!(!limited.identity.rights().are_all() && line.identity.rights().are_all());
        assert!(UserLine::parse(" # a").is_none() && UserLine::parse(" ").is_none());
    }
}
