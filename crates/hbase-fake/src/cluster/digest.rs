//! The server's side of DIGEST-MD5 (RFC 2831), as HBase has it.

use std::collections::HashMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};

use crate::security::FakeTokens;

/// Java class of most failures.
const SASL_EXCEPTION: &str = "javax.security.sasl.SaslException";

/// Class and text of a failure.
pub(super) type DigestFailure = (&'static str, &'static str);

/// An authentication that the server has checked.
pub(super) struct Authenticated {
    /// Proof that the server knows the password, for the client.
    pub(super) proof: String,
    /// Chosen protection in the words of DIGEST-MD5.
    pub(super) protection: String,
    /// `None` without protection of messages.
    pub(super) layer: Option<ServerLayer>,
}

/// Protects the messages of a connection.
pub(super) struct ServerLayer {
    pub(super) wrap: HalfLayer,
    pub(super) unwrap: HalfLayer,
}

/// Protects the messages of one direction.
pub(super) struct HalfLayer {
    key: Vec<u8>,
    cipher: Option<Rc4>,
    number: u32,
}

/// Returns the server's challenge.
pub(super) fn challenge(tokens: &FakeTokens, nonce: &str) -> String {
    let FakeTokens { protections, ciphers, .. } = tokens;
    format!(
        "realm=\"default\",nonce=\"{nonce}\",qop=\"{protections}\",charset=utf-8,cipher=\"{ciphers}\",algorithm=md5-sess"
    )
}

/// Checks a client's response.
pub(super) fn check(
    tokens: &FakeTokens,
    nonce: &str,
    response: &[u8],
) -> Result<Authenticated, DigestFailure> {
    let response = std::str::from_utf8(response).unwrap();
    let fields: HashMap<_, _> = response.split(',').filter_map(|one| one.split_once('=')).collect();
    let field = |name: &str| fields.get(name).map_or("", |value| value.trim_matches('"'));
    let username = field("username");
    let known = tokens.tokens.iter().find(|(id, _)| BASE64_STANDARD.encode(id) == username);
    let Some((_, password)) = known else {
        let class = "org.apache.hadoop.security.token.SecretManager$InvalidToken";
        return Err((class, "Unknown master key for token"));
    };
    let expected = [
        ("realm", "default"),
        ("nonce", nonce),
        ("nc", "00000001"),
        ("digest-uri", "null/default"),
    ];
    if expected.iter().any(|(name, value)| field(name) != *value) {
        return Err((SASL_EXCEPTION, "DIGEST-MD5: digest response format violation."));
    }
    let password = BASE64_STANDARD.encode(password);
    let client_nonce = field("cnonce");
    let mut start = hash(format!("{username}:default:{password}").as_bytes());
    start.extend_from_slice(format!(":{nonce}:{client_nonce}").as_bytes());
    let session = hash(&start);
    let protection = field("qop");
    let suffix = if protection == "auth" { String::new() } else { format!(":{}", "0".repeat(32)) };
    let proof = |method: &str| {
        let uri = hex(&hash(format!("{method}:null/default{suffix}").as_bytes()));
        let session = hex(&session);
        hex(&hash(
            format!("{session}:{nonce}:00000001:{client_nonce}:{protection}:{uri}").as_bytes(),
        ))
    };
    if field("response") != proof("AUTHENTICATE") {
        let text = "DIGEST-MD5: digest response format violation. Mismatched response.";
        return Err((SASL_EXCEPTION, text));
    }
    let is_offered = |list: &str, name: &str| list.split(',').any(|one| one == name);
    assert!(is_offered(tokens.protections, protection), "{protection} was not offered");
    let confidential = protection == "auth-conf";
    if confidential {
        assert_eq!(field("cipher"), "rc4");
        assert!(is_offered(tokens.ciphers, "rc4"), "rc4 was not offered");
    }
    let half = |direction: &str| {
        let key = |text: String| hash(&[&session[..], text.as_bytes()].concat());
        let seal = key(format!("Digest H(A1) to {direction} sealing key magic constant"));
        HalfLayer {
            key: key(format!("Digest session key to {direction} signing key magic constant")),
            cipher: confidential.then(|| Rc4::new_from_slice(&seal).unwrap()),
            number: 0,
        }
    };
    let layer = (protection != "auth")
        .then(|| ServerLayer { wrap: half("server-to-client"), unwrap: half("client-to-server") });
    Ok(Authenticated { proof: proof(""), protection: protection.to_owned(), layer })
}

impl HalfLayer {
    /// Protects a message.
    pub(super) fn wrap(&mut self, content: &[u8]) -> Vec<u8> {
        let mut message = [content, &self.mac(content)].concat();
        if let Some(cipher) = &mut self.cipher {
            cipher.apply_keystream(&mut message);
        }
        message.extend_from_slice(&self.trailer());
        message
    }

    /// Checks a message and returns its content.
    pub(super) fn unwrap(&mut self, message: &[u8]) -> Vec<u8> {
        let mut content = message[..message.len() - 6].to_vec();
        if let Some(cipher) = &mut self.cipher {
            cipher.apply_keystream(&mut content);
        }
        let mac = content.split_off(content.len() - 10);
        assert_eq!(mac, self.mac(&content), "wrong checksum");
        assert_eq!(message[message.len() - 6..], self.trailer(), "wrong number");
        content
    }

    fn mac(&self, content: &[u8]) -> Vec<u8> {
        let mut mac = Hmac::<Md5>::new_from_slice(&self.key).unwrap();
        mac.update(&self.number.to_be_bytes());
        mac.update(content);
        mac.finalize().into_bytes()[..10].to_vec()
    }

    /// Returns the last bytes of a message, and counts it.
    fn trailer(&mut self) -> Vec<u8> {
        let number = self.number.to_be_bytes();
        self.number += 1;
        [&[0, 1][..], &number].concat()
    }
}

fn hash(bytes: &[u8]) -> Vec<u8> {
    Md5::digest(bytes).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes.try_into().unwrap()))
}
