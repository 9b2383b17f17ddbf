//! Series cache: maps the bytes of a series as sent to its row key and write shard.
//!
//! A collector sends the same bytes for a series every time, so the bytes are the key: a hit costs
//! one hash and one look-up, without parsing tags, resolving UIDs or allocating. Two spellings of a
//! series (tags in another order) are two entries, which is harmless.
//!
//! With 100 000 series no entry is in the CPU cache when its next point arrives, and a look-up is a
//! chain of dependent misses. So points are looked up in groups, in passes that take every look-up
//! of the group one step further; their misses overlap (memory-level parallelism). One lock is held
//! for the whole group, since an atomic read-modify-write waits for every earlier miss. Readers
//! share the lock; inserts take it exclusively for a few series at a time. Growing an index would
//! dominate that time, so the entries are split over many small shards.
//!
//! No entry outlives a change of the UID table: [`SeriesCache::clear`] starts a new epoch, and
//! series resolved in an earlier epoch are not inserted.

mod entry;
mod last_notified_row;
mod shard;

use std::{
    hash::{BuildHasher, Hasher},
    hint::black_box,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use foldhash::fast::RandomState;

use self::shard::{NO_ENTRY, Shard};
pub(crate) use self::{
    entry::{CachedSeries, NewSeries},
    last_notified_row::LastNotifiedRow,
};
use crate::ingest::NameText;

const SHARDS: usize = 128;

/// Series per group look-up: somewhat more than the cache misses that a core can have outstanding.
pub(crate) const GROUP: usize = 32;

/// Series inserted per acquisition of the write lock.
const INSERT_BATCH: usize = 64;

/// Bounded map from the bytes of a series as sent to its row key.
pub(crate) struct SeriesCache {
    state: RwLock<CacheState>,
    hashes: RandomState,
    shard_entries: usize,
}

struct CacheState {
    epoch: CacheEpoch,
    shards: Box<[Shard]>,
    evicted: u64,
}

/// Counts the calls of [`SeriesCache::clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheEpoch(u64);

/// Read access to the cache. Holds the read lock, so keep it short.
pub(crate) struct SeriesReader<'c> {
    state: RwLockReadGuard<'c, CacheState>,
    hashes: &'c RandomState,
}

/// State of one look-up of a group.
#[derive(Clone, Copy)]
struct GroupLookup {
    hash: SeriesHash,
    entry: u32,
}

/// Hash of the bytes of a series.
#[derive(Clone, Copy, Default)]
struct SeriesHash(u64);

impl SeriesHash {
    #[inline]
    fn of(hashes: &RandomState, metric: &[u8], tags: &[u8]) -> Self {
        let mut hasher = hashes.build_hasher();
        hasher.write(metric);
        hasher.write(tags);
        Self(hasher.finish())
    }

    #[inline]
    const fn shard(self) -> usize {
        (self.0 >> 32) as usize % SHARDS
    }

    #[inline]
    const fn in_shard(self) -> u32 {
        self.0 as u32
    }
}

impl SeriesCache {
    /// A cache of at most about `entries` series.
    pub(crate) fn new(entries: usize) -> Self {
        let state = CacheState { epoch: CacheEpoch(0), shards: empty_shards(), evicted: 0 };
        Self {
            state: RwLock::new(state),
            hashes: RandomState::default(),
            shard_entries: (entries / SHARDS).clamp(1, NO_ENTRY as usize),
        }
    }

    /// Acquires the read lock.
    #[inline]
    pub(crate) fn read(&self) -> SeriesReader<'_> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        SeriesReader { state, hashes: &self.hashes }
    }

    /// Inserts series, unless the cache was cleared since `epoch` was read.
    pub(crate) fn insert<'s>(
        &self,
        epoch: CacheEpoch,
        text: NameText,
        series: impl IntoIterator<Item = NewSeries<'s>>,
    ) {
        let hash = |metric: &[u8], tags: &[u8]| SeriesHash::of(&self.hashes, metric, tags);
        let mut series = series.into_iter().peekable();
        while series.peek().is_some() {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if state.epoch != epoch {
                return;
            }
            let CacheState { shards, evicted, .. } = &mut *state;
            for one in series.by_ref().take(INSERT_BATCH) {
                let hash_of_series = hash(one.metric, one.tags);
                let Some(shard) = shards.get_mut(hash_of_series.shard()) else { continue };
                let evicts = shard.insert(
                    self.shard_entries,
                    hash_of_series.in_shard(),
                    text,
                    one,
                    |entry| {
                        let (metric, tags) = entry.names();
                        hash(metric, tags).in_shard()
                    },
                );
                *evicted += u64::from(evicts);
            }
        }
    }

    /// The current epoch; read it before names are resolved.
    pub(crate) fn epoch(&self) -> CacheEpoch {
        self.read().state.epoch
    }

    /// Removes every series, and rejects those being resolved now.
    pub(crate) fn clear(&self) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.epoch.0 += 1;
        let removed = std::mem::replace(&mut state.shards, empty_shards());
        // Dropping a million entries takes long, so the lock is released first.
        drop(state);
        drop(removed);
    }

    /// Series in the cache.
    pub(crate) fn len(&self) -> usize {
        self.read().state.shards.iter().map(Shard::len).sum()
    }

    /// Series evicted for newer ones.
    pub(crate) fn evicted(&self) -> u64 {
        self.read().state.evicted
    }
}

fn empty_shards() -> Box<[Shard]> {
    (0..SHARDS).map(|_| Shard::default()).collect()
}

impl SeriesReader<'_> {
    /// The series of these bytes, if cached.
    pub(crate) fn find(
        &self,
        text: NameText,
        metric: &[u8],
        tags: &[u8],
    ) -> Option<CachedSeries<'_>> {
        let hash = SeriesHash::of(self.hashes, metric, tags);
        let is = |entry: &entry::SeriesEntry| entry.matches(text, metric, tags);
        self.shard(hash)?.find(hash.in_shard(), is).map(entry::SeriesEntry::hit)
    }

    /// The series of the first [`GROUP`] names (metric and tags), where cached.
    #[inline]
    pub(crate) fn find_group<'n>(
        &self,
        text: NameText,
        names: impl Iterator<Item = (&'n [u8], &'n [u8])> + Clone,
    ) -> [Option<CachedSeries<'_>>; GROUP] {
        let mut lookups = [GroupLookup { hash: SeriesHash::default(), entry: NO_ENTRY }; GROUP];
        let mut count = 0;
        for (lookup, (metric, tags)) in lookups.iter_mut().zip(names.clone()) {
            lookup.hash = SeriesHash::of(self.hashes, metric, tags);
            count += 1;
        }
        for lookup in lookups.iter_mut().take(count) {
            let shard = self.shard(lookup.hash);
            lookup.entry = shard.map_or(NO_ENTRY, |s| s.candidate(lookup.hash.in_shard()));
        }
        let mut loaded = 0;
        for lookup in lookups.iter().take(count) {
            loaded ^= self.entry(lookup).map_or(0, entry::SeriesEntry::load);
        }
        // Keeps the prefetch pass from being optimised away.
        black_box(loaded);
        let mut found = [None; GROUP];
        for ((found, lookup), (metric, tags)) in found.iter_mut().zip(&lookups).zip(names) {
            *found = match self.entry(lookup) {
                Some(entry) if entry.matches(text, metric, tags) => Some(entry.hit()),
                // A hash collision.
                Some(_) => self.find(text, metric, tags),
                None => None,
            };
        }
        found
    }

    #[inline]
    fn shard(&self, hash: SeriesHash) -> Option<&Shard> {
        self.state.shards.get(hash.shard())
    }

    #[inline]
    fn entry(&self, lookup: &GroupLookup) -> Option<&entry::SeriesEntry> {
        self.shard(lookup.hash)?.entry(lookup.entry)
    }
}

impl std::fmt::Debug for SeriesCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
