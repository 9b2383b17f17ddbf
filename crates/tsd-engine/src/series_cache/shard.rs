//! A shard of the series cache: entries, and an index of them by hash.

use hashbrown::HashTable;
use tsd_storage::widen_hash;

use super::entry::{NewSeries, SeriesEntry};
use crate::ingest::NameText;

/// No entry.
pub(super) const NO_ENTRY: u32 = u32::MAX;

/// Entries and their index. Evicts by the CLOCK algorithm.
#[derive(Debug, Default)]
pub(super) struct Shard {
    index: HashTable<IndexSlot>,
    entries: Vec<SeriesEntry>,
    clock_hand: usize,
}

/// Index slot. Small, so that the index stays in the CPU cache longer than the entries.
#[derive(Clone, Copy, Debug)]
struct IndexSlot {
    hash: u32,
    entry: u32,
}

impl Shard {
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry of that hash, nearly always the right one, or [`NO_ENTRY`].
    #[inline]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        self.index
            .find(widen_hash(hash), |slot| slot.hash == hash)
            .map_or(NO_ENTRY, |slot| slot.entry)
    }

    #[inline]
    pub(super) fn entry(&self, at: u32) -> Option<&SeriesEntry> {
        self.entries.get(at as usize)
    }

    pub(super) fn find(
        &self,
        hash: u32,
        is: impl Fn(&SeriesEntry) -> bool,
    ) -> Option<&SeriesEntry> {
        self.entry(self.position(hash, is)?)
    }

    fn position(&self, hash: u32, is: impl Fn(&SeriesEntry) -> bool) -> Option<u32> {
        let same = |slot: &IndexSlot| slot.hash == hash && self.entry(slot.entry).is_some_and(&is);
        self.index.find(widen_hash(hash), same).map(|slot| slot.entry)
    }

    /// Inserts a series, or updates its last notified row. Evicts an entry, and returns true, if
    /// there are `limit` already. `hash_of` returns the hash of an entry.
    pub(super) fn insert(
        &mut self,
        limit: usize,
        hash: u32,
        text: NameText,
        series: NewSeries<'_>,
        hash_of: impl Fn(&SeriesEntry) -> u32,
    ) -> bool {
        if let Some(at) =
            self.position(hash, |entry| entry.matches(text, series.metric, series.tags))
        {
            if let Some(entry) = self.entries.get_mut(at as usize) {
                entry.set_last_notified(series.last_notified);
            }
            return false;
        }
        let entry = SeriesEntry::new(text, series);
        let (at, evicted) = if self.entries.len() < limit {
            self.entries.push(entry);
            (self.entries.len() - 1, false)
        } else {
            let Some((at, free)) = self.evict(hash_of) else { return false };
            *free = entry;
            (at, true)
        };
        let slot = IndexSlot { hash, entry: at as u32 };
        self.index.insert_unique(widen_hash(hash), slot, |slot| widen_hash(slot.hash));
        evicted
    }

    /// Removes an entry that was not used since the clock hand last passed it from the index.
    /// Returns its position.
    fn evict(
        &mut self,
        hash_of: impl Fn(&SeriesEntry) -> u32,
    ) -> Option<(usize, &mut SeriesEntry)> {
        let Self { index, entries, clock_hand } = self;
        let at = loop {
            let at = if *clock_hand < entries.len() { *clock_hand } else { 0 };
            *clock_hand = at + 1;
            // Ends in the second round at the latest: the first clears every mark.
            if !entries.get_mut(at)?.take_used() {
                break at;
            }
        };
        let entry = entries.get_mut(at)?;
        let slot = index.find_entry(widen_hash(hash_of(entry)), |slot| slot.entry as usize == at);
        slot.ok()?.remove();
        Some((at, entry))
    }
}
