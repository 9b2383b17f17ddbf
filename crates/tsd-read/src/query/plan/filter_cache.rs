//! Caches which tag values a filter on names accepts, by UID.
//!
//! A regular expression or wildcard must be compared with the name of every value of its metric. Dashboards repeat
//! their filters, and only an operator's command changes the name of a UID. So each value is looked up and compared
//! once for each filter.

use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tsd_query::TagFilter;

/// Most filters in the cache.
const MAX_FILTERS: usize = 64;
/// Most bytes of all filters in the cache.
const MAX_BYTES: usize = 16 << 20;
/// Values in a word: two bits for each.
const VALUES_PER_WORD: u64 = 32;
/// Values with larger UIDs are not cached, because the bits of all smaller UIDs are allocated too.
const MAX_UID: u64 = (1 << 24) - 1;

/// The filters used last. A full cache drops the least recently used ones.
#[derive(Debug, Default)]
pub(crate) struct FilterCache(Mutex<CachedFilters>);

#[derive(Debug, Default)]
struct CachedFilters {
    /// Epoch of the UIDs. In a later epoch, names may have changed.
    epoch: u64,
    /// Ordered by last use, the most recent last.
    filters: Vec<(FilterKey, Arc<FilterVerdicts>)>,
}

/// Type and text. Filters that have both in common accept the same names.
type FilterKey = (&'static str, Box<str>);

/// Known verdicts of a filter on tag values.
#[derive(Debug, Default)]
pub(crate) struct FilterVerdicts {
    /// Two bits for each UID: whether its verdict is known, and whether it is accepted.
    words: RwLock<Vec<u64>>,
    bytes: AtomicUsize,
}

/// UIDs of the values of a tag key, divided by a filter's verdict.
#[derive(Debug, Default)]
pub(crate) struct DividedValues {
    pub(crate) accepted: Vec<u64>,
    pub(crate) rejected: Vec<u64>,
    /// Values whose names must be looked up.
    pub(crate) unknown: Vec<u64>,
}

impl FilterCache {
    /// Verdicts of a filter. `epoch` is the epoch of the UIDs; read it before looking up any name.
    pub(crate) fn verdicts(&self, filter: &TagFilter, epoch: u64) -> Arc<FilterVerdicts> {
        let mut cached = self.0.lock();
        if cached.epoch != epoch {
            cached.epoch = epoch;
            cached.filters.clear();
        }
        let is_same = |((kind, text), _): &(FilterKey, Arc<FilterVerdicts>)| {
            (*kind, &**text) == (filter.type_name(), filter.filter.as_str())
        };
        let found = cached.filters.iter().position(is_same);
        let entry = found.map_or_else(
            || ((filter.type_name(), filter.filter.as_str().into()), Arc::default()),
            |at| cached.filters.remove(at),
        );
        let verdicts = Arc::clone(&entry.1);
        cached.filters.push(entry);
        // The cached filters may have grown since the last call.
        let mut bytes: usize = cached.filters.iter().map(FilterVerdicts::entry_bytes).sum();
        while (bytes > MAX_BYTES || cached.filters.len() > MAX_FILTERS) && cached.filters.len() > 1
        {
            bytes -= FilterVerdicts::entry_bytes(&cached.filters.remove(0));
        }
        verdicts
    }
}

impl FilterVerdicts {
    fn entry_bytes((key, verdicts): &(FilterKey, Arc<Self>)) -> usize {
        size_of::<(FilterKey, Self)>() + key.1.len() + verdicts.bytes.load(Ordering::Relaxed)
    }

    /// Divides values, given by their UIDs, by the known verdicts.
    pub(crate) fn divide(&self, values: &[u64]) -> DividedValues {
        let words = self.words.read();
        let mut divided = DividedValues::default();
        for uid in values {
            let word = words.get((uid / VALUES_PER_WORD) as usize).copied().unwrap_or_default();
            match word >> (uid % VALUES_PER_WORD * 2) & 0b11 {
                0b11 => divided.accepted.push(*uid),
                0b01 => divided.rejected.push(*uid),
                _ => divided.unknown.push(*uid),
            }
        }
        divided
    }

    /// Caches verdicts on values whose names were looked up.
    pub(crate) fn keep(&self, verdicts: impl IntoIterator<Item = (u64, bool)>) {
        let mut words = self.words.write();
        for (uid, is_accepted) in verdicts.into_iter().filter(|(uid, _)| *uid <= MAX_UID) {
            let index = (uid / VALUES_PER_WORD) as usize;
            if index >= words.len() {
                words.resize(index + 1, 0);
            }
            if let Some(word) = words.get_mut(index) {
                *word |= (1 | u64::from(is_accepted) << 1) << (uid % VALUES_PER_WORD * 2);
            }
        }
        self.bytes.store(size_of_val(words.as_slice()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unwrap_used, reason = "tests")]
    fn filter(kind: &str, text: &str) -> TagFilter {
        TagFilter::try_new("host", kind, text, false).unwrap()
    }

    fn divided(verdicts: &FilterVerdicts, values: &[u64]) -> [usize; 3] {
        let divided = verdicts.divide(values);
        [divided.accepted.len(), divided.rejected.len(), divided.unknown.len()]
    }

    #[test]
    fn verdicts_are_kept_by_type_and_text_until_names_change() {
        let cache = FilterCache::default();
        let values = [0, 1, 31, 32, MAX_UID];
        let web = cache.verdicts(&filter("regexp", "web.*"), 7);
        assert_eq!(divided(&web, &values), [0, 0, 5]);
        web.keep(values.into_iter().zip([true, false, true, false, true]));
        assert_eq!(divided(&web, &values), [3, 2, 0]);
        assert_eq!(divided(&web, &[2, 256]), [0, 0, 2]);
        assert_eq!(divided(&cache.verdicts(&filter("regexp", "web.*"), 7), &values), [3, 2, 0]);
        for (kind, text) in [("regexp", "web"), ("wildcard", "web.*")] {
            assert_eq!(divided(&cache.verdicts(&filter(kind, text), 7), &values), [0, 0, 5]);
        }
        assert_eq!(divided(&cache.verdicts(&filter("regexp", "web.*"), 8), &values), [0, 0, 5]);
    }

    #[test]
    fn filters_and_bytes_are_bounded_and_the_last_used_stay() {
        let cache = FilterCache::default();
        let wide = [MAX_UID];
        let of = |number: usize| cache.verdicts(&filter("regexp", &format!("h{number}")), 0);
        for number in 0..100 {
            of(number).keep([(MAX_UID, true)]);
            assert_eq!(divided(&of(0), &wide), [1, 0, 0], "{number}");
        }
        let kept = cache.0.lock().filters.len();
        // 4 MiB each.
        assert!((2..=4).contains(&kept), "{kept}");
        let long = FilterVerdicts::default();
        long.keep([(MAX_UID + 1, true)]);
        assert_eq!(divided(&long, &[MAX_UID + 1]), [0, 0, 1]);
    }
}
