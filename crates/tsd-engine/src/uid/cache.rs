//! UID caches: name to UID and back, for each kind. Reads are lock-free.
//!
//! Look-ups, assignments and suggestions fill the caches; entries do not expire. A full map is cleared, which costs
//! only look-ups.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use papaya::HashMap;
use tsd_model::{PerKind, Uid, UidKind};

type UidMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The caches of all kinds.
#[derive(Debug)]
pub(crate) struct UidCaches {
    kinds: PerKind<KindCache>,
    epoch: AtomicU64,
}

/// The caches of one kind.
#[derive(Debug)]
struct KindCache {
    uids: UidMap<Box<[u8]>, Uid>,
    names: UidMap<Uid, Box<[u8]>>,
    max_entries: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl UidCaches {
    /// Empty caches of at most `max_entries` names per kind.
    pub(crate) fn new(max_entries: usize) -> Self {
        let kind = |_| KindCache {
            uids: UidMap::default(),
            names: UidMap::default(),
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

    /// Epoch that increases when mappings are changed or removed. Values read in an earlier epoch may be stale.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Like [`Self::insert`], unless mappings changed since `epoch`.
    pub(crate) fn insert_at(&self, epoch: u64, kind: UidKind, name: &[u8], uid: Uid) {
        if self.epoch() == epoch {
            self.insert(kind, name, uid);
            // A concurrent change may have passed the first check. Removing the entry is always correct.
            if self.epoch() != epoch {
                self.remove(kind, name, uid);
            }
        }
    }

    /// Inserts only the name of a UID, for an orphaned UID whose name maps to another UID.
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

    /// Inserts both directions of a mapping.
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

    /// Removes names and UIDs, and begins a new epoch.
    pub(crate) fn invalidate(&self, kind: UidKind, names: &[Bytes], uids: &[Uid]) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let cache = &self.kinds[kind];
        for name in names {
            cache.uids.pin().remove(&**name);
        }
        for uid in uids {
            cache.names.pin().remove(uid);
        }
        // A value that was read in between may be one of those removed here, so the epoch changes once more.
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn remove(&self, kind: UidKind, name: &[u8], uid: Uid) {
        let cache = &self.kinds[kind];
        cache.uids.pin().remove(name);
        cache.names.pin().remove(&uid);
    }

    /// Removes all entries, and begins a new epoch.
    pub(crate) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        for (_, cache) in self.kinds.iter() {
            cache.uids.pin().clear();
            cache.names.pin().clear();
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Hits, misses and entries (both directions) of a kind.
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
