//! Series as clients spell them, and where their points go.
//!
//! A collector sends the same bytes for a series again and again, so the bytes are the key: a hit
//! costs one hash and one short lock, no parse of tags, no UID, no allocation. Two spellings of a
//! series (tags in another order) are two entries, which is harmless.
//!
//! Entries never outlive a change of the UID table: [`SeriesCache::clear`] starts a new generation, and
//! what was resolved in an older one is not taken in.

use std::{
    hash::{BuildHasher, Hasher},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::ingest::NameText;

const SHARDS: usize = 128;

/// Bytes of an entry that need no memory of their own: a metric, three tags and a row key.
const INLINE_BYTES: usize = 96;

/// Bounded map from the bytes of a series as sent to its row key.
pub(crate) struct SeriesCache {
    shards: Box<[Shard]>,
    hashes: foldhash::fast::RandomState,
    shard_entries: usize,
    generation: AtomicU64,
    entries: AtomicUsize,
    evicted: AtomicU64,
}

/// Which state of the UID table something was resolved in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// A series found in the cache; its shard is locked meanwhile.
pub(crate) struct CachedSeries<'a> {
    /// Row key with zeros for the base time.
    pub(crate) template: &'a [u8],
    /// Write actor of its salt bucket.
    pub(crate) lane: usize,
    /// When the row last written was made known to row compaction.
    pub(crate) touch: &'a mut Touch,
}

/// The last row of a series that row compaction was told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touch {
    /// Base time of the row; no base time is odd, so 1 is none.
    pub(crate) base: u32,
    /// Round of row compaction it was told in.
    pub(crate) round: u32,
}

// Aligned so that neighbours do not share a cache line.
#[repr(align(128))]
struct Shard(Mutex<Slots>);

struct Slots {
    table: HashTable<Slot>,
    hand: usize,
}

// Small, so that probing touches few cache lines; the hash keeps it from looking at wrong entries.
struct Slot {
    hash: u64,
    entry: Box<Entry>,
}

struct Entry {
    touch: Touch,
    lane: u32,
    metric_len: u32,
    sent_len: u32,
    text: NameText,
    used: bool,
    // Metric, tags as sent, row key template: beside the rest, so that a hit reads one piece of memory.
    bytes: SmallVec<[u8; INLINE_BYTES]>,
}

impl Slot {
    #[inline]
    fn is(&self, hash: u64, text: NameText, metric: &[u8], tags: &[u8]) -> bool {
        self.hash == hash && self.entry.is(text, metric, tags)
    }
}

impl Entry {
    #[inline]
    fn is(&self, text: NameText, metric: &[u8], tags: &[u8]) -> bool {
        if self.text != text
            || self.metric_len as usize != metric.len()
            || self.sent_len as usize != metric.len() + tags.len()
        {
            return false;
        }
        self.bytes
            .split_at_checked(metric.len())
            .is_some_and(|(head, rest)| head == metric && rest.starts_with(tags))
    }
}

impl SeriesCache {
    /// A cache of at most about `entries` series.
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            shards: (0..SHARDS)
                .map(|_| Shard(Mutex::new(Slots { table: HashTable::new(), hand: 0 })))
                .collect(),
            hashes: foldhash::fast::RandomState::default(),
            shard_entries: (entries / SHARDS).max(1),
            generation: AtomicU64::new(0),
            entries: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Calls `hit` with the series of these bytes, if it is known.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        text: NameText,
        metric: &[u8],
        tags: &[u8],
        hit: impl FnOnce(CachedSeries<'_>) -> R,
    ) -> Option<R> {
        let hash = self.hash(metric, tags);
        let mut slots = self.shard(hash)?.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.table.find_mut(hash, |slot| slot.is(hash, text, metric, tags))?;
        let entry = &mut *slot.entry;
        entry.used = true;
        let template = entry.bytes.get(entry.sent_len as usize..)?;
        Some(hit(CachedSeries { template, lane: entry.lane as usize, touch: &mut entry.touch }))
    }

    /// Takes a series in, unless the cache was cleared since `generation` was read.
    #[expect(clippy::too_many_arguments, reason = "one entry, field by field")]
    pub(crate) fn insert(
        &self,
        generation: Generation,
        text: NameText,
        metric: &[u8],
        tags: &[u8],
        template: &[u8],
        lane: usize,
        touch: Touch,
    ) {
        let hash = self.hash(metric, tags);
        let Some(shard) = self.shard(hash) else { return };
        let mut slots = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: `clear` raises it before it empties the shards.
        if self.generation() != generation {
            return;
        }
        if let Some(slot) = slots.table.find_mut(hash, |slot| slot.is(hash, text, metric, tags)) {
            slot.entry.touch = touch;
            return;
        }
        if slots.table.len() >= self.shard_entries && slots.evict() {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        let mut bytes = SmallVec::with_capacity(metric.len() + tags.len() + template.len());
        bytes.extend_from_slice(metric);
        bytes.extend_from_slice(tags);
        bytes.extend_from_slice(template);
        let entry = Entry {
            metric_len: metric.len() as u32,
            sent_len: (metric.len() + tags.len()) as u32,
            lane: lane as u32,
            touch,
            text,
            used: false,
            bytes,
        };
        let slot = Slot { hash, entry: Box::new(entry) };
        slots.table.insert_unique(hash, slot, |slot| slot.hash);
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    /// The present generation; read it before names are resolved.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    /// Forgets every series, and what is being resolved now.
    pub(crate) fn clear(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            let mut slots = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.entries.fetch_sub(slots.table.len(), Ordering::Relaxed);
            slots.table.clear();
            slots.hand = 0;
        }
    }

    /// Series held.
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Series put out for newer ones.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    #[inline]
    fn hash(&self, metric: &[u8], tags: &[u8]) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(metric);
        hasher.write(tags);
        hasher.finish()
    }

    #[inline]
    fn shard(&self, hash: u64) -> Option<&Shard> {
        // The table itself uses the low and the top bits.
        self.shards.get((hash >> 32) as usize % SHARDS)
    }
}

impl Slots {
    /// Removes an entry that was not used since the hand last came by.
    fn evict(&mut self) -> bool {
        let buckets = self.table.num_buckets();
        for _ in 0..buckets.saturating_mul(2) {
            self.hand = if self.hand + 1 >= buckets { 0 } else { self.hand + 1 };
            match self.table.get_bucket_mut(self.hand) {
                Some(slot) if slot.entry.used => slot.entry.used = false,
                Some(_) => {
                    if let Ok(entry) = self.table.get_bucket_entry(self.hand) {
                        entry.remove();
                        return true;
                    }
                }
                None => {}
            }
        }
        false
    }
}

impl std::fmt::Debug for SeriesCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesCache").field("entries", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: NameText = NameText::Latin1;

    fn template(cache: &SeriesCache, metric: &[u8], tags: &[u8]) -> Option<Vec<u8>> {
        cache.with(TEXT, metric, tags, |series| series.template.to_vec())
    }

    fn insert(cache: &SeriesCache, metric: &[u8], tags: &[u8], template: &[u8]) {
        let generation = cache.generation();
        cache.insert(generation, TEXT, metric, tags, template, 3, Touch::default());
    }

    #[test]
    fn the_bytes_as_sent_are_the_key() {
        let cache = SeriesCache::new(1_000);
        insert(&cache, b"m", b"a=1 b=2", b"row");
        insert(&cache, b"m", b"a=1 b=2", b"row");
        assert_eq!(cache.len(), 1);
        assert_eq!(template(&cache, b"m", b"a=1 b=2"), Some(b"row".to_vec()));
        for (metric, tags) in [(&b"ma"[..], &b"=1 b=2"[..]), (b"m", b"b=2 a=1"), (b"", b"")] {
            assert_eq!(template(&cache, metric, tags), None);
        }
        assert!(cache.with(NameText::Utf8, b"m", b"a=1 b=2", |_| ()).is_none());
        let touch = Touch { base: 3_600, round: 7 };
        cache.with(TEXT, b"m", b"a=1 b=2", |series| *series.touch = touch);
        assert_eq!(cache.with(TEXT, b"m", b"a=1 b=2", |s| (*s.touch, s.lane)), Some((touch, 3)));
    }

    #[test]
    fn a_full_cache_puts_out_what_was_not_used() {
        let cache = SeriesCache::new(SHARDS * 8);
        for i in 0..SHARDS * 80 {
            insert(&cache, b"m", format!("host={i}").as_bytes(), b"row");
            assert!(template(&cache, b"m", b"host=0").is_some(), "used all the time");
        }
        assert!(cache.len() <= SHARDS * 8);
        assert_eq!(cache.len() as u64 + cache.evicted(), SHARDS as u64 * 80);
    }

    #[test]
    fn what_was_resolved_before_a_clear_is_not_taken_in() {
        let cache = SeriesCache::new(1_000);
        insert(&cache, b"m", b"a=1", b"old");
        let before = cache.generation();
        cache.clear();
        assert_eq!((cache.len(), template(&cache, b"m", b"a=1")), (0, None));
        cache.insert(before, TEXT, b"m", b"a=1", b"old", 0, Touch::default());
        assert_eq!(template(&cache, b"m", b"a=1"), None);
        insert(&cache, b"m", b"a=1", b"new");
        assert_eq!(template(&cache, b"m", b"a=1"), Some(b"new".to_vec()));
    }
}
