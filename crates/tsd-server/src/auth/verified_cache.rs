//! Caches recently verified passwords.
//!
//! Most clients send a password with each request, and a verification takes tens of milliseconds and
//! megabytes. The cache keeps only correct passwords, as hashes under a key of this process. So it has
//! at most one entry per user and never answers for a wrong password.

use parking_lot::Mutex;
use std::{collections::HashMap, fmt, time::Duration};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::Identity;

/// How long a verification is valid.
const TIME_TO_LIVE: Duration = Duration::from_mins(5);
/// Maximum number of entries.
const CAPACITY: usize = 10_000;

/// Key of an entry: a hash of name and password.
pub(super) type VerifiedKey = [u8; 32];

/// The cache of one version of the file of users.
pub(super) struct VerifiedCache {
    secret: [u8; 32],
    entries: Mutex<HashMap<VerifiedKey, (Identity, Instant)>>,
}

impl fmt::Debug for VerifiedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedCache").finish_non_exhaustive()
    }
}

impl VerifiedCache {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret, entries: Mutex::default() }
    }

    pub(super) fn key(&self, user: &str, password: &[u8]) -> VerifiedKey {
        let mut hash = Sha256::new_with_prefix(self.secret);
        hash.update((user.len() as u64).to_le_bytes());
        hash.update(user);
        hash.update(password);
        hash.finalize().into()
    }

    pub(super) fn find(&self, key: &VerifiedKey) -> Option<Identity> {
        let entries = self.entries.lock();
        let (identity, until) = entries.get(key)?;
        (Instant::now() < *until).then(|| identity.clone())
    }

    pub(super) fn insert(&self, key: VerifiedKey, identity: Identity) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, (_, until)| now < *until);
        }
        if entries.len() >= CAPACITY
            && let Some(any) = entries.keys().next().copied()
        {
            // The next request of the evicted user is verified again.
            entries.remove(&any);
        }
        entries.insert(key, (identity, now + TIME_TO_LIVE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Permissions;

    fn identity(n: usize) -> Identity {
        Identity::new(&n.to_string(), Permissions::default(), [0; 32])
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_is_found_until_it_expires() {
        let cache = VerifiedCache::new([1; 32]);
        let key = cache.key("alice", b"secret");
        assert_eq!(cache.find(&key), None);
        cache.insert(key, identity(0));
        assert_eq!(cache.find(&key), Some(identity(0)));
        for other in [cache.key("alice", b"Secret"), cache.key("alic", b"esecret")] {
            assert_eq!(cache.find(&other), None);
        }
        assert_ne!(VerifiedCache::new([2; 32]).key("alice", b"secret"), key);
        tokio::time::advance(TIME_TO_LIVE).await;
        assert_eq!(cache.find(&key), None);
    }

    #[tokio::test]
    async fn a_full_cache_drops_an_entry() {
        let cache = VerifiedCache::new([1; 32]);
        for n in 0..=CAPACITY {
            cache.insert(cache.key(&n.to_string(), b"p"), identity(n));
        }
        assert_eq!(cache.entries.lock().len(), CAPACITY);
        let last = cache.key(&CAPACITY.to_string(), b"p");
        assert!(cache.find(&last).is_some());
    }
}
