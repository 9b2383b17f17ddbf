//! Series cache: maps the bytes of a series, as clients send them, to its row key and write shard.
//!
//! A collector sends the same bytes for a series every time, so the bytes are the key. A hit costs one hash and one
//! look-up, without parsing tags, resolving UIDs or allocating. Two spellings of a series (tags in another order) are
//! two entries, which is harmless.
//!
//! With 100 000 series, no entry is in the CPU cache when its next point arrives, and a look-up is a chain of
//! dependent misses. So points are looked up in groups. Each pass takes every look-up of the group one step further,
//! so that their misses overlap (memory-level parallelism).
//!
//! A collector sends its series in the same order each time, and entries are numbered in the order of insertion. While
//! that order holds, a look-up only compares the names with those of the next entry ([`SeriesOrder`]), which the CPU
//! has loaded already.
//!
//! One lock is held for the whole group, because an atomic read-modify-write waits for every earlier miss. Readers
//! share the lock; inserts take it exclusively for a few series at a time. Growing an index would dominate that time,
//! so the index is split over many small shards.
//!
//! No entry outlives a change of the UID table: [`SeriesCache::clear`] starts a new epoch, and series that were
//! resolved in an earlier epoch are not inserted.

mod entry;
mod entry_list;
mod index_shard;
mod last_notified_row;

use parking_lot::{RwLock, RwLockReadGuard};
use std::{
    hash::{BuildHasher, Hasher},
    hint::black_box,
};

use foldhash::fast::RandomState;

pub(crate) use self::{
    entry::{CachedSeries, NewSeries},
    last_notified_row::LastNotifiedRow,
};
use self::{
    entry_list::EntryList,
    index_shard::{IndexShard, NO_ENTRY},
};
use crate::ingest::NameText;

const SHARDS: usize = 128;

/// Series per group look-up: somewhat more than the cache misses that a core can have outstanding.
pub(crate) const GROUP: usize = 32;

/// Series inserted per acquisition of the write lock.
const INSERT_BATCH: usize = 64;

/// Bounded map from the bytes of a series, as sent, to its row key.
pub(crate) struct SeriesCache {
    state: RwLock<CacheState>,
    hashes: RandomState,
    most_entries: usize,
}

struct CacheState {
    epoch: CacheEpoch,
    shards: Box<[IndexShard]>,
    entries: EntryList,
}

/// The order in which a session's points arrive. The session keeps it from group to group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeriesOrder {
    /// Number of the entry after the one found last.
    next: u32,
    /// True if most entries of the last group were found in the order of their numbers.
    is_kept: bool,
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
    /// A cache of at most `entries` series.
    pub(crate) fn new(entries: usize) -> Self {
        let state = CacheState {
            epoch: CacheEpoch(0),
            shards: empty_shards(),
            entries: EntryList::default(),
        };
        Self {
            state: RwLock::new(state),
            hashes: RandomState::default(),
            most_entries: entries.clamp(1, NO_ENTRY as usize),
        }
    }

    /// Acquires the read lock.
    #[inline]
    pub(crate) fn read(&self) -> SeriesReader<'_> {
        let state = self.state.read();
        SeriesReader { state, hashes: &self.hashes }
    }

    /// Inserts series, unless the cache was cleared since `epoch` was read.
    pub(crate) fn insert<'s>(
        &self,
        epoch: CacheEpoch,
        text: NameText,
        series: impl IntoIterator<Item = NewSeries<'s>>,
    ) {
        let mut series = series.into_iter().peekable();
        while series.peek().is_some() {
            let mut state = self.state.write();
            if state.epoch != epoch {
                return;
            }
            for one in series.by_ref().take(INSERT_BATCH) {
                state.insert(self.most_entries, &self.hashes, text, one);
            }
        }
    }

    /// The current epoch. Read it before resolving names.
    pub(crate) fn epoch(&self) -> CacheEpoch {
        self.read().state.epoch
    }

    /// Removes every series, and rejects series that are being resolved now.
    pub(crate) fn clear(&self) {
        let mut state = self.state.write();
        state.epoch.0 += 1;
        let removed = (
            std::mem::replace(&mut state.shards, empty_shards()),
            std::mem::take(&mut state.entries),
        );
        // Release the lock first, because dropping a million entries takes long.
        drop(state);
        drop(removed);
    }

    /// Series in the cache.
    pub(crate) fn len(&self) -> usize {
        self.read().state.entries.len()
    }
}

fn empty_shards() -> Box<[IndexShard]> {
    (0..SHARDS).map(|_| IndexShard::default()).collect()
}

impl CacheState {
    /// Number of the entry of a series.
    fn position(&self, hash: SeriesHash, is: impl Fn(&entry::SeriesEntry) -> bool) -> Option<u32> {
        let shard = self.shards.get(hash.shard())?;
        shard.position(hash.in_shard(), |at| self.entries.get(at).is_some_and(&is))
    }

    /// Inserts a series, or updates its last notified row. Evicts an entry if there are `limit` entries already.
    fn insert(
        &mut self,
        limit: usize,
        hashes: &RandomState,
        text: NameText,
        series: NewSeries<'_>,
    ) {
        let hash = SeriesHash::of(hashes, series.metric, series.tags);
        let is = |entry: &entry::SeriesEntry| entry.matches(text, series.metric, series.tags);
        let found = self.position(hash, is);
        let Self { shards, entries, .. } = self;
        if let Some(entry) = found.and_then(|at| entries.get_mut(at)) {
            return entry.set_last_notified(series.last_notified);
        }
        let entry = entry::SeriesEntry::new(text, series);
        let at = if entries.len() < limit {
            entries.push(entry)
        } else {
            let at = entries.next_victim();
            let Some(victim) = entries.get_mut(at) else { return };
            let (metric, tags) = victim.names();
            let old = SeriesHash::of(hashes, metric, tags);
            if let Some(shard) = shards.get_mut(old.shard()) {
                shard.remove(old.in_shard(), at);
            }
            *victim = entry;
            at
        };
        if let Some(shard) = shards.get_mut(hash.shard()) {
            shard.insert(hash.in_shard(), at);
        }
    }
}

impl SeriesReader<'_> {
    /// The series of these bytes, if cached.
    pub(crate) fn find(
        &self,
        text: NameText,
        metric: &[u8],
        tags: &[u8],
    ) -> Option<CachedSeries<'_>> {
        let at = self.position(text, metric, tags)?;
        self.state.entries.get(at).map(entry::SeriesEntry::hit)
    }

    fn position(&self, text: NameText, metric: &[u8], tags: &[u8]) -> Option<u32> {
        let hash = SeriesHash::of(self.hashes, metric, tags);
        self.state.position(hash, |entry| entry.matches(text, metric, tags))
    }

    /// The cached series among those of the first [`GROUP`] names (metric and tags).
    #[inline]
    pub(crate) fn find_group<'n>(
        &self,
        text: NameText,
        names: impl Iterator<Item = (&'n [u8], &'n [u8])> + Clone,
        order: &mut SeriesOrder,
    ) -> [Option<CachedSeries<'_>>; GROUP] {
        if order.is_kept {
            self.find_in_order(text, names, order)
        } else {
            self.find_in_passes(text, names, order)
        }
    }

    /// Compares each series with the next entry, and looks it up only if that is another series.
    #[inline]
    fn find_in_order<'n>(
        &self,
        text: NameText,
        names: impl Iterator<Item = (&'n [u8], &'n [u8])>,
        order: &mut SeriesOrder,
    ) -> [Option<CachedSeries<'_>>; GROUP] {
        let entries = &self.state.entries;
        let mut found = [None; GROUP];
        let (mut count, mut in_order) = (0, 0);
        for (found, (metric, tags)) in found.iter_mut().zip(names) {
            count += 1;
            let next = entries.get(order.next).filter(|next| next.matches(text, metric, tags));
            if let Some(entry) = next {
                in_order += 1;
                order.next += 1;
                *found = Some(entry.hit());
            } else if let Some(at) = self.position(text, metric, tags) {
                order.next = at + 1;
                *found = entries.get(at).map(entry::SeriesEntry::hit);
            }
        }
        order.is_kept = in_order >= count - count / 4;
        found
    }

    /// Looks up series in passes.
    #[inline]
    fn find_in_passes<'n>(
        &self,
        text: NameText,
        names: impl Iterator<Item = (&'n [u8], &'n [u8])> + Clone,
        order: &mut SeriesOrder,
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
        let mut in_order = 0;
        for lookup in lookups.iter().take(count) {
            in_order += usize::from(lookup.entry == order.next);
            order.next = lookup.entry.wrapping_add(1);
        }
        order.is_kept = in_order >= count - count / 4;
        let mut found = [None; GROUP];
        for ((found, lookup), (metric, tags)) in found.iter_mut().zip(&lookups).zip(names) {
            *found = match self.entry(lookup) {
                Some(entry) if entry.matches(text, metric, tags) => Some(entry.hit()),
                // The hashes collide.
                Some(_) => self.find(text, metric, tags),
                None => None,
            };
        }
        found
    }

    #[inline]
    fn shard(&self, hash: SeriesHash) -> Option<&IndexShard> {
        self.state.shards.get(hash.shard())
    }

    #[inline]
    fn entry(&self, lookup: &GroupLookup) -> Option<&entry::SeriesEntry> {
        self.state.entries.get(lookup.entry)
    }
}

impl std::fmt::Debug for SeriesCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
