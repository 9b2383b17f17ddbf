//! The users of a file, by their credentials.
//!
//! `user_line.rs` parses a line. A name has at most one password, and any number of tokens, each with its own
//! permissions.

use std::collections::{HashMap, hash_map::Entry};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{
    Identity,
    secrets::StoredPassword,
    user_line::{MAX_USERS, StoredSecret, UserLine, UserLineError},
};

/// Name of the line for signed tokens whose roles have no line.
const ANY_ROLE: &str = "*";

/// The users of a file.
#[derive(Debug)]
pub struct Users {
    passwords: HashMap<String, PasswordUser>,
    /// By the hash of the token. A client cannot choose the bytes of a hash, so the time of a look-up
    /// reveals nothing about stored tokens.
    tokens: HashMap<[u8; 32], Identity>,
    /// By the name in the client certificate.
    certificates: HashMap<String, Identity>,
    /// By the role that signed tokens claim, with the order of the lines.
    claims: HashMap<String, (usize, Identity)>,
    /// Verified for unknown names, so that the time of a response does not reveal which names exist.
    decoy: StoredPassword,
    /// When credentials expire, in order.
    expiries: Vec<Timestamp>,
}

/// A user with a password.
#[derive(Debug)]
pub(super) struct PasswordUser {
    pub(super) password: StoredPassword,
    pub(super) identity: Identity,
}

/// A line of the file is invalid. The text never shows a hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct UsersError {
    line: usize,
    what: UserLineError,
}

impl UsersError {
    /// Returns the reason, without the number of the line.
    #[must_use]
    pub const fn what(&self) -> &UserLineError {
        &self.what
    }
}

impl Users {
    /// Parses the content of the file, up to the first error.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = Self::empty()?;
        if let Some(error) = users.add_lines(text).next() {
            return Err(error);
        }
        Ok(users.with_own_decoy())
    }

    /// Finds every error of a file. A line without an error is not affected by the errors of other lines.
    #[must_use]
    pub fn errors(text: &str) -> Vec<UsersError> {
        match Self::empty() {
            Ok(mut users) => users.add_lines(text).collect(),
            Err(error) => vec![error],
        }
    }

    fn empty() -> Result<Self, UsersError> {
        let decoy = StoredPassword::decoy()
            .map_err(|_| UsersError { line: 0, what: UserLineError::Hash })?;
        Ok(Self {
            passwords: HashMap::new(),
            tokens: HashMap::new(),
            certificates: HashMap::new(),
            claims: HashMap::new(),
            decoy,
            expiries: Vec::new(),
        })
    }

    /// Adds the lines as the iterator advances; returns the errors.
    fn add_lines<'u>(&'u mut self, text: &'u str) -> impl Iterator<Item = UsersError> + 'u {
        // Some editors write a byte order mark, which would belong to the first name.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        text.lines().enumerate().filter_map(|(at, line)| {
            let parsed = UserLine::parse(line)?;
            let added = parsed.and_then(|line| self.add(line));
            added.err().map(|what| UsersError { line: at + 1, what })
        })
    }

    fn with_own_decoy(mut self) -> Self {
        let costly = self.passwords.values().max_by_key(|user| user.password.memory_bytes());
        // An unknown name costs as much as the most expensive known name.
        if let Some(user) = costly {
            self.decoy = user.password.clone();
        }
        self.expiries.sort_unstable();
        self
    }

    /// Number of passwords, tokens, names of certificates and claims.
    #[must_use]
    pub fn len(&self) -> usize {
        self.passwords.len() + self.tokens.len() + self.certificates.len() + self.claims.len()
    }

    /// Returns true if the file has no users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add(&mut self, line: UserLine) -> Result<(), UserLineError> {
        if self.len() >= MAX_USERS {
            return Err(UserLineError::TooManyUsers);
        }
        let UserLine { secret, identity, .. } = line;
        let expires = identity.expires();
        match secret {
            StoredSecret::Token(digest) => match self.tokens.entry(digest) {
                Entry::Vacant(entry) => _ = entry.insert(identity),
                Entry::Occupied(_) => return Err(UserLineError::SameToken),
            },
            StoredSecret::Password(password) => {
                match self.passwords.entry(identity.name().to_owned()) {
                    Entry::Vacant(entry) => {
                        _ = entry.insert(PasswordUser { password: *password, identity });
                    }
                    Entry::Occupied(entry) => {
                        return Err(UserLineError::SecondPassword(entry.key().clone()));
                    }
                }
            }
            StoredSecret::Certificate => {
                match self.certificates.entry(identity.name().to_owned()) {
                    Entry::Vacant(entry) => _ = entry.insert(identity),
                    Entry::Occupied(entry) => {
                        return Err(UserLineError::SecondCertificate(entry.key().clone()));
                    }
                }
            }
            StoredSecret::Claim => {
                let order = self.claims.len();
                match self.claims.entry(identity.name().to_owned()) {
                    Entry::Vacant(entry) => _ = entry.insert((order, identity)),
                    Entry::Occupied(entry) => {
                        return Err(UserLineError::SecondClaim(entry.key().clone()));
                    }
                }
            }
        }
        self.expiries.extend(expires);
        Ok(())
    }

    /// Number of credentials that have expired at `now`, and when the next one expires.
    pub(super) fn expiries(&self, now: Timestamp) -> (usize, Option<Timestamp>) {
        let expired = self.expiries.partition_point(|at| *at <= now);
        (expired, self.expiries.get(expired).copied())
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

    /// Returns the first line of a role that a signed token claims, and the role. A line whose time is over at `now`
    /// does not count. The line of [`ANY_ROLE`] counts if no other does.
    pub(super) fn with_claims<'c>(
        &self,
        roles: impl Iterator<Item = &'c str>,
        now: Timestamp,
    ) -> Option<&Identity> {
        let counts = |role: &str| {
            let line = self.claims.get(role)?;
            line.1.expires().is_none_or(|at| now < at).then_some(line)
        };
        let first = roles.filter(|role| *role != ANY_ROLE).filter_map(counts);
        first.min_by_key(|line| line.0).or_else(|| counts(ANY_ROLE)).map(|(_, line)| line)
    }

    /// The roles of a signed token that have a line.
    pub(super) fn known_claims(&self, mut roles: Vec<String>) -> Vec<String> {
        roles.retain(|role| self.claims.contains_key(role));
        roles
    }

    /// The identity of each credential.
    pub(super) fn identities(&self) -> impl Iterator<Item = &Identity> {
        let with_password = self.passwords.values().map(|user| &user.identity);
        let claims = self.claims.values().map(|(_, line)| line);
        with_password.chain(self.tokens.values()).chain(self.certificates.values()).chain(claims)
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{
        Permission,
        auth::{cheap_hash, hash_token, new_token},
    };

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
    fn a_check_finds_every_error() {
        let (hash, token) = (cheap_hash("p"), hash_token("t"));
        let text = format!(
            "\u{feff}a {hash} READER\nb\n\na {hash} READER\nc {token} BOSS\nd {token} GUEST"
        );
        let errors: Vec<String> = Users::errors(&text).iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 3, "{errors:?}");
        for (error, line) in errors.iter().zip(["line 2: ", "line 4: ", "line 5: "]) {
            assert!(error.starts_with(line), "{errors:?}");
        }
    }

    #[test]
    fn expiries_are_counted() {
        let line = |name: &str, at: &str| format!("{name} {} GUEST {at}\n", hash_token(name));
        let lines = [
            line("a", "expires=2027-03-02"),
            line("b", "expires=2027-03-01"),
            line("c", ""),
            line("d", "expires=2027-03-03"),
        ];
        let users = Users::parse(&lines.concat()).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let next = |text: &str| Some(at(text));
        let day = |n: u8| at(&format!("2027-03-0{n}T00:00:00Z"));
        assert_eq!(users.expiries(at("2027-02-28T00:00:00Z")), (0, next("2027-03-01T00:00:00Z")));
        assert_eq!(users.expiries(day(1)), (1, Some(day(2))));
        assert_eq!(users.expiries(day(9)), (3, None));
    }
}
