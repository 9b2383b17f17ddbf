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
}

impl RegionCache {
    /// A cache of at most so many regions. One more drives another out, which costs a lookup.
    #[must_use]
    pub fn new(max_regions: usize) -> Self {
        Self { tables: HashMap::new(), regions: 0, max_regions: max_regions.max(1) }
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
        let start = region.start_key().clone();
        self.tables.entry(region.table().clone()).or_default().insert(start, location);
        self.regions += 1;
        true
    }

    /// Takes out what the region replaces, and another one if there is no room.
    fn make_room(&mut self, region: &Region) {
        if let Some(regions) = self.tables.get_mut(region.table()) {
            let inside: Vec<_> = regions
                .range::<Bytes, _>(region.start_key()..)
                .take_while(|(start, _)| region.ends_behind(start))
                .map(|(start, _)| start.clone())
                .collect();
            for start in inside {
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
        let before = self.regions;
        for regions in self.tables.values_mut() {
            regions.retain(|_, location| location.server != *server);
        }
        self.recount();
        before - self.regions
    }

    /// The table is gone: forget its regions.
    pub fn table_gone(&mut self, table: &TableName) {
        self.tables.remove(table);
        self.recount();
    }

    fn recount(&mut self) {
        self.tables.retain(|_, regions| !regions.is_empty());
        self.regions = self.tables.values().map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests;
