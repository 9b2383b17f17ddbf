//! Series of ended UTC days, as reads have downsampled them.
//!
//! A dashboard repeats its queries while their range moves: all days but the first and the last are the
//! same each time. Those days are kept, one entry for each day (or several) of a read, where the store
//! tells a version of their rows; rows in memory have none. So an entry never hides a write: it is not
//! found any more. Two queries that need the same entry at the same time compute it once.
//!
//! A read is kept from its second time on, so that one that is not repeated costs nothing.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash},
    sync::{Arc, Mutex, PoisonError},
};

use foldhash::fast::{FixedState, RandomState};
use metrics::{Counter, Gauge};
use quick_cache::{
    OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle, PlaceholderGuard},
};
use tsd_storage::SeriesVersion;

use super::series_state::SeriesState;

/// Reads that are remembered, to know which are repeated.
const REMEMBERED_READS: usize = 1_024;
/// The largest entry, as a divisor of the cache.
const LARGEST_ENTRY: u64 = 4;
/// Memory of an entry beside its key and its series.
const ENTRY_BYTES: usize = 192;
/// Memory of a series beside its tags and its state.
const SERIES_BYTES: usize = 40;
/// Size of an average entry.
const AVERAGE_BYTES: u64 = 32 << 10;

/// What an entry was read for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DayKey {
    /// Selection of the series, downsampling, and all else that the series depend on.
    pub(crate) read: Arc<str>,
    /// First and last base time of the rows.
    pub(crate) bases: (u32, u32),
    /// Version of the rows.
    pub(crate) version: SeriesVersion,
}

/// The series of an entry, with their tags.
pub(crate) struct CachedDays {
    pub(crate) series: Vec<(Box<[u8]>, SeriesState)>,
    bytes: usize,
}

impl std::fmt::Debug for CachedDays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedDays").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl CachedDays {
    pub(crate) fn new(series: Vec<(Box<[u8]>, SeriesState)>) -> Self {
        let of = |(tags, state): &(Box<[u8]>, SeriesState)| {
            SERIES_BYTES + tags.len() + state.memory_bytes()
        };
        let bytes = series.iter().map(of).sum();
        Self { series, bytes }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DaysWeight;

impl Weighter<DayKey, Arc<CachedDays>> for DaysWeight {
    fn weight(&self, key: &DayKey, days: &Arc<CachedDays>) -> u64 {
        (ENTRY_BYTES + key.read.len() + key.version.heap_bytes() + days.bytes) as u64
    }
}

type Entries = Cache<DayKey, Arc<CachedDays>, DaysWeight, RandomState>;

/// Reserves an entry: others who want it wait until this is inserted or dropped.
pub(crate) type MissingDays<'a> = PlaceholderGuard<
    'a,
    DayKey,
    Arc<CachedDays>,
    DaysWeight,
    RandomState,
    DefaultLifecycle<DayKey, Arc<CachedDays>>,
>;

/// The entries. When it is full, those that were not used for long are dropped.
#[derive(Debug)]
pub(crate) struct DayCache {
    entries: Entries,
    max_entry_bytes: u64,
    /// Hashes of the last reads, the newest last.
    reads: Mutex<VecDeque<u64>>,
    metrics: DayCacheMetrics,
}

struct DayCacheMetrics {
    hits: Counter,
    misses: Counter,
    bytes: Gauge,
}

impl std::fmt::Debug for DayCacheMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DayCacheMetrics").finish_non_exhaustive()
    }
}

impl DayCache {
    /// A cache of so many bytes; `None` without any.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let items = usize::try_from(bytes / AVERAGE_BYTES).unwrap_or(usize::MAX).max(16);
        let mut options = OptionsBuilder::new();
        // One shard: the limit holds for all together.
        options.shards(1).estimated_items_capacity(items).weight_capacity(bytes);
        let options = options.build().ok().filter(|_| bytes > 0)?;
        let entries = Cache::with_options(
            options,
            DaysWeight,
            RandomState::default(),
            DefaultLifecycle::default(),
        );
        let metrics = DayCacheMetrics {
            hits: metrics::counter!("tsd_query_cache_hits_total"),
            misses: metrics::counter!("tsd_query_cache_misses_total"),
            bytes: metrics::gauge!("tsd_query_cache_bytes"),
        };
        let max_entry_bytes = bytes / LARGEST_ENTRY;
        Some(Self { entries, max_entry_bytes, reads: Mutex::default(), metrics })
    }

    /// Remembers a read. True if it was remembered already: it is repeated.
    pub(crate) fn is_repeated(&self, read: &str) -> bool {
        let hash = FixedState::default().hash_one(read);
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let found = reads.iter().position(|other| *other == hash);
        match found {
            Some(at) => drop(reads.remove(at)),
            None if reads.len() >= REMEMBERED_READS => drop(reads.pop_front()),
            None => {}
        }
        reads.push_back(hash);
        found.is_some()
    }

    /// The entry, or the right to insert it. Waits while another query computes it.
    pub(crate) async fn get(&self, key: &DayKey) -> Result<Arc<CachedDays>, MissingDays<'_>> {
        let found = self.entries.get_value_or_guard_async(key).await;
        match &found {
            Ok(_) => self.metrics.hits.increment(1),
            Err(_) => self.metrics.misses.increment(1),
        }
        found
    }

    /// Keeps an entry, unless it is too large.
    pub(crate) fn keep(&self, missing: MissingDays<'_>, days: CachedDays) {
        if days.bytes as u64 <= self.max_entry_bytes {
            // It fails if the cache was cleared meanwhile.
            let _ = missing.insert(Arc::new(days));
        }
        self.metrics.bytes.set(self.entries.weight() as f64);
    }

    /// Drops all entries.
    pub(crate) fn clear(&self) {
        self.entries.clear();
        self.metrics.bytes.set(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_repeated_until_it_is_forgotten() {
        let Some(cache) = DayCache::new(1 << 20) else { panic!("no cache") };
        assert!(!cache.is_repeated("a"));
        assert!(cache.is_repeated("a"));
        for other in 0..REMEMBERED_READS {
            assert!(!cache.is_repeated(&other.to_string()));
        }
        assert!(!cache.is_repeated("a"));
        assert!(DayCache::new(0).is_none());
    }
}
