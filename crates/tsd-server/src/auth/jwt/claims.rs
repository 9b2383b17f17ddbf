//! Checks the claims of a token with a right signature.

use jiff::Timestamp;
use serde_json::{Map, Value};
use tsd_protocol::is_certificate_name;

use super::token_error::TokenError;

/// How far clocks may differ, seconds.
const LEEWAY_SECS: f64 = 60.0;

/// What a token must claim, and which claims name its user and its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// The claim `iss`.
    pub issuer: String,
    /// A value of the claim `aud`.
    pub audience: String,
    /// Claim with the name of the user. Dots lead into objects.
    pub user_claim: String,
    /// Claim with the roles of the user, a text or a list. Dots lead into objects.
    pub roles_claim: String,
}

/// The claims of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenClaims {
    pub(crate) user: String,
    pub(crate) roles: Vec<String>,
    /// When the token is refused: its time of expiry, and the difference that clocks may have.
    pub(crate) expires: Timestamp,
}

type Claims = Map<String, Value>;

/// Reads and checks the claims at `now_ms`.
pub(super) fn claims_of(
    claims: &Claims,
    rules: &TokenRules,
    now_ms: i64,
) -> Result<TokenClaims, TokenError> {
    if claims.get("iss").and_then(Value::as_str) != Some(&rules.issuer[..]) {
        return Err(TokenError::Issuer);
    }
    if !is_for(claims.get("aud"), &rules.audience) {
        return Err(TokenError::Audience);
    }
    let now = now_ms as f64 / 1_000.0;
    let expiry = time(claims, "exp")?.ok_or(TokenError::NoExpiry)? + LEEWAY_SECS;
    if now >= expiry {
        return Err(TokenError::Expired);
    }
    if time(claims, "nbf")?.is_some_and(|begin| now + LEEWAY_SECS < begin) {
        return Err(TokenError::NotYetValid);
    }
    if time(claims, "iat")?.is_some_and(|issued| now + LEEWAY_SECS < issued) {
        return Err(TokenError::IssuedInFuture);
    }
    let user = claim(claims, &rules.user_claim).and_then(Value::as_str);
    let user = user.filter(|user| is_certificate_name(user)).ok_or(TokenError::User)?;
    // A conversion from a large number gives the last millisecond of `i64`, which is after every timestamp.
    let expires = Timestamp::from_millisecond((expiry * 1_000.0) as i64).unwrap_or(Timestamp::MAX);
    let roles = roles(claim(claims, &rules.roles_claim));
    Ok(TokenClaims { user: user.to_owned(), roles, expires })
}

/// Returns true if the claim `aud` is or contains the audience.
fn is_for(claim: Option<&Value>, audience: &str) -> bool {
    match claim {
        Some(Value::String(value)) => value == audience,
        Some(Value::Array(values)) => values.iter().any(|value| value == audience),
        _ => false,
    }
}

/// Returns a time in seconds since 1970; `None` if the token does not have the claim.
fn time(claims: &Claims, name: &str) -> Result<Option<f64>, TokenError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let error = if name == "exp" { TokenError::NoExpiry } else { TokenError::Claims };
    value.as_f64().filter(|secs| *secs >= 0.0).map(Some).ok_or(error)
}

/// Finds a claim by its whole name, or by a path of names with dots between them.
fn claim<'c>(claims: &'c Claims, name: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, mut rest) = (name.split('.').next()?, name.split('.').skip(1));
    rest.try_fold(claims.get(first)?, |value, name| value.as_object()?.get(name))
}

/// The roles of a claim: the texts of a list, or the words of a text, as in `scope`.
fn roles(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(words)) => words.split_whitespace().map(str::to_owned).collect(),
        Some(Value::Array(values)) => {
            values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}
