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
    meta::Locate,
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
pub struct Span {
    /// First row.
    pub start: Bytes,
    /// Row behind the last; empty: there is none behind.
    pub end: Bytes,
    /// Whether it is one region. If not, it is what lies between known regions.
    pub exact: bool,
}

impl Span {
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
    pub fn find(&self, table: &TableName, locate: &Locate) -> Option<&RegionLocation> {
        match locate {
            Locate::Holding(row) => self.holding(table, row),
            Locate::Before(row) => {
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
    pub fn span(&self, table: &TableName, row: &[u8]) -> Span {
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
            return Span { start, end, exact: true };
        }
        let known = self.tables.get(table);
        let before = known.and_then(|regions| regions.range::<[u8], _>(up_to).next_back());
        let next = known.and_then(|regions| regions.range::<[u8], _>(behind).next());
        Span {
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
mod tests;
