//! A public key of a key set.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::signed_token::{Algorithm, SignedToken};

/// Bits of the modulus of an RSA key.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
/// Maximum bytes of the exponent of an RSA key.
const MAX_EXPONENT_BYTES: usize = 4;

/// A public key with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    kid: Option<String>,
    /// The only algorithm of the key, if it has one.
    algorithm: Option<Algorithm>,
    public: PublicKey,
    /// Identifies the key, whatever its id is.
    pub(super) fingerprint: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PublicKey {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A field of a key is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyFieldError {
    pub(super) field: &'static str,
    pub(super) what: &'static str,
}

const fn error(field: &'static str, what: &'static str) -> KeyFieldError {
    KeyFieldError { field, what }
}

type Fields = Map<String, Value>;

impl Key {
    /// Reads a key; `None` for a key that signs no token: of another use, kind or algorithm.
    pub(super) fn parse(fields: &Fields) -> Result<Option<Self>, KeyFieldError> {
        let kind = text(fields, "kty")?.ok_or(error("kty", "is missing"))?;
        if text(fields, "use")?.is_some_and(|purpose| purpose != "sig") || !may_verify(fields)? {
            return Ok(None);
        }
        let kid = text(fields, "kid")?.map(str::to_owned);
        let algorithm = match text(fields, "alg")? {
            None => None,
            Some(name) => match Algorithm::from_name(name) {
                None => return Ok(None),
                algorithm => algorithm,
            },
        };
        let public = match (kind, text(fields, "crv")?) {
            ("RSA", _) => rsa(fields)?,
            ("EC", Some("P-256")) => PublicKey::P256(point(fields, 32)?),
            ("EC", Some("P-384")) => PublicKey::P384(point(fields, 48)?),
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519(coordinate(fields, "x", 32)?),
            ("EC" | "OKP", None) => return Err(error("crv", "is missing")),
            _ => return Ok(None),
        };
        if algorithm.is_some_and(|algorithm| !public.fits(algorithm)) {
            return Err(error("alg", "does not fit kty and crv"));
        }
        let fingerprint = public.fingerprint();
        Ok(Some(Self { kid, algorithm, public, fingerprint }))
    }

    /// Returns true if the key may have signed the token.
    pub(super) fn is_candidate(&self, token: &SignedToken<'_>) -> bool {
        let has_id = token.kid.is_none() || token.kid == self.kid;
        has_id
            && self.algorithm.is_none_or(|algorithm| algorithm == token.algorithm)
            && self.public.fits(token.algorithm)
    }

    /// Returns true if the signature of the token is by this key.
    pub(super) fn has_signed(&self, token: &SignedToken<'_>) -> bool {
        let (message, signature) = (token.message, &token.signature[..]);
        match (&self.public, token.algorithm) {
            (PublicKey::Rsa { n, e }, Algorithm::Rs256) => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
            (PublicKey::Rsa { n, e }, Algorithm::Ps256) => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PSS_2048_8192_SHA256,
                message,
                signature,
            ),
            (PublicKey::P256(key), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature)
            }
            (PublicKey::P384(key), Algorithm::Es384) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key).verify(message, signature)
            }
            (PublicKey::Ed25519(key), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            _ => return false,
        }
        .is_ok()
    }
}

impl PublicKey {
    const fn fits(&self, algorithm: Algorithm) -> bool {
        matches!(
            (self, algorithm),
            (Self::Rsa { .. }, Algorithm::Rs256 | Algorithm::Ps256)
                | (Self::P256(_), Algorithm::Es256)
                | (Self::P384(_), Algorithm::Es384)
                | (Self::Ed25519(_), Algorithm::EdDsa)
        )
    }

    fn fingerprint(&self) -> [u8; 32] {
        let (kind, first, second): (_, &[u8], &[u8]) = match self {
            Self::Rsa { n, e } => (b"rsa ", n, e),
            Self::P256(key) => (b"p256", key, &[]),
            Self::P384(key) => (b"p384", key, &[]),
            Self::Ed25519(key) => (b"ed25", key, &[]),
        };
        let hash = Sha256::new_with_prefix(kind).chain_update((first.len() as u64).to_le_bytes());
        hash.chain_update(first).chain_update(second).finalize().into()
    }
}

/// Returns a text; `None` if the field is missing.
fn text<'f>(fields: &'f Fields, field: &'static str) -> Result<Option<&'f str>, KeyFieldError> {
    match fields.get(field) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(error(field, "is not a text")),
    }
}

/// Returns false if `key_ops` excludes the verification of signatures.
fn may_verify(fields: &Fields) -> Result<bool, KeyFieldError> {
    match fields.get("key_ops") {
        None => Ok(true),
        Some(Value::Array(uses)) => Ok(uses.iter().any(|usage| usage == "verify")),
        Some(_) => Err(error("key_ops", "is not a list")),
    }
}

fn bytes(fields: &Fields, field: &'static str) -> Result<Vec<u8>, KeyFieldError> {
    let text = text(fields, field)?.ok_or(error(field, "is missing"))?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| error(field, "is not base64url without padding"))
}

fn rsa(fields: &Fields) -> Result<PublicKey, KeyFieldError> {
    let without_zeros = |bytes: Vec<u8>| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..).unwrap_or_default().to_vec()
    };
    let (n, e) = (without_zeros(bytes(fields, "n")?), without_zeros(bytes(fields, "e")?));
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        return Err(error("n", "does not have 2048 to 8192 bits"));
    }
    let is_odd = e.last().is_some_and(|last| last % 2 == 1);
    if !is_odd || e == [1] || e.len() > MAX_EXPONENT_BYTES {
        return Err(error("e", "is not an odd number from 3 to 4294967295"));
    }
    Ok(PublicKey::Rsa { n, e })
}

fn coordinate(
    fields: &Fields,
    field: &'static str,
    length: usize,
) -> Result<Vec<u8>, KeyFieldError> {
    let coordinate = bytes(fields, field)?;
    if coordinate.len() == length {
        Ok(coordinate)
    } else {
        Err(error(field, "has the wrong length"))
    }
}

/// Returns an uncompressed point of a curve.
fn point(fields: &Fields, length: usize) -> Result<Vec<u8>, KeyFieldError> {
    let (x, y) = (coordinate(fields, "x", length)?, coordinate(fields, "y", length)?);
    Ok([&[4], &x[..], &y[..]].concat())
}
