//! Authenticates the users of signed tokens.
//!
//! A verification needs no password hash, so it runs on the thread of its connection. Wrong signatures count as wrong
//! credentials of the peer, which bounds their cost.

use std::net::IpAddr;

use super::{UserFileAuthenticator, UsersVersion, invalid};
use crate::auth::{
    AuthError, Identity, TokenError, TokenOrigin, TokenRules,
    jwt::{self, KeySet, TokenCache},
};

impl UserFileAuthenticator {
    pub(super) fn by_signed_token(
        &self,
        peer: IpAddr,
        token: &[u8],
        current: &UsersVersion,
        (rules, keys): (&TokenRules, &KeySet),
    ) -> Result<Identity, AuthError> {
        let key = TokenCache::key(token);
        if let Some(identity) = current.tokens.find(&key) {
            if identity.expires().is_none_or(|at| self.now() < at) {
                self.metrics.cached.increment(1);
            }
            return Ok(identity);
        }
        self.check_failures(peer)?;
        let verified = match jwt::verify(token, keys, rules, self.clock.now_ms()) {
            Ok(verified) => verified,
            Err(error) => return Err(self.refused_token(peer, error)),
        };
        let name = format!("{}{}", jwt::USER_PREFIX, verified.claims.user);
        let origin = TokenOrigin {
            key: verified.key,
            expires: verified.claims.expires,
            roles: current.users.known_claims(verified.claims.roles),
        };
        let Some(identity) = current.user_of_token(&name, origin, self.now()) else {
            self.metrics.invalid.increment(1);
            self.metrics.token_role.increment(1);
            return Err(AuthError::NoRole { user: name, claim: rules.roles_claim.clone() });
        };
        self.metrics.verified.increment(1);
        current.tokens.insert(key, identity.clone(), self.now());
        Ok(identity)
    }

    /// Counts a refused token. A token without a right signature may be a guess.
    fn refused_token(&self, peer: IpAddr, error: TokenError) -> AuthError {
        let metrics = &self.metrics;
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
        if error.is_unsigned() {
            invalid(metrics, &self.failures, peer);
        } else if error == TokenError::Expired {
            metrics.expired.increment(1);
        } else {
            metrics.invalid.increment(1);
        }
        error.into()
    }
}
