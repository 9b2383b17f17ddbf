//! What is known of where regions are.
//!
//! Knowledge gets old without notice: regions split and merge in silence, move, and die with their
//! server. So an answer about a location changes the cache only if the cache still holds that very
//! location: thousands of calls may fail on the old one while the new one is already known.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;

use super::{
    info::{Region, RegionLocation},
    meta::RegionTarget,
};
use crate::{exception::MovedTo, server_name::ServerName, table_name::TableName};

/// Locations by table and start key.
#[derive(Debug)]
pub struct RegionCache {
    tables: HashMap<TableName, BTreeMap<Bytes, RegionLocation>>,
    regions: usize,
    max_regions: usize,
    /// Regions whose location was forgotten and not learned again: their edges still hold, as a rule.
    homeless: HashMap<TableName, BTreeMap<Bytes, Arc<Region>>>,
    homeless_regions: usize,
}

/// Rows that will be found by one lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// First row.
    pub start: Bytes,
    /// Row behind the last; empty: there is none behind.
    pub end: Bytes,
    /// Whether it is one region. If not, it is what lies between known regions.
    pub exact: bool,
}

impl RowRange {
    /// Whether the row is one of them.
    #[must_use]
    pub fn contains(&self, row: &[u8]) -> bool {
        self.start <= row && (self.end.is_empty() || row < self.end)
    }
}

impl RegionCache {
    /// A cache of at most so many regions. One more drives another out, which costs a lookup.
    #[must_use]
    pub fn new(max_regions: usize) -> Self {
        Self {
            tables: HashMap::new(),
            regions: 0,
            max_regions: max_regions.max(1),
            homeless: HashMap::new(),
            homeless_regions: 0,
        }
    }

    /// Regions that are known.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.regions
    }

    /// Whether nothing is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.regions == 0
    }

    /// The region that holds the row, without building anything.
    #[must_use]
    pub fn holding(&self, table: &TableName, row: &[u8]) -> Option<&RegionLocation> {
        let range = (Bound::Unbounded, Bound::Included(row));
        let (_, location) = self.tables.get(table)?.range::<[u8], _>(range).next_back()?;
        Some(location).filter(|location| location.region.ends_behind(row))
    }

    /// The region that is looked for.
    #[must_use]
    pub fn find(&self, table: &TableName, locate: &RegionTarget) -> Option<&RegionLocation> {
        match locate {
            RegionTarget::Holding(row) => self.holding(table, row),
            RegionTarget::Before(row) => {
                let regions = self.tables.get(table)?;
                let (_, location) = if row.is_empty() {
                    regions.last_key_value()?
                } else {
                    regions
                        .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&row[..])))
                        .next_back()?
                };
                Some(location).filter(|location| locate.is_met_by(&location.region))
            }
        }
    }

    /// Rows around one that is in no known region: those of the region it was in before, or all up to
    /// the next known ones.
    #[must_use]
    pub fn span(&self, table: &TableName, row: &[u8]) -> RowRange {
        let up_to = (Bound::Unbounded, Bound::Included(row));
        let behind = (Bound::Excluded(row), Bound::Unbounded);
        let former = self
            .homeless
            .get(table)
            .and_then(|regions| regions.range::<[u8], _>(up_to).next_back())
            .map(|(_, region)| region)
            .filter(|region| region.ends_behind(row));
        if let Some(region) = former {
            let (start, end) = (region.start_key().clone(), region.end_key().clone());
            return RowRange { start, end, exact: true };
        }
        let known = self.tables.get(table);
        let before = known.and_then(|regions| regions.range::<[u8], _>(up_to).next_back());
        let next = known.and_then(|regions| regions.range::<[u8], _>(behind).next());
        RowRange {
            start: before.map(|(_, one)| one.region.end_key().clone()).unwrap_or_default(),
            end: next.map(|(start, _)| start.clone()).unwrap_or_default(),
            exact: false,
        }
    }

    /// Keeps the edges of a region whose location is forgotten.
    fn evict(&mut self, region: &Arc<Region>) {
        if self.homeless_regions >= self.max_regions {
            self.homeless.clear();
            self.homeless_regions = 0;
        }
        let regions = self.homeless.entry(region.table().clone()).or_default();
        let former = regions.insert(region.start_key().clone(), Arc::clone(region));
        self.homeless_regions += usize::from(former.is_none());
    }

    /// Forgets the edges of former regions that begin in the new one.
    fn settle(&mut self, region: &Region) {
        let Some(regions) = self.homeless.get_mut(region.table()) else { return };
        for start in region.starts_inside(regions) {
            self.homeless_regions -= usize::from(regions.remove(&start).is_some());
        }
        if regions.is_empty() {
            self.homeless.remove(region.table());
        }
    }

    /// Learns a location, unless a younger one of the region, or a younger region in its place, is
    /// known. Returns whether it was news.
    ///
    /// Regions that start inside the new one go. One that starts before it and reaches into it
    /// stays: it fails by itself when it is asked.
    pub fn insert(&mut self, location: RegionLocation) -> bool {
        let region = &location.region;
        let known =
            self.tables.get(region.table()).and_then(|regions| regions.get(region.start_key()));
        if let Some(known) = known {
            let stale = if known.region.name() == region.name() {
                location.seq_num < known.seq_num || location == *known
            } else {
                region.id() < known.region.id()
            };
            if stale {
                return false;
            }
        }
        self.make_room(region);
        self.settle(region);
        let start = region.start_key().clone();
        self.tables.entry(region.table().clone()).or_default().insert(start, location);
        self.regions += 1;
        true
    }

    /// Takes out what the region replaces, and another one if there is no room.
    fn make_room(&mut self, region: &Region) {
        if let Some(regions) = self.tables.get_mut(region.table()) {
            for start in region.starts_inside(regions) {
                self.regions -= usize::from(regions.remove(&start).is_some());
            }
        }
        if self.regions >= self.max_regions {
            let victim = self.tables.values_mut().find_map(BTreeMap::pop_first);
            self.regions -= usize::from(victim.is_some());
        }
        self.tables.retain(|_, regions| !regions.is_empty());
    }

    /// A call to this location was turned away: forget it, if it is still what is known.
    pub fn failed(&mut self, location: &RegionLocation) {
        let region = &location.region;
        let Some(regions) = self.tables.get_mut(region.table()) else { return };
        let known = regions.get(region.start_key());
        if known.is_some_and(|known| {
            known.server == location.server && known.seq_num <= location.seq_num
        }) {
            regions.remove(region.start_key());
            self.regions -= 1;
            self.evict(region);
        }
    }

    /// A call to this location was sent elsewhere. Returns the new location if that is news; if not,
    /// the location is forgotten as one that failed.
    ///
    /// Two servers that had a region one after the other can send clients to each other for minutes.
    pub fn moved(&mut self, location: &RegionLocation, to: &MovedTo) -> Option<RegionLocation> {
        let region = &location.region;
        let known =
            self.tables.get(region.table()).and_then(|regions| regions.get(region.start_key()));
        let known_seq_num =
            known.map_or(location.seq_num, |known| known.seq_num.max(location.seq_num));
        if to.seq_num <= known_seq_num {
            self.failed(location);
            return None;
        }
        let server = to.server.clone();
        let news = RegionLocation { region: Arc::clone(region), server, seq_num: to.seq_num };
        self.insert(news.clone());
        Some(news)
    }

    /// The server is gone: forget all that it had. Returns how many regions that were.
    pub fn server_gone(&mut self, server: &ServerName) -> usize {
        let mut gone = Vec::new();
        for regions in self.tables.values_mut() {
            regions.retain(|_, location| {
                let stays = location.server != *server;
                if !stays {
                    gone.push(Arc::clone(&location.region));
                }
                stays
            });
        }
        self.recount();
        for region in &gone {
            self.evict(region);
        }
        gone.len()
    }

    /// The table is gone: forget its regions.
    pub fn table_gone(&mut self, table: &TableName) {
        self.tables.remove(table);
        let homeless = self.homeless.remove(table).map_or(0, |regions| regions.len());
        self.homeless_regions -= homeless;
        self.recount();
    }

    fn recount(&mut self) {
        self.tables.retain(|_, regions| !regions.is_empty());
        self.regions = self.tables.values().map(BTreeMap::len).sum();
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
    fn the_region_before_a_row_ends_where_the_row_begins() {
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
    fn daughters_replace_their_parent_and_a_merged_region_its_parts() {
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
    fn an_older_region_or_an_older_location_is_no_news() {
        let mut cache = cache(&[("a", "m", 2)]);
        assert!(!cache.insert(location("a", "z", 1, 9, 50)));
        assert!(!cache.insert(location("a", "m", 2, 9, 4)));
        assert_eq!(cache.holding(&table(), b"b").unwrap().server, server(1));
        assert!(cache.insert(location("a", "m", 2, 9, 6)));
        assert_eq!(cache.holding(&table(), b"b").unwrap().server, server(9));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_failure_forgets_only_the_location_that_failed() {
        let mut cache = cache(&[("a", "m", 2)]);
        let old = location("a", "m", 2, 1, 5);
        assert!(cache.insert(location("a", "m", 2, 9, 6)));
        cache.failed(&old);
        assert_eq!(cache.len(), 1);
        // The same server opened it again meanwhile.
        let mut again = self::cache(&[("a", "m", 2)]);
        assert!(again.insert(location("a", "m", 2, 1, 8)));
        again.failed(&old);
        assert_eq!(again.len(), 1);
        again.failed(&location("a", "m", 2, 1, 8));
        assert!(again.is_empty());
    }

    #[test]
    fn a_move_is_believed_only_if_it_is_younger() {
        let mut cache = cache(&[("a", "m", 2)]);
        let old = location("a", "m", 2, 1, 5);
        let to = |seq_num| MovedTo { server: server(7), seq_num };
        let news = cache.moved(&old, &to(8)).unwrap();
        assert_eq!((news.server.clone(), news.seq_num), (server(7), 8));
        assert_eq!(cache.holding(&table(), b"b"), Some(&news));
        // The second server sends back to the first one with the same number.
        let back = MovedTo { server: server(1), seq_num: 8 };
        assert_eq!(cache.moved(&news, &back), None);
        assert!(cache.is_empty());
        assert_eq!(cache.moved(&old, &to(5)), None);
    }

    #[test]
    fn a_gone_server_takes_its_regions_along_but_not_those_of_its_next_life() {
        let mut cache = cache(&[("a", "b", 1), ("b", "c", 1)]);
        let reborn = ServerName::new("rs", 1, 2);
        let next = RegionLocation { region: region("c", "d", 1), server: reborn, seq_num: 1 };
        assert!(cache.insert(next));
        assert_eq!(cache.server_gone(&server(1)), 2);
        assert_eq!(cache.len(), 1);
        cache.table_gone(&table());
        assert!(cache.is_empty());
    }

    #[test]
    fn the_bound_holds() {
        let mut cache = RegionCache::new(3);
        for start in 'a'..='z' {
            let end = char::from(start as u8 + 1).to_string();
            assert!(cache.insert(location(&start.to_string(), &end, 1, 1, 1)));
            assert!(cache.len() <= 3);
            check(&cache, &start.to_string(), Some(&start.to_string()));
        }
    }

    proptest! {
        /// Whatever comes, regions never overlap one that is younger and starts at the same key, and
        /// the count is the truth.
        #[test]
        fn what_is_found_holds_the_row(
            steps in vec((0..6_u8, 1..6_u8, 0..4_u64, 0..3_u16, 0..4_i64, any::<bool>()), 0..40),
            row in 0..9_u8,
        ) {
            let mut cache = RegionCache::new(5);
            for (start, length, id, port, seq_num, fail) in steps {
                let key = |at: u8| char::from(b'a' + at).to_string();
                let location = location(&key(start), &key(start + length), id, port, seq_num);
                if fail { cache.failed(&location) } else { cache.insert(location); }
                prop_assert!(cache.len() <= 5);
                let count: usize = cache.tables.values().map(BTreeMap::len).sum();
                prop_assert_eq!(count, cache.len());
            }
            let row = [b'a' + row];
            if let Some(found) = cache.holding(&table(), &row) {
                prop_assert!(found.region.contains(&row));
            }
        }
    }

    #[track_caller]
    fn check_span(cache: &RegionCache, row: &str, start: &str, end: &str, exact: bool) {
        let span = cache.span(&table(), row.as_bytes());
        let expected =
            RowRange { start: start.to_owned().into(), end: end.to_owned().into(), exact };
        assert_eq!(span, expected, "{row}");
        assert!(span.contains(row.as_bytes()));
    }

    #[test]
    fn a_row_without_a_region_lies_between_the_known_ones() {
        let cache = cache(&[("b", "d", 1), ("f", "h", 1)]);
        check_span(&cache, "a", "", "b", false);
        check_span(&cache, "d", "d", "f", false);
        check_span(&cache, "e", "d", "f", false);
        check_span(&cache, "x", "h", "", false);
        let empty = RegionCache::new(10);
        check_span(&empty, "x", "", "", false);
    }

    #[test]
    fn a_region_that_lost_its_server_keeps_its_edges() {
        let mut cache = cache(&[("", "b", 1), ("b", "d", 1), ("d", "", 1)]);
        cache.failed(&location("b", "d", 1, 1, 5));
        check_span(&cache, "c", "b", "d", true);
        assert_eq!(cache.server_gone(&server(1)), 2);
        check_span(&cache, "a", "", "b", true);
        check_span(&cache, "z", "d", "", true);
        // Split: what is learned replaces what was, the rest is open.
        assert!(cache.insert(location("d", "m", 2, 2, 6)));
        check_span(&cache, "z", "m", "", false);
        assert!(cache.insert(location("m", "", 2, 2, 6)));
        // Merged.
        assert!(cache.insert(location("", "d", 3, 2, 9)));
        assert_eq!(cache.homeless_regions, 0);
        cache.failed(&location("", "d", 3, 2, 9));
        cache.table_gone(&table());
        check_span(&cache, "a", "", "", false);
        assert_eq!(cache.homeless_regions, 0);
    }
}
