//! Parses the credentials of a client: an `Authorization` header, or the first line of a telnet
//! connection.
//!
//! Verification happens elsewhere. `Debug` hides secrets, so that no log shows them.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use thiserror::Error;

/// Maximum length of a user name, bytes.
const MAX_NAME_BYTES: usize = 128;
/// Maximum length of a password, bytes. The limit bounds the work of hashing a wrong password.
pub const MAX_SECRET_BYTES: usize = 1_024;
/// Maximum length of a token, bytes. A signed token carries the roles of its user.
const MAX_TOKEN_BYTES: usize = 7_168;
/// Maximum length of the header's value, bytes: a token, and the scheme with blanks.
const MAX_HEADER_BYTES: usize = MAX_TOKEN_BYTES + 64;

/// Padding is optional, since some clients omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A password or token.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Returns the bytes of the secret.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Credentials of a client, before verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token.
    Bearer(Secret),
    /// The name in a client certificate that the TLS handshake has verified.
    Certificate(String),
}

/// The credentials cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the credentials cannot be read")]
pub struct CredentialsError;

impl Credentials {
    fn basic(user: &[u8], password: &[u8]) -> Result<Self, CredentialsError> {
        let user = std::str::from_utf8(user).map_err(|_| CredentialsError)?;
        if !is_user_name(user) || password.is_empty() || password.len() > MAX_SECRET_BYTES {
            return Err(CredentialsError);
        }
        Ok(Self::Basic { user: user.to_owned(), password: Secret(password.to_vec()) })
    }

    fn bearer(token: &[u8]) -> Result<Self, CredentialsError> {
        // The characters of RFC 6750.
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES || !token.iter().all(is_part) {
            return Err(CredentialsError);
        }
        Ok(Self::Bearer(Secret(token.to_vec())))
    }
}

/// Returns true if a text is a valid user name: it must fit `name:password` and a line of words.
#[must_use]
pub fn is_user_name(text: &str) -> bool {
    is_certificate_name(text) && !text.contains(':')
}

/// Returns true if a text is a valid name of a client certificate, which may be a URI: it must fit a line of words.
#[must_use]
pub fn is_certificate_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Parses the value of an `Authorization` header.
///
/// # Errors
///
/// Fails if the value has no valid credentials.
pub fn parse_authorization(value: &[u8]) -> Result<Credentials, CredentialsError> {
    if value.len() > MAX_HEADER_BYTES {
        return Err(CredentialsError);
    }
    let at = value.iter().position(|b| *b == b' ').ok_or(CredentialsError)?;
    let (scheme, rest) = value.split_at_checked(at).ok_or(CredentialsError)?;
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Credentials::bearer(rest);
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return Err(CredentialsError);
    }
    let decoded = BASE64.decode(rest).map_err(|_| CredentialsError)?;
    let colon = decoded.iter().position(|b| *b == b':').ok_or(CredentialsError)?;
    let (user, password) = decoded.split_at_checked(colon).ok_or(CredentialsError)?;
    let password = password.get(1..).unwrap_or_default();
    // RFC 7617: neither part has control characters.
    if password.iter().any(u8::is_ascii_control) {
        return Err(CredentialsError);
    }
    Credentials::basic(user, password)
}

/// Parses a telnet line: `auth basic USER PASSWORD` or `auth bearer TOKEN`. The password is the rest of
/// the line.
///
/// # Errors
///
/// Fails for any other line.
pub fn parse_telnet_credentials(line: &[u8]) -> Result<Credentials, CredentialsError> {
    let rest = line.strip_prefix(b"auth ").ok_or(CredentialsError)?;
    if let Some(token) = rest.strip_prefix(b"bearer ") {
        return Credentials::bearer(token);
    }
    let rest = rest.strip_prefix(b"basic ").ok_or(CredentialsError)?;
    let at = rest.iter().position(|b| *b == b' ').ok_or(CredentialsError)?;
    let (user, password) = rest.split_at_checked(at).ok_or(CredentialsError)?;
    Credentials::basic(user, password.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn basic(user: &str, password: &str) -> Credentials {
        Credentials::basic(user.as_bytes(), password.as_bytes()).unwrap()
    }

    fn header(text: &str) -> Result<Credentials, CredentialsError> {
        parse_authorization(text.as_bytes())
    }

    fn encoded(text: &str) -> String {
        BASE64.encode(text)
    }

    #[test]
    fn the_header_has_a_name_and_a_password_or_a_token() {
        let pair = encoded("alice:a:b c");
        for scheme in ["Basic", "basic", "BASIC"] {
            assert_eq!(header(&format!("{scheme} {pair}")), Ok(basic("alice", "a:b c")));
        }
        assert_eq!(header(&format!("Basic   {pair}")), Ok(basic("alice", "a:b c")));
        let unpadded = pair.trim_end_matches('=');
        assert_eq!(header(&format!("Basic {unpadded}")), Ok(basic("alice", "a:b c")));
        let token = Credentials::Bearer(Secret(b"a.b-c_d~e+f/g==".to_vec()));
        assert_eq!(header("bearer a.b-c_d~e+f/g=="), Ok(token));
        let name = encoded("\u{fc}ser:p");
        assert_eq!(header(&format!("Basic {name}")), Ok(basic("\u{fc}ser", "p")));
    }

    #[test]
    fn other_headers_are_refused() {
        let long = "x".repeat(MAX_SECRET_BYTES + 1);
        let token = "x".repeat(MAX_TOKEN_BYTES);
        assert!(header(&format!("Bearer {token}")).is_ok());
        for pair in [
            "alice",
            ":password",
            "alice:",
            "al ice:p",
            "al\u{0}ice:p",
            "a:\u{7f}",
            "a:b\r\nc",
            &format!("{}:p", "n".repeat(MAX_NAME_BYTES + 1)),
            &format!("a:{long}"),
        ] {
            assert!(header(&format!("Basic {}", encoded(pair))).is_err(), "{pair:?}");
        }
        for value in [
            "",
            " ",
            "Basic",
            "Basic ",
            "Basic !!!",
            "Basic YQ",
            "Bearer",
            "Bearer ",
            "Bearer a b",
            "Bearer a,b",
            "Digest username=\"a\"",
            "Negotiate YQ==",
            &format!("Bearer {token}x"),
            &format!("Basic {}", "A".repeat(1 << 20)),
        ] {
            let shown: String = value.chars().take(40).collect();
            assert!(header(value).is_err(), "{shown:?}");
        }
        // A name that is not UTF-8.
        assert!(
            parse_authorization(format!("Basic {}", BASE64.encode(b"\xff\xfe:p")).as_bytes())
                .is_err()
        );
        assert!(parse_authorization(b"\xff\xfe \xff").is_err());
    }

    #[test]
    fn a_telnet_line_has_the_scheme_and_its_words() {
        assert_eq!(parse_telnet_credentials(b"auth basic alice p w "), Ok(basic("alice", "p w ")));
        let token = Credentials::Bearer(Secret(b"abc".to_vec()));
        assert_eq!(parse_telnet_credentials(b"auth bearer abc"), Ok(token));
        let long = [b"auth basic a ".as_slice(), &[b'x'; MAX_SECRET_BYTES + 1]].concat();
        for line in [
            &b""[..],
            b"auth",
            b"auth basic",
            b"auth basic alice",
            b"auth basic alice ",
            b"auth basic  p",
            b"AUTH basic a b",
            b"auth Basic a b",
            b"auth digest a b",
            b"put m 1 1 a=b",
            b"auth bearer a b",
            b"auth basic \xff p",
            &long,
        ] {
            assert!(parse_telnet_credentials(line).is_err(), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?} {:?}", basic("alice", "hunter2"), header("Bearer hunter2"));
        assert!(shown.contains("alice") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused() {
        // Every prefix and every changed byte of valid inputs.
        let header = format!("Basic {}", encoded("alice:secret"));
        let inputs = [header.into_bytes(), b"Bearer abc".to_vec(), b"auth basic a b".to_vec()];
        for input in inputs {
            for at in 0..=input.len() {
                let head = input.get(..at).unwrap();
                let _ = (parse_authorization(head), parse_telnet_credentials(head));
                for byte in u8::MIN..=u8::MAX {
                    let mut changed = input.clone();
                    changed.insert(at, byte);
                    let _ = (parse_authorization(&changed), parse_telnet_credentials(&changed));
                }
            }
        }
    }
}
