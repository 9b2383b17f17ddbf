//! Name to UID and back, for each kind, read by every thread without locks.
//!
//! Filled by look-ups, assignments and suggestions, never expired. Above its bound a map starts
//! afresh: the table is the truth, so that costs look-ups and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use papaya::HashMap;
use tsd_model::{Uid, UidKind};

use super::PerKind;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The caches of all kinds.
#[derive(Debug)]
pub(crate) struct UidCaches {
    kinds: PerKind<KindCache>,
    epoch: AtomicU64,
}

/// The caches of one kind.
#[derive(Debug)]
struct KindCache {
    uids: Map<Box<[u8]>, Uid>,
    names: Map<Uid, Box<[u8]>>,
    max_entries: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl UidCaches {
    /// Empty caches of at most `max_entries` names a kind.
    pub(crate) fn new(max_entries: usize) -> Self {
        let kind = |_| KindCache {
            uids: Map::default(),
            names: Map::default(),
            max_entries,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        Self { kinds: PerKind::from_fn(kind), epoch: AtomicU64::new(0) }
    }

    /// UID of a name.
    pub(crate) fn uid(&self, kind: UidKind, name: &[u8]) -> Option<Uid> {
        let cache = &self.kinds[kind];
        let found = cache.uids.pin().get(name).copied();
        cache.count(found.is_some());
        found
    }

    /// Name of a UID.
    pub(crate) fn name(&self, kind: UidKind, uid: Uid) -> Option<Box<[u8]>> {
        let cache = &self.kinds[kind];
        let found = cache.names.pin().get(&uid).cloned();
        cache.count(found.is_some());
        found
    }

    /// Raised whenever mappings change or are forgotten: what was read before may be out of date.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// As [`Self::insert`], unless mappings changed since `epoch`.
    pub(crate) fn insert_at(&self, epoch: u64, kind: UidKind, name: &[u8], uid: Uid) {
        if self.epoch() == epoch {
            self.insert(kind, name, uid);
            // A change may have come in between; then forgetting is always right.
            if self.epoch() != epoch {
                self.remove(kind, name, uid);
            }
        }
    }

    /// Notes the name of a UID and nothing else: an orphan has a name that does not know it.
    pub(crate) fn insert_name_at(&self, epoch: u64, kind: UidKind, name: &[u8], uid: Uid) {
        if self.epoch() == epoch {
            let names = self.kinds[kind].names.pin();
            if names.len() >= self.kinds[kind].max_entries {
                names.clear();
            }
            names.insert(uid, name.into());
            if self.epoch() != epoch {
                names.remove(&uid);
            }
        }
    }

    /// Notes what the table holds, both ways.
    fn insert(&self, kind: UidKind, name: &[u8], uid: Uid) {
        let cache = &self.kinds[kind];
        let (uids, names) = (cache.uids.pin(), cache.names.pin());
        if uids.len() >= cache.max_entries || names.len() >= cache.max_entries {
            uids.clear();
            names.clear();
        }
        uids.insert(name.into(), uid);
        names.insert(uid, name.into());
    }

    /// Forgets a name and its UID.
    pub(crate) fn forget(&self, kind: UidKind, name: &[u8], uid: Uid) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.remove(kind, name, uid);
    }

    fn remove(&self, kind: UidKind, name: &[u8], uid: Uid) {
        let cache = &self.kinds[kind];
        cache.uids.pin().remove(name);
        cache.names.pin().remove(&uid);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        for (_, cache) in self.kinds.iter() {
            cache.uids.pin().clear();
            cache.names.pin().clear();
        }
    }

    /// Hits, misses and entries (both ways) of a kind.
    pub(crate) fn counts(&self, kind: UidKind) -> (u64, u64, usize) {
        let cache = &self.kinds[kind];
        (
            cache.hits.load(Ordering::Relaxed),
            cache.misses.load(Ordering::Relaxed),
            cache.uids.len() + cache.names.len(),
        )
    }
}

impl KindCache {
    fn count(&self, hit: bool) {
        if hit { &self.hits } else { &self.misses }.fetch_add(1, Ordering::Relaxed);
    }
}
