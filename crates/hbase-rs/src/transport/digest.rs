//! DIGEST-MD5 (RFC 2831), with which HBase authenticates delegation tokens, and ZooKeeper users with passwords.
//!
//! ```text
//! server  realm="default",nonce="…",qop="auth,auth-int,auth-conf",charset=utf-8,cipher="3des,rc4,…",algorithm=md5-sess
//! client  charset=utf-8,username="…",realm="…",nonce="…",nc=00000001,cnonce="…",digest-uri="null/default",…
//! server  rspauth=…
//! ```
//!
//! User and password of a token are the base64 of its identifier and password. The server proves with `rspauth` that it
//! knows the password, too. RC4 is the only cipher here: every server offers it, and the alternatives of its list are
//! DES and 3DES. All of them are outdated. Privacy over networks that are not trusted needs TLS.

mod challenge;
mod damaged;
mod layer;
#[cfg(test)]
mod tests;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use md5::{Digest, Md5};

use self::{
    challenge::Challenge,
    damaged::damaged,
    layer::{Keys, MessageLayer},
};
use super::{
    TransportError, TransportErrorKind,
    sasl::{SaslMechanism, SaslStep, choose_protection},
    token_file::DelegationToken,
};
use crate::security::Protection;

/// The service that HBase's servers expect, with a host of `default`.
const DIGEST_URI: &str = "null/default";

/// Number of this use of the nonce. A nonce is used once.
const NONCE_COUNT: &str = "00000001";

/// Maximum message that the client announces in bytes; no server enforces it.
const MAX_BUFFER: usize = 64 << 10;

/// The client's side of an authentication with a token.
pub(crate) struct DigestMechanism {
    digest_uri: &'static str,
    username: String,
    password: String,
    protections: Vec<Protection>,
    client_nonce: String,
    progress: Progress,
    layer: Option<MessageLayer>,
}

enum Progress {
    /// Waits for the server's challenge.
    Challenge,
    /// Waits for the server's proof.
    Proof {
        expected: String,
        protection: Protection,
    },
    Ended,
}

impl DigestMechanism {
    /// Authenticates with a token. `protections` are accepted in this order of preference.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub(crate) fn new(
        token: &DelegationToken,
        protections: &[Protection],
    ) -> Result<Self, TransportError> {
        Ok(Self::with_client_nonce(token, protections, random_nonce()?))
    }

    /// Authenticates with user and password at the service of a URI, without further protection.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    #[cfg(feature = "zookeeper")]
    pub(crate) fn with_password(
        user: &str,
        password: &str,
        digest_uri: &'static str,
    ) -> Result<Self, TransportError> {
        Ok(Self {
            digest_uri,
            username: user.to_owned(),
            password: password.to_owned(),
            protections: vec![Protection::Authentication],
            client_nonce: random_nonce()?,
            progress: Progress::Challenge,
            layer: None,
        })
    }

    fn with_client_nonce(
        token: &DelegationToken,
        protections: &[Protection],
        client_nonce: String,
    ) -> Self {
        Self {
            digest_uri: DIGEST_URI,
            username: BASE64_STANDARD.encode(&token.identifier),
            password: BASE64_STANDARD.encode(&token.password),
            protections: protections.to_vec(),
            client_nonce,
            progress: Progress::Challenge,
            layer: None,
        }
    }

    /// Answers a challenge, and prepares what follows it.
    fn respond(&mut self, challenge: &Challenge) -> Result<Vec<u8>, TransportError> {
        let protection = choose_protection(challenge.layers, &self.protections)?;
        if protection == Protection::Privacy && !challenge.has_rc4 {
            return Err(TransportError::new(
                TransportErrorKind::Permanent,
                "the server does not offer the cipher rc4 for privacy with a token; use TLS",
            ));
        }
        let Challenge { realm, nonce, .. } = challenge;
        let Self { digest_uri, username, password, client_nonce, .. } = &*self;
        let user = Md5::digest(format!("{username}:{realm}:{password}"));
        let session_key: [u8; 16] = Md5::new()
            .chain_update(user)
            .chain_update(format!(":{nonce}:{client_nonce}"))
            .finalize()
            .into();
        let quality = quality(protection);
        let proof = |method: &str| {
            let suffix = match protection {
                Protection::Authentication => "",
                // Stands for the hash of a body, which SASL does not have.
                _ => ":00000000000000000000000000000000",
            };
            let request = hex(Md5::digest(format!("{method}:{digest_uri}{suffix}")).into());
            let key = hex(session_key);
            hex(Md5::digest(format!(
                "{key}:{nonce}:{NONCE_COUNT}:{client_nonce}:{quality}:{request}"
            ))
            .into())
        };
        let mut response = format!(
            "charset=utf-8,username=\"{}\",realm=\"{}\",nonce=\"{}\",nc={NONCE_COUNT},\
             cnonce=\"{client_nonce}\",digest-uri=\"{digest_uri}\",maxbuf={MAX_BUFFER},\
             response={},qop={quality}",
            challenge::quote(username),
            challenge::quote(realm),
            challenge::quote(nonce),
            proof("AUTHENTICATE"),
        );
        if protection == Protection::Privacy {
            response.push_str(",cipher=\"rc4\"");
        }
        let expected = proof("");
        if protection != Protection::Authentication {
            let confidential = protection == Protection::Privacy;
            self.layer = Some(MessageLayer::new(&Keys::of_client(&session_key), confidential)?);
        }
        self.progress = Progress::Proof { expected, protection };
        Ok(response.into_bytes())
    }

    fn layer(&mut self, confidential: bool) -> Result<&mut MessageLayer, TransportError> {
        let layer = self.layer.as_mut().filter(|layer| layer.is_confidential() == confidential);
        layer.ok_or_else(|| damaged("a message without the negotiated protection"))
    }
}

impl SaslMechanism for DigestMechanism {
    fn step(&mut self, token: &[u8]) -> Result<SaslStep, TransportError> {
        match std::mem::replace(&mut self.progress, Progress::Ended) {
            Progress::Challenge => {
                let challenge = Challenge::parse(token)?;
                self.respond(&challenge).map(SaslStep::Continue)
            }
            Progress::Proof { expected, protection } => {
                let proof = challenge::parse_proof(token)?;
                if proof != expected {
                    return Err(TransportError::new(
                        TransportErrorKind::Permanent,
                        format!(
                            "the server does not know the {}; it is of another cluster, or the server is not the \
                             one it claims to be",
                            if self.digest_uri == DIGEST_URI {
                                "token's password"
                            } else {
                                "user's password"
                            }
                        ),
                    ));
                }
                Ok(SaslStep::Complete(protection))
            }
            Progress::Ended => Err(damaged("a token after the end of the authentication")),
        }
    }

    fn wrap(&mut self, plain: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError> {
        Ok(self.layer(confidential)?.wrap(plain))
    }

    fn unwrap(&mut self, wrapped: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError> {
        self.layer(confidential)?.unwrap(wrapped)
    }
}

fn random_nonce() -> Result<String, TransportError> {
    let mut random = [0; 30];
    getrandom::fill(&mut random).map_err(|error| {
        let message = format!("no random numbers for the authentication: {error}");
        TransportError::new(TransportErrorKind::Transient, message)
    })?;
    Ok(BASE64_STANDARD.encode(random))
}

/// Returns the name of a protection in DIGEST-MD5.
const fn quality(protection: Protection) -> &'static str {
    match protection {
        Protection::Authentication => "auth",
        Protection::Integrity => "auth-int",
        Protection::Privacy => "auth-conf",
    }
}

/// Encodes a hash in hexadecimal digits.
fn hex(hash: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(hash))
}
