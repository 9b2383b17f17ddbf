//! The query cache: downsampled series of ended UTC days.
//!
//! A dashboard repeats its queries while their range moves: all days but the first and the last stay the same. The
//! cache keeps these days, one entry for each day (or several) of a read. It needs a version of the rows from the
//! store, which rows in memory do not have. A write changes the version, so later reads do not find the stale entry.
//! If two queries need the same entry at the same time, one of them computes it.
//!
//! A read is cached from its second execution on, so that reads that are not repeated cost nothing.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use foldhash::fast::{FixedState, RandomState};
use metrics::{Counter, Gauge};
use quick_cache::{
    OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle, PlaceholderGuard},
};
use tsd_storage::SeriesVersion;

use super::series_state::SeriesState;

/// Most reads that are remembered to detect repeated ones.
const REMEMBERED_READS: usize = 1_024;
/// Largest entry, as a divisor of the size of the cache.
const LARGEST_ENTRY: u64 = 4;
/// Memory of an entry in addition to its key and its series.
const ENTRY_BYTES: usize = 192;
/// Memory of a series in addition to its tags and its state.
const SERIES_BYTES: usize = 40;
/// Size of an average entry, in bytes.
const AVERAGE_BYTES: u64 = 32 << 10;

/// Key of an entry: the read and the version of its rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DayKey {
    /// Selection, downsampling, and everything else that the series depend on.
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

/// The right to insert an entry. Others who want the entry wait until it is inserted or this is dropped.
pub(crate) type MissingDays<'a> = PlaceholderGuard<
    'a,
    DayKey,
    Arc<CachedDays>,
    DaysWeight,
    RandomState,
    DefaultLifecycle<DayKey, Arc<CachedDays>>,
>;

/// The cached entries. A full cache drops entries that were not used for long.
#[derive(Debug)]
pub(crate) struct DayCache {
    entries: Entries,
    max_entry_bytes: u64,
    /// Hashes of the last reads, newest last.
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
    /// A cache of this many bytes; `None` for 0 bytes.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let items = usize::try_from(bytes / AVERAGE_BYTES).unwrap_or(usize::MAX).max(16);
        let mut options = OptionsBuilder::new();
        // One shard, so that the limit holds for the whole cache.
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

    /// Remembers a read. True if it was remembered already, which means that it is repeated.
    pub(crate) fn is_repeated(&self, read: &str) -> bool {
        let hash = FixedState::default().hash_one(read);
        let mut reads = self.reads.lock();
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

    /// Caches an entry, unless it is too large.
    pub(crate) fn keep(&self, missing: MissingDays<'_>, days: CachedDays) {
        if days.bytes as u64 <= self.max_entry_bytes {
            // Fails if the cache was cleared meanwhile.
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
