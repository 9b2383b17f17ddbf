//! Series as clients spell them, and where their points go.
//!
//! A collector sends the same bytes for a series again and again, so the bytes are the key: a hit
//! costs one hash and one look-up, no parse of tags, no UID, no allocation. Two spellings of a
//! series (tags in another order) are two entries, which is harmless.
//!
//! With 100 000 series nothing of a series is in the processor's cache when its next point comes, and a
//! look-up is a chain of misses. So points are looked up by groups, in passes that take all of a group
//! one link further: their misses then overlap. One lock is held for a whole group, since an
//! instruction that locks would wait for every miss before it. Readers share the lock; it is
//! taken for writing only where series come or go, for a few of them at a time. Of that time most
//! would be the growth of an index, so the entries are split over many small ones.
//!
//! Entries never outlive a change of the UID table: [`SeriesCache::clear`] starts a new generation, and
//! what was resolved in an older one is not taken in.

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

/// Series that are looked up at once. As many as a core has misses under way, and some.
pub(crate) const GROUP: usize = 32;

/// Series that are taken in without letting a reader in between.
const INSERTED_AT_ONCE: usize = 64;

/// Bounded map from the bytes of a series as sent to its row key.
pub(crate) struct SeriesCache {
    state: RwLock<State>,
    hashes: RandomState,
    shard_entries: usize,
}

struct State {
    generation: Generation,
    shards: Box<[Shard]>,
    evicted: u64,
}

/// Which state of the UID table something was resolved in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// A look into the cache. Nobody changes it meanwhile, so be brief.
pub(crate) struct SeriesReader<'c> {
    state: RwLockReadGuard<'c, State>,
    hashes: &'c RandomState,
}

/// How far the look-up of a series of a group got.
#[derive(Clone, Copy)]
struct LookUp {
    hash: SeriesHash,
    entry: u32,
}

/// Hash of a series.
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
        let state = State { generation: Generation(0), shards: empty_shards(), evicted: 0 };
        Self {
            state: RwLock::new(state),
            hashes: RandomState::default(),
            shard_entries: (entries / SHARDS).clamp(1, NO_ENTRY as usize),
        }
    }

    /// Begins to look series up.
    #[inline]
    pub(crate) fn read(&self) -> SeriesReader<'_> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        SeriesReader { state, hashes: &self.hashes }
    }

    /// Takes series in, unless the cache was cleared since `generation` was read.
    pub(crate) fn insert<'s>(
        &self,
        generation: Generation,
        text: NameText,
        series: impl IntoIterator<Item = NewSeries<'s>>,
    ) {
        let hash = |metric: &[u8], tags: &[u8]| SeriesHash::of(&self.hashes, metric, tags);
        let mut series = series.into_iter().peekable();
        while series.peek().is_some() {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if state.generation != generation {
                return;
            }
            let State { shards, evicted, .. } = &mut *state;
            for one in series.by_ref().take(INSERTED_AT_ONCE) {
                let place = hash(one.metric, one.tags);
                let Some(shard) = shards.get_mut(place.shard()) else { continue };
                let evicts =
                    shard.insert(self.shard_entries, place.in_shard(), text, one, |entry| {
                        let (metric, tags) = entry.names();
                        hash(metric, tags).in_shard()
                    });
                *evicted += u64::from(evicts);
            }
        }
    }

    /// The present generation; read it before names are resolved.
    pub(crate) fn generation(&self) -> Generation {
        self.read().state.generation
    }

    /// Forgets every series, and what is being resolved now.
    pub(crate) fn clear(&self) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.generation.0 += 1;
        let forgotten = std::mem::replace(&mut state.shards, empty_shards());
        // A million entries take a while to go: nobody waits for that.
        drop(state);
        drop(forgotten);
    }

    /// Series held.
    pub(crate) fn len(&self) -> usize {
        self.read().state.shards.iter().map(Shard::len).sum()
    }

    /// Series put out for newer ones.
    pub(crate) fn evicted(&self) -> u64 {
        self.read().state.evicted
    }
}

fn empty_shards() -> Box<[Shard]> {
    (0..SHARDS).map(|_| Shard::default()).collect()
}

impl SeriesReader<'_> {
    /// The series of these bytes, if it is known.
    pub(crate) fn find(
        &self,
        text: NameText,
        metric: &[u8],
        tags: &[u8],
    ) -> Option<CachedSeries<'_>> {
        let hash = SeriesHash::of(self.hashes, metric, tags);
        let is = |entry: &entry::Entry| entry.is(text, metric, tags);
        self.shard(hash)?.find(hash.in_shard(), is).map(entry::Entry::hit)
    }

    /// The series of the first [`GROUP`] names, metric and tags each, where they are known.
    #[inline]
    pub(crate) fn find_group<'n>(
        &self,
        text: NameText,
        names: impl Iterator<Item = (&'n [u8], &'n [u8])> + Clone,
    ) -> [Option<CachedSeries<'_>>; GROUP] {
        let mut look_ups = [LookUp { hash: SeriesHash::default(), entry: NO_ENTRY }; GROUP];
        let mut count = 0;
        for (look_up, (metric, tags)) in look_ups.iter_mut().zip(names.clone()) {
            look_up.hash = SeriesHash::of(self.hashes, metric, tags);
            count += 1;
        }
        for look_up in look_ups.iter_mut().take(count) {
            let shard = self.shard(look_up.hash);
            look_up.entry = shard.map_or(NO_ENTRY, |s| s.candidate(look_up.hash.in_shard()));
        }
        let mut loaded = 0;
        for look_up in look_ups.iter().take(count) {
            loaded ^= self.entry(look_up).map_or(0, entry::Entry::load);
        }
        // Keeps the pass that fetches the entries from being optimised away.
        black_box(loaded);
        let mut found = [None; GROUP];
        for ((found, look_up), (metric, tags)) in found.iter_mut().zip(&look_ups).zip(names) {
            *found = match self.entry(look_up) {
                Some(entry) if entry.is(text, metric, tags) => Some(entry.hit()),
                // Another series with the same hash.
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
    fn entry(&self, look_up: &LookUp) -> Option<&entry::Entry> {
        self.shard(look_up.hash)?.entry(look_up.entry)
    }
}

impl std::fmt::Debug for SeriesCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
