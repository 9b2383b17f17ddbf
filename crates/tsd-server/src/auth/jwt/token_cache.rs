//! Caches verified tokens, since a verification of a signature costs more than a small request.
//!
//! A cache belongs to one version of the key set and of the users. An entry counts until its token expires, which the
//! caller checks.

use std::{collections::HashMap, fmt};

use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::auth::Identity;

/// Maximum number of entries.
const CAPACITY: usize = 10_000;

/// SHA-256 of a token.
type TokenKey = [u8; 32];

/// Verified tokens.
#[derive(Default)]
pub(crate) struct TokenCache(Mutex<HashMap<TokenKey, Identity>>);

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCache").finish_non_exhaustive()
    }
}

impl TokenCache {
    pub(crate) fn key(token: &[u8]) -> TokenKey {
        Sha256::digest(token).into()
    }

    pub(crate) fn find(&self, key: &TokenKey) -> Option<Identity> {
        self.0.lock().get(key).cloned()
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Adds a verified token. A full cache drops the tokens that have expired at `now`, or else any token.
    pub(crate) fn insert(&self, key: TokenKey, identity: Identity, now: Timestamp) {
        let mut entries = self.0.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, identity| identity.expires().is_none_or(|at| now < at));
        }
        if entries.len() >= CAPACITY
            && let Some(any) = entries.keys().next().copied()
        {
            entries.remove(&any);
        }
        entries.insert(key, identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Permissions;

    #[test]
    fn a_full_cache_drops_expired_tokens_first() {
        let cache = TokenCache::default();
        let at = |secs| Timestamp::from_second(secs).ok();
        let add = |n: usize, expires| {
            let identity = Identity::new("a", Permissions::default(), [0; 32]).expiring(expires);
            cache.insert(TokenCache::key(&n.to_le_bytes()), identity, Timestamp::UNIX_EPOCH);
        };
        add(0, at(0));
        for n in 1..=CAPACITY {
            add(n, at(60));
        }
        assert_eq!(
            (cache.len(), cache.find(&TokenCache::key(&0_usize.to_le_bytes()))),
            (CAPACITY, None)
        );
        add(CAPACITY + 1, at(60));
        assert_eq!(cache.len(), CAPACITY);
        assert!(cache.find(&TokenCache::key(&(CAPACITY + 1).to_le_bytes())).is_some());
    }
}
