//! Values by region of one table, found by any row of the region.
//!
//! The region cache, the buffer's queues and the grouping of a batch all use this map.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use bytes::Bytes;

use super::info::{Region, RegionLocation};

/// A value that belongs to a region.
pub(crate) trait HasRegion {
    /// Returns the region.
    fn region(&self) -> &Region;
}

impl HasRegion for RegionLocation {
    fn region(&self) -> &Region {
        &self.region
    }
}

impl HasRegion for Arc<Region> {
    fn region(&self) -> &Region {
        self
    }
}

impl<T> HasRegion for (Arc<Region>, T) {
    fn region(&self) -> &Region {
        &self.0
    }
}

/// Values by the start key of their region.
#[derive(Debug)]
pub(crate) struct RegionMap<T>(BTreeMap<Bytes, T>);

impl<T> Default for RegionMap<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: HasRegion> RegionMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    pub(crate) fn get(&self, start_key: &[u8]) -> Option<&T> {
        self.0.get(start_key)
    }

    pub(crate) fn get_mut(&mut self, start_key: &[u8]) -> Option<&mut T> {
        self.0.get_mut(start_key)
    }

    /// Returns the value of the region that holds the row.
    pub(crate) fn holding(&self, row: &[u8]) -> Option<&T> {
        self.at_or_before(row).filter(|value| value.region().ends_after(row))
    }

    /// As [`Self::holding`].
    pub(crate) fn holding_mut(&mut self, row: &[u8]) -> Option<&mut T> {
        let range = (Bound::Unbounded, Bound::Included(row));
        let (_, value) = self.0.range_mut::<[u8], _>(range).next_back()?;
        Some(value).filter(|value| value.region().ends_after(row))
    }

    /// Returns the value of the last region that starts at or before the row.
    pub(crate) fn at_or_before(&self, row: &[u8]) -> Option<&T> {
        let range = (Bound::Unbounded, Bound::Included(row));
        self.0.range::<[u8], _>(range).next_back().map(|(_, value)| value)
    }

    /// Returns the value of the last region that starts before the row; of the last of all if the
    /// row is empty.
    pub(crate) fn before(&self, row: &[u8]) -> Option<&T> {
        if row.is_empty() {
            return self.0.values().next_back();
        }
        let range = (Bound::Unbounded, Bound::Excluded(row));
        self.0.range::<[u8], _>(range).next_back().map(|(_, value)| value)
    }

    /// Returns the value of the first region that starts after the row.
    pub(crate) fn after(&self, row: &[u8]) -> Option<&T> {
        let range = (Bound::Excluded(row), Bound::Unbounded);
        self.0.range::<[u8], _>(range).next().map(|(_, value)| value)
    }

    /// Returns the start keys that lie in the region.
    pub(crate) fn starts_inside(&self, region: &Region) -> Vec<Bytes> {
        self.0
            .range::<Bytes, _>(region.start_key()..)
            .take_while(|(start, _)| region.ends_after(start))
            .map(|(start, _)| start.clone())
            .collect()
    }

    /// Inserts a value. Returns the one with the same start key.
    pub(crate) fn insert(&mut self, value: T) -> Option<T> {
        self.0.insert(value.region().start_key().clone(), value)
    }

    pub(crate) fn remove(&mut self, start_key: &[u8]) -> Option<T> {
        self.0.remove(start_key)
    }

    /// Removes the regions that start in the given one. Returns their number.
    pub(crate) fn remove_inside(&mut self, region: &Region) -> usize {
        let starts = self.starts_inside(region);
        for start in &starts {
            self.0.remove(start);
        }
        starts.len()
    }

    pub(crate) fn pop_first(&mut self) -> Option<T> {
        self.0.pop_first().map(|(_, value)| value)
    }

    /// Removes the values for which `keep` is false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.0.retain(|_, value| keep(value));
    }
}
