//! The cache of region locations.
//!
//! Locations become stale without notice: regions split, merge, move, and lose their server. A
//! failed call therefore invalidates only the location that it used: thousands of calls may fail at
//! an old location while the new one is cached already.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{
    info::{Region, RegionLocation},
    map::RegionMap,
    meta::RegionTarget,
};
use crate::{exception::MovedTo, server_name::ServerName, table_name::TableName};

/// Region locations by table and start key.
#[derive(Debug)]
pub struct RegionCache {
    tables: HashMap<TableName, RegionMap<RegionLocation>>,
    regions: usize,
    max_regions: usize,
    /// Regions whose location was invalidated. Their boundaries are usually still right.
    stale_boundaries: HashMap<TableName, RegionMap<Arc<Region>>>,
    stale_regions: usize,
}

/// A range of rows that one lookup is expected to locate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// First row.
    pub start: Bytes,
    /// Row after the last; empty for the end of the table.
    pub end: Bytes,
    /// True if it is one region. Otherwise it is a gap between cached regions.
    pub exact: bool,
}

impl RowRange {
    /// Returns the rows of a region.
    pub(crate) fn of(region: &Region) -> Self {
        let (start, end) = (region.start_key().clone(), region.end_key().clone());
        Self { start, end, exact: true }
    }

    /// True if the row is in the range.
    #[must_use]
    pub fn contains(&self, row: &[u8]) -> bool {
        self.start <= row && (self.end.is_empty() || row < self.end)
    }
}

impl RegionCache {
    /// Returns an empty cache of at most `max_regions` locations. One more evicts another.
    #[must_use]
    pub fn new(max_regions: usize) -> Self {
        Self {
            tables: HashMap::new(),
            regions: 0,
            max_regions: max_regions.max(1),
            stale_boundaries: HashMap::new(),
            stale_regions: 0,
        }
    }

    /// Number of cached locations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.regions
    }

    /// True if no location is cached.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.regions == 0
    }

    /// Returns the location of the region that holds the row. Allocates nothing.
    #[must_use]
    pub fn holding(&self, table: &TableName, row: &[u8]) -> Option<&RegionLocation> {
        self.tables.get(table)?.holding(row)
    }

    /// Returns the location of the target.
    #[must_use]
    pub fn find(&self, table: &TableName, target: &RegionTarget) -> Option<&RegionLocation> {
        match target {
            RegionTarget::Holding(row) => self.holding(table, row),
            RegionTarget::Before(row) => {
                let location = self.tables.get(table)?.before(row)?;
                Some(location).filter(|location| target.is_met_by(&location.region))
            }
        }
    }

    /// Returns the rows that a lookup for `row` is expected to locate: the rows of its former
    /// region, or the gap between the neighbouring cached regions.
    #[must_use]
    pub fn lookup_range(&self, table: &TableName, row: &[u8]) -> RowRange {
        let former = self.stale_boundaries.get(table).and_then(|regions| regions.holding(row));
        if let Some(region) = former {
            return RowRange::of(region);
        }
        let cached = self.tables.get(table);
        let before = cached.and_then(|regions| regions.at_or_before(row));
        let next = cached.and_then(|regions| regions.after(row));
        RowRange {
            start: before.map(|one| one.region.end_key().clone()).unwrap_or_default(),
            end: next.map(|one| one.region.start_key().clone()).unwrap_or_default(),
            exact: false,
        }
    }

    /// Keeps the boundaries of a region whose location was invalidated.
    fn keep_boundaries(&mut self, region: &Arc<Region>) {
        if self.stale_regions >= self.max_regions {
            self.stale_boundaries.clear();
            self.stale_regions = 0;
        }
        let regions = self.stale_boundaries.entry(region.table().clone()).or_default();
        let former = regions.insert(Arc::clone(region));
        self.stale_regions += usize::from(former.is_none());
    }

    /// Removes the boundaries of former regions that start in the new one.
    fn remove_boundaries(&mut self, region: &Region) {
        let Some(regions) = self.stale_boundaries.get_mut(region.table()) else { return };
        self.stale_regions -= regions.remove_inside(region);
        if regions.is_empty() {
            self.stale_boundaries.remove(region.table());
        }
    }

    /// Caches a location, unless a newer one of the region is cached. Returns true if it was cached.
    ///
    /// Regions that start in the new one are removed. A region that starts before it and overlaps
    /// it is kept until a call to it fails.
    ///
    /// If a region with the same start key and a higher id is cached, neither stays cached, and the
    /// next call looks up: either the lookup of the new one was slow, or a snapshot from before a
    /// split or merge was restored.
    pub fn insert(&mut self, location: RegionLocation) -> bool {
        let region = &location.region;
        let regions = self.tables.get_mut(region.table());
        let cached = regions.as_ref().and_then(|regions| regions.get(region.start_key()));
        if let Some(cached) = cached {
            if cached.region.name() == region.name() {
                if location.seq_num < cached.seq_num || location == *cached {
                    return false;
                }
            } else if region.id() < cached.region.id() {
                let removed = regions.and_then(|regions| regions.remove(region.start_key()));
                self.regions -= usize::from(removed.is_some());
                return false;
            }
        }
        self.evict_for(region);
        self.remove_boundaries(region);
        self.tables.entry(region.table().clone()).or_default().insert(location);
        self.regions += 1;
        true
    }

    /// Removes the regions that the new one replaces, and another one if the cache is full.
    fn evict_for(&mut self, region: &Region) {
        if let Some(regions) = self.tables.get_mut(region.table()) {
            self.regions -= regions.remove_inside(region);
        }
        if self.regions >= self.max_regions {
            let evicted = self.tables.values_mut().find_map(RegionMap::pop_first);
            self.regions -= usize::from(evicted.is_some());
        }
        self.tables.retain(|_, regions| !regions.is_empty());
    }

    /// Removes this location, if it is still cached, after a call to it failed.
    pub fn invalidate(&mut self, location: &RegionLocation) {
        let region = &location.region;
        let Some(regions) = self.tables.get_mut(region.table()) else { return };
        let cached = regions.get(region.start_key());
        if cached.is_some_and(|cached| {
            cached.server == location.server && cached.seq_num <= location.seq_num
        }) {
            regions.remove(region.start_key());
            self.regions -= 1;
            self.keep_boundaries(region);
        }
    }

    /// Caches the location to which a call was redirected, and returns it if it is newer than the
    /// cached one. Otherwise invalidates the location of the call: two servers that had a region
    /// one after the other can redirect to each other for minutes.
    pub fn moved(&mut self, location: &RegionLocation, to: &MovedTo) -> Option<RegionLocation> {
        let region = &location.region;
        let cached =
            self.tables.get(region.table()).and_then(|regions| regions.get(region.start_key()));
        let cached_seq_num =
            cached.map_or(location.seq_num, |cached| cached.seq_num.max(location.seq_num));
        if to.seq_num <= cached_seq_num {
            self.invalidate(location);
            return None;
        }
        let server = to.server.clone();
        let newer = RegionLocation { region: Arc::clone(region), server, seq_num: to.seq_num };
        self.insert(newer.clone());
        Some(newer)
    }

    /// True if this location is cached.
    #[must_use]
    pub fn has(&self, location: &RegionLocation) -> bool {
        let regions = self.tables.get(location.region.table());
        regions.and_then(|regions| regions.get(location.region.start_key())) == Some(location)
    }

    /// Removes all locations on a server. Returns their number.
    pub fn server_gone(&mut self, server: &ServerName) -> usize {
        let mut removed = Vec::new();
        for regions in self.tables.values_mut() {
            regions.retain(|location| {
                let kept = location.server != *server;
                if !kept {
                    removed.push(Arc::clone(&location.region));
                }
                kept
            });
        }
        self.recount();
        for region in &removed {
            self.keep_boundaries(region);
        }
        removed.len()
    }

    /// Removes all regions of a table.
    pub fn table_gone(&mut self, table: &TableName) {
        self.tables.remove(table);
        self.stale_regions -=
            self.stale_boundaries.remove(table).map_or(0, |regions| regions.len());
        self.recount();
    }

    fn recount(&mut self) {
        self.tables.retain(|_, regions| !regions.is_empty());
        self.regions = self.tables.values().map(RegionMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn table() -> TableName {
        "t".parse().unwrap()
    }

    fn server(port: u16) -> ServerName {
        ServerName::new("rs", port, 1)
    }

    fn region(start: &str, end: &str, id: u64) -> Arc<Region> {
        Arc::new(Region::new(table(), start.to_owned().into(), end.to_owned().into(), id))
    }

    fn location(start: &str, end: &str, id: u64, port: u16, seq_num: i64) -> RegionLocation {
        RegionLocation { region: region(start, end, id), server: server(port), seq_num }
    }

    fn cache(locations: &[(&str, &str, u64)]) -> RegionCache {
        let mut cache = RegionCache::new(100);
        for (start, end, id) in locations {
            assert!(cache.insert(location(start, end, *id, 1, 5)));
        }
        cache
    }

    #[track_caller]
    fn check(cache: &RegionCache, row: &str, start: Option<&str>) {
        let found = cache
            .holding(&table(), row.as_bytes())
            .map(|location| location.region.start_key().clone());
        assert_eq!(found, start.map(|start| start.to_owned().into()), "{row}");
        let locate = RegionTarget::Holding(row.to_owned().into());
        assert_eq!(cache.find(&table(), &locate), cache.holding(&table(), row.as_bytes()));
    }

    #[test]
    fn a_row_is_found_in_the_region_that_holds_it() {
        let cache = cache(&[("", "b", 1), ("b", "d", 1), ("f", "", 1)]);
        for (row, start) in [
            ("", Some("")),
            ("a", Some("")),
            ("b", Some("b")),
            ("cz", Some("b")),
            ("d", None),
            ("e", None),
            ("f", Some("f")),
            ("zz", Some("f")),
        ] {
            check(&cache, row, start);
        }
        assert_eq!(cache.holding(&"other".parse().unwrap(), b"a"), None);
    }

    #[test]
    fn region_before_a_row_ends_at_or_after_it() {
        let cache = cache(&[("", "b", 1), ("b", "d", 1), ("f", "", 1)]);
        let before = |row: &str| {
            let locate = RegionTarget::Before(row.to_owned().into());
            cache.find(&table(), &locate).map(|location| location.region.start_key().clone())
        };
        assert_eq!(before("b"), Some("".into()));
        assert_eq!(before("c"), Some("b".into()));
        assert_eq!(before("d"), Some("b".into()));
        assert_eq!(before("f"), None);
        assert_eq!(before("g"), Some("f".into()));
        assert_eq!(before(""), Some("f".into()));
    }

    #[test]
    fn daughters_replace_their_parent_and_a_merged_region_replaces_both() {
        let mut cache = cache(&[("a", "z", 1)]);
        assert!(cache.insert(location("a", "m", 2, 1, 5)));
        check(&cache, "n", None);
        assert!(cache.insert(location("m", "z", 2, 1, 5)));
        assert_eq!(cache.len(), 2);
        assert!(cache.insert(location("a", "z", 3, 1, 5)));
        assert_eq!(cache.len(), 1);
        check(&cache, "n", Some("a"));
    }

    #[test]
    fn older_locations_are_ignored() {
        let mut cache = cache(&[("a", "m", 2)]);
        assert!(!cache.insert(location("a", "m", 2, 9, 4)));
        assert_eq!(cache.holding(&table(), b"b").unwrap().server, server(1));
        assert!(cache.insert(location("a", "m", 2, 9, 6)));
        assert_eq!(cache.holding(&table(), b"b").unwrap().server, server(9));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn region_from_before_a_split_is_cached_by_the_second_lookup() {
        let mut cache = cache(&[("a", "m", 2), ("m", "z", 2)]);
        let parent = location("a", "z", 1, 9, 3);
        assert!(!cache.insert(parent.clone()));
        assert_eq!(cache.len(), 1);
        check(&cache, "b", None);
        assert!(cache.insert(parent));
        assert_eq!(cache.len(), 1);
        check(&cache, "n", Some("a"));
    }

    #[test]
    fn failure_invalidates_only_the_location_that_failed() {
        let mut cache = cache(&[("a", "m", 2)]);
        let old = location("a", "m", 2, 1, 5);
        assert!(cache.insert(location("a", "m", 2, 9, 6)));
        cache.invalidate(&old);
        assert_eq!(cache.len(), 1);
        // The same server has opened the region again.
        let mut again = self::cache(&[("a", "m", 2)]);
        assert!(again.insert(location("a", "m", 2, 1, 8)));
        again.invalidate(&old);
        assert_eq!(again.len(), 1);
        again.invalidate(&location("a", "m", 2, 1, 8));
        assert!(again.is_empty());
    }

    #[test]
    fn redirect_is_followed_only_if_it_is_newer() {
        let mut cache = cache(&[("a", "m", 2)]);
        let old = location("a", "m", 2, 1, 5);
        let to = |seq_num| MovedTo { server: server(7), seq_num };
        let newer = cache.moved(&old, &to(8)).unwrap();
        assert_eq!((newer.server.clone(), newer.seq_num), (server(7), 8));
        assert_eq!(cache.holding(&table(), b"b"), Some(&newer));
        // The second server redirects to the first one with the same number.
        let back = MovedTo { server: server(1), seq_num: 8 };
        assert_eq!(cache.moved(&newer, &back), None);
        assert!(cache.is_empty());
        assert_eq!(cache.moved(&old, &to(5)), None);
    }

    #[test]
    fn crashed_server_loses_its_regions_but_its_next_process_does_not() {
        let mut cache = cache(&[("a", "b", 1), ("b", "c", 1)]);
        let restarted = ServerName::new("rs", 1, 2);
        let next = RegionLocation { region: region("c", "d", 1), server: restarted, seq_num: 1 };
        assert!(cache.insert(next));
        assert_eq!(cache.server_gone(&server(1)), 2);
        assert_eq!(cache.len(), 1);
        cache.table_gone(&table());
        assert!(cache.is_empty());
    }

    #[test]
    fn cache_is_bounded() {
        let mut cache = RegionCache::new(3);
        for start in 'a'..='z' {
            let end = char::from(start as u8 + 1).to_string();
            assert!(cache.insert(location(&start.to_string(), &end, 1, 1, 1)));
            assert!(cache.len() <= 3);
            check(&cache, &start.to_string(), Some(&start.to_string()));
        }
    }

    proptest! {
        /// After any updates a region that is found holds the row, and the count is right.
        #[test]
        fn found_region_holds_the_row(
            steps in vec((0..6_u8, 1..6_u8, 0..4_u64, 0..3_u16, 0..4_i64, any::<bool>()), 0..40),
            row in 0..9_u8,
        ) {
            let mut cache = RegionCache::new(5);
            for (start, length, id, port, seq_num, fail) in steps {
                let key = |at: u8| char::from(b'a' + at).to_string();
                let location = location(&key(start), &key(start + length), id, port, seq_num);
                if fail { cache.invalidate(&location) } else { cache.insert(location); }
                prop_assert!(cache.len() <= 5);
                let count: usize = cache.tables.values().map(RegionMap::len).sum();
                prop_assert_eq!(count, cache.len());
            }
            let row = [b'a' + row];
            if let Some(found) = cache.holding(&table(), &row) {
                prop_assert!(found.region.contains(&row));
            }
        }
    }

    #[track_caller]
    fn check_lookup_range(cache: &RegionCache, row: &str, start: &str, end: &str, exact: bool) {
        let range = cache.lookup_range(&table(), row.as_bytes());
        let expected =
            RowRange { start: start.to_owned().into(), end: end.to_owned().into(), exact };
        assert_eq!(range, expected, "{row}");
        assert!(range.contains(row.as_bytes()));
    }

    #[test]
    fn row_without_a_region_is_in_the_gap_between_cached_regions() {
        let cache = cache(&[("b", "d", 1), ("f", "h", 1)]);
        check_lookup_range(&cache, "a", "", "b", false);
        check_lookup_range(&cache, "d", "d", "f", false);
        check_lookup_range(&cache, "e", "d", "f", false);
        check_lookup_range(&cache, "x", "h", "", false);
        let empty = RegionCache::new(10);
        check_lookup_range(&empty, "x", "", "", false);
    }

    #[test]
    fn invalidated_region_keeps_its_boundaries() {
        let mut cache = cache(&[("", "b", 1), ("b", "d", 1), ("d", "", 1)]);
        cache.invalidate(&location("b", "d", 1, 1, 5));
        check_lookup_range(&cache, "c", "b", "d", true);
        assert_eq!(cache.server_gone(&server(1)), 2);
        check_lookup_range(&cache, "a", "", "b", true);
        check_lookup_range(&cache, "z", "d", "", true);
        // A split: the first daughter replaces the parent's boundaries, the rest is a gap.
        assert!(cache.insert(location("d", "m", 2, 2, 6)));
        check_lookup_range(&cache, "z", "m", "", false);
        assert!(cache.insert(location("m", "", 2, 2, 6)));
        // A merge.
        assert!(cache.insert(location("", "d", 3, 2, 9)));
        assert_eq!(cache.stale_regions, 0);
        cache.invalidate(&location("", "d", 3, 2, 9));
        cache.table_gone(&table());
        check_lookup_range(&cache, "a", "", "", false);
        assert_eq!(cache.stale_regions, 0);
    }
}
