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
    ops::RangeInclusive,
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

const DAY_SECS: u32 = 86_400;
/// Days of an entry, the most first, and the least number of days of a read for it: a read of years must
/// not be thousands of small reads.
const ENTRY_DAYS: [(u32, u32); 3] = [(64, 512), (8, 64), (1, 1)];
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

/// Divides a range of base times into ranges of whole ended days, and what is before and after them.
/// True marks those of whole days; entries of equal days are the same in every range that has them.
pub(crate) fn divide_ended_days(
    bases: &RangeInclusive<u32>,
    from_secs: u32,
    now_secs: u32,
) -> Vec<(RangeInclusive<u32>, bool)> {
    let (first, last) = (*bases.start(), *bases.end());
    let from_day = first.max(from_secs).div_ceil(DAY_SECS);
    let end_day = (u64::from(last) + 1).min(now_secs.into()) / u64::from(DAY_SECS);
    let end_day = u32::try_from(end_day).unwrap_or(u32::MAX);
    if from_day >= end_day {
        return vec![(bases.clone(), false)];
    }
    let mut ranges = Vec::new();
    let mut day = from_day;
    if first < day * DAY_SECS {
        ranges.push((first..=day * DAY_SECS - 1, false));
    }
    while day < end_day {
        let fits = |(days, least): &&(u32, u32)| {
            end_day - from_day >= *least && day.is_multiple_of(*days) && end_day - day >= *days
        };
        let days = ENTRY_DAYS.iter().find(fits).map_or(1, |(days, _)| *days);
        let start = day * DAY_SECS;
        ranges.push((start..=start + (days * DAY_SECS - 1), true));
        day += days;
    }
    // The last day of 32 bits has no end of its own.
    if let Some(rest) = day.checked_mul(DAY_SECS).filter(|rest| *rest <= last) {
        ranges.push((rest..=last, false));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const D: u32 = DAY_SECS;

    #[test]
    fn whole_ended_days_are_divided() {
        let divide = |bases: RangeInclusive<u32>, from, now| divide_ended_days(&bases, from, now);
        assert_eq!(divide(5..=D - 1, 0, 9 * D), [(5..=D - 1, false)]);
        assert_eq!(divide(0..=D - 1, 0, 9 * D), [(0..=D - 1, true)]);
        assert_eq!(divide(0..=D - 1, 0, D - 1), [(0..=D - 1, false)], "the day has not ended");
        assert_eq!(
            divide(0..=D - 2, 0, 9 * D),
            [(0..=D - 2, false)],
            "rows of its end are missing"
        );
        assert_eq!(
            divide(D + 1..=4 * D + 7, 0, 9 * D),
            [
                (D + 1..=2 * D - 1, false),
                (2 * D..=3 * D - 1, true),
                (3 * D..=4 * D - 1, true),
                (4 * D..=4 * D + 7, false)
            ]
        );
        assert_eq!(divide(0..=2 * D - 1, 1, 9 * D), [(0..=D - 1, false), (D..=2 * D - 1, true)]);
        let long = divide(7 * D..=100 * D - 1, 0, u32::MAX);
        assert_eq!(long.first(), Some(&(7 * D..=8 * D - 1, true)));
        assert_eq!(long.get(1), Some(&(8 * D..=16 * D - 1, true)));
        assert_eq!(long.len(), 1 + 11 + 4);
    }

    proptest! {
        #[test]
        fn divided_ranges_have_no_gaps(
            first: u32, length in 0..90_000_000_u32, from: u32, now: u32
        ) {
            let last = first.saturating_add(length);
            let ranges = divide_ended_days(&(first..=last), from, now);
            prop_assert_eq!(ranges.first().map(|(range, _)| *range.start()), Some(first));
            prop_assert_eq!(ranges.last().map(|(range, _)| *range.end()), Some(last));
            for ((before, _), (after, _)) in ranges.iter().zip(ranges.iter().skip(1)) {
                prop_assert_eq!(before.end() + 1, *after.start());
            }
            for (range, is_days) in ranges {
                prop_assert!(range.start() <= range.end());
                if is_days {
                    prop_assert!(range.start().is_multiple_of(D) && *range.start() >= from);
                    prop_assert!((range.end() - range.start() + 1).is_multiple_of(D));
                    prop_assert!(*range.end() < now);
                }
            }
        }
    }

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
