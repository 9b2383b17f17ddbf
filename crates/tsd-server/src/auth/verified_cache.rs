//! Remembers verified credentials, since a verification costs more than a small request: tens of milliseconds and
//! megabytes for a password, a signature for a token.
//!
//! A cache belongs to one version of the users and of the keys. Its keys are hashes with a secret of this process, so
//! it has no credentials. Each entry counts until a time of its own, on the clock of the caller.

use parking_lot::Mutex;
use std::{collections::HashMap, fmt};

use sha2::{Digest as _, Sha256};

/// Maximum number of entries.
const CAPACITY: usize = 10_000;

/// Key of an entry: a hash of the credentials.
pub(super) type VerifiedKey = [u8; 32];

/// Results of verifications, which count until a time `T`.
pub(super) struct VerifiedCache<V, T> {
    secret: [u8; 32],
    entries: Mutex<HashMap<VerifiedKey, (V, T)>>,
}

impl<V, T> fmt::Debug for VerifiedCache<V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedCache").finish_non_exhaustive()
    }
}

impl<V: Clone, T: PartialOrd> VerifiedCache<V, T> {
    /// An empty cache, whose keys depend on the secret.
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret, entries: Mutex::default() }
    }

    /// Returns the key of credentials with these parts.
    pub(super) fn key(&self, parts: &[&[u8]]) -> VerifiedKey {
        let mut hash = Sha256::new_with_prefix(self.secret);
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Returns the result of a verification that still counts at `now`.
    pub(super) fn find(&self, key: &VerifiedKey, now: &T) -> Option<V> {
        let entries = self.entries.lock();
        let (value, until) = entries.get(key)?;
        (now < until).then(|| value.clone())
    }

    /// Adds a result that counts until a time. A full cache drops the entries that do not count any more at `now`, or
    /// else any entry, whose credentials are verified again.
    pub(super) fn insert(&self, key: VerifiedKey, value: V, until: T, now: &T) {
        let mut entries = self.entries.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, (_, until)| now < until);
        }
        if entries.len() >= CAPACITY
            && let Some(any) = entries.keys().next().copied()
        {
            entries.remove(&any);
        }
        entries.insert(key, (value, until));
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_until_its_time() {
        let cache = VerifiedCache::new([1; 32]);
        let key = cache.key(&[b"alice", b"secret"]);
        assert_eq!(cache.find(&key, &1), None);
        cache.insert(key, 'a', 10, &1);
        assert_eq!((cache.find(&key, &9), cache.find(&key, &10)), (Some('a'), None));
        for other in [[b"alice".as_slice(), b"Secret"], [b"alic", b"esecret"]] {
            assert_eq!(cache.find(&cache.key(&other), &1), None);
        }
        let other = VerifiedCache::<char, u8>::new([2; 32]);
        assert_ne!(other.key(&[b"alice", b"secret"]), key);
    }

    #[test]
    fn a_full_cache_drops_first_what_does_not_count_any_more() {
        let cache = VerifiedCache::new([1; 32]);
        let key = |n: usize| cache.key(&[&n.to_le_bytes()]);
        cache.insert(key(0), 0, 1, &0);
        for n in 1..=CAPACITY {
            cache.insert(key(n), n, 60, &2);
        }
        assert_eq!((cache.len(), cache.find(&key(0), &0)), (CAPACITY, None));
        assert_eq!(cache.find(&key(1), &2), Some(1));
        cache.insert(key(CAPACITY + 1), 0, 60, &2);
        assert_eq!(cache.len(), CAPACITY);
        assert_eq!(cache.find(&key(CAPACITY + 1), &2), Some(0));
    }
}
