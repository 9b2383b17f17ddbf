//! Directives in the server's tokens.

use super::damaged::damaged;
use crate::{security::Protection, transport::TransportError};

/// A server's challenge.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) realm: String,
    pub(super) nonce: String,
    /// Offered protections, as the sum of their layers.
    pub(super) layers: u8,
    /// True if privacy with RC4 and a key of 128 bits is offered.
    pub(super) has_rc4: bool,
}

impl Challenge {
    pub(super) fn parse(token: &[u8]) -> Result<Self, TransportError> {
        let directives =
            Directives::parse(token).ok_or_else(|| damaged("a malformed challenge"))?;
        let nonce = directives.get("nonce").filter(|nonce| !nonce.is_empty());
        let nonce = nonce.ok_or_else(|| damaged("a challenge without a nonce"))?.to_owned();
        if directives.get("algorithm") != Some("md5-sess") {
            return Err(damaged("a challenge of another algorithm than md5-sess"));
        }
        Ok(Self {
            // A client may choose any of several realms. HBase's servers have one.
            realm: directives.get("realm").unwrap_or_default().to_owned(),
            nonce,
            layers: words(directives.get("qop").unwrap_or("auth")).map(layer).fold(0, |a, b| a | b),
            has_rc4: words(directives.get("cipher").unwrap_or_default()).any(|one| one == "rc4"),
        })
    }
}

/// Returns the server's proof that it knows the password.
pub(super) fn parse_proof(token: &[u8]) -> Result<String, TransportError> {
    let directives = Directives::parse(token);
    let proof = directives.as_ref().and_then(|directives| directives.get("rspauth"));
    proof.map(str::to_owned).ok_or_else(|| damaged("no proof of the password"))
}

/// Escapes a value for use between quotes.
pub(super) fn quote(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}

fn layer(quality: &str) -> u8 {
    match quality {
        "auth" => Protection::Authentication.layer(),
        "auth-int" => Protection::Integrity.layer(),
        "auth-conf" => Protection::Privacy.layer(),
        _ => 0,
    }
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// A list `name=value,name="value"`.
struct Directives(Vec<(String, String)>);

impl Directives {
    fn parse(token: &[u8]) -> Option<Self> {
        let mut rest = std::str::from_utf8(token).ok()?.trim_start_matches([',', ' ']);
        let mut directives = Vec::new();
        while !rest.is_empty() {
            let (name, value) = rest.split_once('=')?;
            let (value, after) = if let Some(quoted) = value.strip_prefix('"') {
                unquote(quoted)?
            } else {
                let (value, after) = value.split_once(',').unwrap_or((value, ""));
                (value.trim_end().to_owned(), after)
            };
            directives.push((name.trim().to_owned(), value));
            rest = after.trim_start_matches([',', ' ']);
        }
        Some(Self(directives))
    }

    /// Returns the value of the first directive of this name.
    fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }
}

/// Returns the text up to the closing quote, without escapes, and the text after it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(chars.next()?),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_have_quotes_and_escapes() {
        let token = br#" realm="a\"b\\,c=d", NONCE=n ,qop="auth, auth-conf,x",cipher=rc4,algorithm=md5-sess,"#;
        let challenge = Challenge::parse(token).unwrap();
        assert_eq!(challenge.realm, r#"a"b\,c=d"#);
        assert_eq!(quote(&challenge.realm), r#"a\"b\\,c=d"#);
        assert_eq!((&challenge.nonce[..], challenge.layers), ("n", 5));
        assert!(challenge.has_rc4);
    }

    #[test]
    fn a_challenge_without_a_list_is_for_authentication_only() {
        let challenge = Challenge::parse(b"nonce=n,algorithm=md5-sess").unwrap();
        let expected = Challenge {
            realm: String::new(),
            nonce: "n".to_owned(),
            layers: Protection::Authentication.layer(),
            has_rc4: false,
        };
        assert_eq!(challenge, expected);
    }

    #[test]
    fn malformed_challenges_are_rejected() {
        for bad in [
            &b""[..],
            b"nonce=n",
            b"nonce=,algorithm=md5-sess",
            b"algorithm=md5-sess",
            b"nonce=n,algorithm=md5",
            b"nonce=\"n,algorithm=md5-sess",
            b"nonce=\"n\\",
            b"nonce=n,algorithm=md5-sess,x",
            b"\xff=",
        ] {
            assert!(Challenge::parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        assert!(parse_proof(b"rspauth").is_err());
        assert!(parse_proof(b"nonce=n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(token: Vec<u8>) {
            let _ = Challenge::parse(&token);
            let _ = parse_proof(&token);
        }

        #[test]
        fn quotes_are_undone(value: String) {
            let quoted = quote(&value) + "\"rest";
            prop_assert_eq!(unquote(&quoted), Some((value, "rest")));
        }
    }
}
