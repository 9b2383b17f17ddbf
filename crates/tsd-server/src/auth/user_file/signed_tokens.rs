//! Authenticates the users of signed tokens.
//!
//! A verification needs no password hash, so it runs on the thread of its connection. Wrong signatures count as wrong
//! credentials of the peer, which bounds their cost. A refused token with a right signature is no guess, and other
//! clients may share the address of its sender: the refusal is remembered instead.

use std::net::IpAddr;

use jiff::SignedDuration;

use super::{UserFileAuthenticator, UsersVersion};
use crate::auth::{
    AuthError, Identity, TokenError, TokenOrigin, TokenRules,
    jwt::{self, KeySet},
};

/// How long the refusal of a token with a right signature is remembered.
const REFUSAL_REMEMBERED: SignedDuration = SignedDuration::from_mins(1);

impl UserFileAuthenticator {
    pub(super) fn by_signed_token(
        &self,
        peer: IpAddr,
        token: &[u8],
        current: &UsersVersion,
        (rules, keys): (&TokenRules, &KeySet),
    ) -> Result<Identity, AuthError> {
        let (now, cache) = (self.now(), &current.tokens);
        let key = cache.key(&[token]);
        if let Some(known) = cache.find(&key, &now) {
            match &known {
                Ok(_) => self.metrics.cached.increment(1),
                Err(error) => self.count_refused_token(error),
            }
            return known;
        }
        self.check_failures(peer)?;
        let result = self.verify_token(token, current, (rules, keys));
        let remembered = match &result {
            Ok(identity) => {
                self.metrics.verified.increment(1);
                identity.expires()
            }
            Err(error) => {
                self.count_refused_token(error);
                match error {
                    AuthError::Token(error) if error.is_unsigned() => {
                        self.failures.count(peer);
                        None
                    }
                    AuthError::Token(error) if error.is_too_early() => None,
                    _ => now.checked_add(REFUSAL_REMEMBERED).ok(),
                }
            }
        };
        if let Some(until) = remembered {
            cache.insert(key, result.clone(), until, &now);
        }
        result
    }

    fn verify_token(
        &self,
        token: &[u8],
        current: &UsersVersion,
        (rules, keys): (&TokenRules, &KeySet),
    ) -> Result<Identity, AuthError> {
        let verified = jwt::verify(token, keys, rules, self.clock.now_ms())?;
        let name = format!("{}{}", jwt::USER_PREFIX, verified.claims.user);
        let origin = TokenOrigin {
            key: verified.key,
            expires: verified.claims.expires,
            roles: current.users.known_claims(verified.claims.roles),
        };
        let identity = current.user_of_token(&name, origin, self.now());
        identity.ok_or_else(|| AuthError::NoRole { user: name, claim: rules.roles_claim.clone() })
    }

    /// Counts a refused token.
    fn count_refused_token(&self, error: &AuthError) {
        let metrics = &self.metrics;
        let is_expired = *error == AuthError::Token(TokenError::Expired);
        if is_expired { &metrics.expired } else { &metrics.invalid }.increment(1);
        let AuthError::Token(error) = error else { return metrics.token_role.increment(1) };
        let counter = match error {
            TokenError::Malformed | TokenError::Algorithm | TokenError::Critical => {
                &metrics.token_form
            }
            TokenError::UnknownKey => &metrics.token_key,
            TokenError::Signature => &metrics.token_signature,
            TokenError::Expired => &metrics.token_expired,
            TokenError::NotYetValid | TokenError::IssuedInFuture => &metrics.token_time,
            TokenError::Issuer => &metrics.token_issuer,
            TokenError::Audience => &metrics.token_audience,
            TokenError::Claims | TokenError::NoExpiry | TokenError::User => &metrics.token_claims,
        };
        counter.increment(1);
    }
}
