#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
        RsaKeyPair,
    },
};
use serde_json::{Value, json};

use super::*;

/// A time at which the tokens of [`claims`] are valid.
const NOW_SECS: i64 = 1_800_000_000;

/// A key pair that signs tokens.
pub(crate) struct TestKey {
    kid: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair),
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl TestKey {
    /// The RSA key of the tests: a new one takes long.
    fn rsa(kid: &'static str) -> Self {
        Self {
            kid,
            pair: Pair::Rsa(RsaKeyPair::from_pkcs8(include_bytes!("tests/rsa.pk8")).unwrap()),
        }
    }

    fn ec(
        kid: &'static str,
        algorithm: &'static EcdsaSigningAlgorithm,
        name: &'static str,
    ) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self { kid, pair: Pair::Ec(pair, name) }
    }

    fn p256(kid: &'static str) -> Self {
        Self::ec(kid, &ECDSA_P256_SHA256_FIXED_SIGNING, "ES256")
    }

    fn p384(kid: &'static str) -> Self {
        Self::ec(kid, &ECDSA_P384_SHA384_FIXED_SIGNING, "ES384")
    }

    /// A new key. Its signatures are always the same.
    pub(crate) fn ed25519(kid: &'static str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { kid, pair: Pair::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap()) }
    }

    /// The public key as a member of a key set.
    pub(crate) fn public(&self) -> Value {
        let mut key = match &self.pair {
            Pair::Rsa(pair) => {
                let parts = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": encode(parts.n), "e": encode(parts.e)})
            }
            Pair::Ec(pair, name) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if *name == "ES256" { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Pair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key())})
            }
        };
        key["kid"] = self.kid.into();
        key["use"] = "sig".into();
        key
    }

    fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_, name) => name,
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    /// Signs claims under the header of this key.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "typ": "JWT", "kid": self.kid});
        self.sign_texts(&header.to_string(), &claims.to_string())
    }

    fn sign_texts(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.signature(message.as_bytes(), header.contains("PS256"));
        format!("{message}.{}", encode(signature))
    }

    fn signature(&self, message: &[u8], is_pss: bool) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let padding: &'static dyn ring::signature::RsaEncoding =
                    if is_pss { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ec(pair, _) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

/// The key set of these keys.
pub(crate) fn key_set(keys: &[&TestKey]) -> KeySet {
    let keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
    KeySet::parse(&json!({"keys": keys}).to_string()).unwrap()
}

/// Rules of the tests.
pub(crate) fn token_rules() -> TokenRules {
    TokenRules {
        issuer: "https://id.test".to_owned(),
        audience: "tsdb".to_owned(),
        user_claim: "sub".to_owned(),
        roles_claim: "realm_access.roles".to_owned(),
    }
}

/// Claims that fulfil the rules until `expires`, seconds since 1970.
pub(crate) fn claims_until(expires: i64, user: &str, roles: &[&str]) -> Value {
    json!({
        "iss": "https://id.test", "aud": "tsdb", "exp": expires, "sub": user,
        "realm_access": {"roles": roles},
    })
}

fn claims() -> Value {
    claims_until(NOW_SECS + 300, "alice", &["readers"])
}

fn result(token: &str, keys: &KeySet) -> Result<TokenClaims, TokenError> {
    verify(token.as_bytes(), keys, &token_rules(), NOW_SECS * 1_000).map(|verified| verified.claims)
}

fn error(token: &str, keys: &KeySet) -> Option<TokenError> {
    result(token, keys).err()
}

/// The result of claims with a right signature.
fn of_claims(change: impl FnOnce(&mut Value)) -> Result<TokenClaims, TokenError> {
    let (key, mut claims) = (TestKey::ed25519("a"), claims());
    change(&mut claims);
    result(&key.sign(&claims), &key_set(&[&key]))
}

#[test]
fn a_token_of_each_algorithm_is_verified_by_its_key_only() {
    let keys = [TestKey::rsa("a"), TestKey::p256("a"), TestKey::p384("a"), TestKey::ed25519("a")];
    let all = key_set(&keys.each_ref());
    assert_eq!(all.len(), 4);
    for key in &keys {
        let token = key.sign(&claims());
        let verified = result(&token, &all).unwrap();
        assert_eq!(
            (&verified.user[..], &verified.roles[..]),
            ("alice", &["readers".to_owned()][..])
        );
        assert_eq!(verified.expires.as_second(), NOW_SECS + 360);
    }
    let pss = keys[0].sign_texts(r#"{"alg":"PS256"}"#, &claims().to_string());
    assert!(result(&pss, &all).is_ok());
    for other in [TestKey::p256("a"), TestKey::p384("a"), TestKey::ed25519("a")] {
        assert_eq!(error(&other.sign(&claims()), &all), Some(TokenError::Signature));
    }
}

#[test]
fn a_changed_token_is_refused_wherever_it_is_changed() {
    let key = TestKey::ed25519("a");
    let (token, keys) = (key.sign(&claims()), key_set(&[&key]));
    for at in 0..token.len() {
        for byte in [b'A', b'b', b'.', b'='] {
            let mut changed = token.clone().into_bytes();
            if changed[at] == byte {
                continue;
            }
            changed[at] = byte;
            let changed = String::from_utf8(changed).unwrap();
            assert!(error(&changed, &keys).is_some_and(TokenError::is_unsigned), "{changed}");
        }
        assert!(error(&token[..at], &keys).is_some(), "{at}");
    }
    assert!(
        error(&format!("{token}A"), &keys).is_some()
            && error(&format!("{token}.A"), &keys).is_some()
    );
}

/// A verifier that takes the algorithm from the header alone would accept these.
#[test]
fn the_header_cannot_choose_a_weaker_algorithm() {
    let (rsa, ec) = (TestKey::rsa("a"), TestKey::p256("b"));
    let keys = key_set(&[&rsa, &ec]);
    let claims = claims().to_string();
    let (n, x) = (rsa.public()["n"].clone(), ec.public()["x"].clone());
    for secret in [n.as_str().unwrap(), x.as_str().unwrap(), "", &rsa.public().to_string()] {
        let message = format!("{}.{}", encode(r#"{"alg":"HS256"}"#), encode(&claims));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let token = format!("{message}.{}", encode(hmac::sign(&secret, message.as_bytes())));
        assert_eq!(error(&token, &keys), Some(TokenError::Algorithm));
    }
    for (header, expected) in [
        (r#"{"alg":"none"}"#, TokenError::Algorithm),
        (r#"{"alg":"None","kid":"a"}"#, TokenError::Algorithm),
        (r#"{"alg":"rs256","kid":"a"}"#, TokenError::Algorithm),
        (r#"{"alg":"RS512","kid":"a"}"#, TokenError::Algorithm),
        (r#"{"alg":"ES256","kid":"a"}"#, TokenError::UnknownKey),
        (r#"{"alg":"RS256","kid":"b"}"#, TokenError::UnknownKey),
        (r#"{"alg":"EdDSA"}"#, TokenError::UnknownKey),
        (r#"{"alg":"PS256","kid":"a","crit":["exp"],"exp":1}"#, TokenError::Critical),
        (r#"{"alg":"RS256","crit":[]}"#, TokenError::Critical),
        (r#"{"alg":"RS256","alg":"none"}"#, TokenError::Malformed),
        (r#"{"alg":["RS256"]}"#, TokenError::Malformed),
        (r#"{"alg":"RS256","kid":1}"#, TokenError::Malformed),
        (r#"{"kid":"a"}"#, TokenError::Malformed),
        ("[]", TokenError::Malformed),
    ] {
        assert_eq!(error(&rsa.sign_texts(header, &claims), &keys), Some(expected), "{header}");
        let unsigned = format!("{}.{}.", encode(header), encode(&claims));
        assert_eq!(error(&unsigned, &keys), Some(expected), "{header}");
    }
    let mut only_pss = rsa.public();
    only_pss["alg"] = "PS256".into();
    let only_pss = KeySet::parse(&json!({"keys": [only_pss]}).to_string()).unwrap();
    assert!(result(&rsa.sign_texts(r#"{"alg":"PS256"}"#, &claims), &only_pss).is_ok());
    let other = rsa.sign_texts(r#"{"alg":"RS256"}"#, &claims);
    assert_eq!(error(&other, &only_pss), Some(TokenError::UnknownKey));
}

#[test]
fn the_id_selects_the_key_and_without_it_a_few_are_tried() {
    let (first, second, third) = (TestKey::p256("a"), TestKey::p256("b"), TestKey::p256("a"));
    let keys = key_set(&[&first, &second, &third]);
    let claims = claims().to_string();
    let header = |kid: &str| format!(r#"{{"alg":"ES256","kid":"{kid}"}}"#);
    for key in [&first, &third] {
        assert!(
            result(&key.sign_texts(&header("a"), &claims), &keys).is_ok(),
            "of two with the id"
        );
    }
    let by_other = first.sign_texts(&header("b"), &claims);
    assert_eq!(error(&by_other, &keys), Some(TokenError::Signature));
    let unknown = first.sign_texts(&header("c"), &claims);
    assert_eq!(error(&unknown, &keys), Some(TokenError::UnknownKey));
    for key in [&first, &second, &third] {
        assert!(result(&key.sign_texts(r#"{"alg":"ES256"}"#, &claims), &keys).is_ok());
    }
    let last = TestKey::ed25519("last");
    let mut many: Vec<_> = (0..8).map(|_| TestKey::ed25519("many")).collect();
    many.push(last);
    let keys = key_set(&many.iter().collect::<Vec<_>>());
    let without_id = many[8].sign_texts(r#"{"alg":"EdDSA"}"#, &claims);
    assert_eq!(
        error(&without_id, &keys),
        Some(TokenError::Signature),
        "the ninth key is not tried"
    );
    assert!(result(&many[8].sign_texts(r#"{"alg":"EdDSA","kid":"last"}"#, &claims), &keys).is_ok());
}

#[test]
fn times_count_with_a_minute_of_difference() {
    for (name, secs, expected) in [
        ("exp", -59, None),
        ("exp", -60, Some(TokenError::Expired)),
        ("nbf", 60, None),
        ("nbf", 61, Some(TokenError::NotYetValid)),
        ("iat", 60, None),
        ("iat", 61, Some(TokenError::IssuedInFuture)),
    ] {
        let outcome = of_claims(|claims| claims[name] = (NOW_SECS + secs).into());
        assert_eq!(outcome.err(), expected, "{name} {secs}");
    }
    assert!(of_claims(|claims| claims["exp"] = 1.9e300.into()).is_ok());
    assert!(of_claims(|claims| claims["exp"] = (NOW_SECS as f64 + 0.5).into()).is_ok());
    for value in [json!("1900000000"), json!(-1), json!(null), json!([])] {
        let outcome = of_claims(|claims| claims["exp"] = value.clone());
        assert_eq!(outcome.err(), Some(TokenError::NoExpiry), "{value}");
        let outcome = of_claims(|claims| claims["nbf"] = value.clone());
        assert_eq!(outcome.err(), Some(TokenError::Claims), "{value}");
    }
    let without = of_claims(|claims| _ = claims.as_object_mut().unwrap().remove("exp"));
    assert_eq!(without.err(), Some(TokenError::NoExpiry));
}

#[test]
fn issuer_audience_and_user_must_fit() {
    for (name, value, expected) in [
        ("iss", json!("https://id.test/"), Some(TokenError::Issuer)),
        ("iss", json!(["https://id.test"]), Some(TokenError::Issuer)),
        ("iss", json!(null), Some(TokenError::Issuer)),
        ("aud", json!("TSDB"), Some(TokenError::Audience)),
        ("aud", json!(["account", "tsdb"]), None),
        ("aud", json!(["account", ["tsdb"]]), Some(TokenError::Audience)),
        ("aud", json!([]), Some(TokenError::Audience)),
        ("sub", json!("J\u{f6}rg.\u{5f20}"), None),
        ("sub", json!("a:b/c@d"), None),
        ("sub", json!("a b"), Some(TokenError::User)),
        ("sub", json!("a\u{2028}b"), Some(TokenError::User)),
        ("sub", json!("a\nb"), Some(TokenError::User)),
        ("sub", json!(""), Some(TokenError::User)),
        ("sub", json!("x".repeat(129)), Some(TokenError::User)),
        ("sub", json!(1), Some(TokenError::User)),
    ] {
        let outcome = of_claims(|claims| claims[name] = value.clone());
        assert_eq!(outcome.err(), expected, "{name} {value}");
    }
    let key = TestKey::ed25519("a");
    let twice = claims().to_string().replacen('{', r#"{"sub":"root","#, 1);
    let header = r#"{"alg":"EdDSA"}"#;
    let outcome = error(&key.sign_texts(header, &twice), &key_set(&[&key]));
    assert_eq!(outcome, Some(TokenError::Claims), "a claim occurs twice");
    assert_eq!(error(&key.sign_texts(header, "[]"), &key_set(&[&key])), Some(TokenError::Claims));
}

#[test]
fn roles_are_a_list_or_words_at_a_path() {
    let key = TestKey::ed25519("a");
    let roles = |claim: &str, claims: &Value| {
        let rules = TokenRules { roles_claim: claim.to_owned(), ..token_rules() };
        let token = key.sign(claims);
        verify(token.as_bytes(), &key_set(&[&key]), &rules, NOW_SECS * 1_000).unwrap().claims.roles
    };
    let mut claims = claims();
    assert_eq!(roles("realm_access.roles", &claims), ["readers"]);
    claims["scope"] = " read  write".into();
    claims["https://a.test/roles"] = json!(["a b", 1, null, "c"]);
    claims["a"] = json!({"b": {"c": "deep"}});
    assert_eq!(roles("scope", &claims), ["read", "write"]);
    assert_eq!(roles("https://a.test/roles", &claims), ["a b", "c"]);
    assert_eq!(roles("a.b.c", &claims), ["deep"]);
    for claim in ["a.b", "a.b.c.d", "a..c", "", ".", "realm_access", "iss.x", "exp"] {
        assert!(roles(claim, &claims).is_empty(), "{claim:?}");
    }
}

#[test]
fn an_error_of_a_key_set_names_key_and_field() {
    let good = TestKey::rsa("a").public();
    let with = |field: &str, value: Value| {
        let mut key = good.clone();
        key[field] = value;
        json!({"keys": [good, key]}).to_string()
    };
    let ec = |x: &str| json!({"keys": [{"kty": "EC", "crv": "P-256", "x": x, "y": x}]}).to_string();
    let short = encode([0x80_u8; 255]);
    for (text, expected) in [
        ("{".to_owned(), "the key set is not a JSON object: EOF"),
        (
            r#"{"keys":[],"keys":[]}"#.to_owned(),
            "the key set is not a JSON object: \"keys\" occurs twice",
        ),
        ("{}".to_owned(), "the key set has no list keys"),
        (r#"{"keys":{}}"#.to_owned(), "the key set has no list keys"),
        (r#"{"keys":[1]}"#.to_owned(), "keys[0] is not an object"),
        (r#"{"keys":[]}"#.to_owned(), "none of the 0 keys verifies tokens"),
        (
            r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#.to_owned(),
            "none of the 1 keys verifies tokens",
        ),
        (
            json!({"keys": vec![json!({}); 65]}).to_string(),
            "the key set has 65 keys; the limit is 64",
        ),
        (r#"{"keys":[{}]}"#.to_owned(), "keys[0].kty is missing"),
        (with("n", json!(1)), "keys[1].n is not a text"),
        (with("n", json!(short)), "keys[1].n does not have 2048 to 8192 bits"),
        (with("n", json!("AQ==")), "keys[1].n is not base64url without padding"),
        (with("e", json!("AQ")), "keys[1].e is not an odd number from 3"),
        (with("e", json!("")), "keys[1].e is not an odd number from 3"),
        (with("alg", json!("ES256")), "keys[1].alg does not fit kty and crv"),
        (with("key_ops", json!("verify")), "keys[1].key_ops is not a list"),
        (with("kid", json!(7)), "keys[1].kid is not a text"),
        (ec(&encode([1_u8; 31])), "keys[0].x has the wrong length"),
        (r#"{"keys":[{"kty":"EC"}]}"#.to_owned(), "keys[0].crv is missing"),
    ] {
        let error = KeySet::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    for (field, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("alg", json!("RSA-OAEP")),
        ("kty", json!("oct")),
        ("kty", json!("AKP")),
    ] {
        let text = with(field, value);
        assert_eq!(KeySet::parse(&text).unwrap().len(), 1, "{text}: the other key counts");
    }
}
