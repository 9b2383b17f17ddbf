//! A part of the series: an index by hash, and the entries.

use hashbrown::HashTable;

use super::entry::{Entry, NewSeries};
use crate::ingest::NameText;

/// Stands for no entry.
pub(super) const NO_ENTRY: u32 = u32::MAX;

/// Entries with an index, and the hand of a clock over them.
#[derive(Debug, Default)]
pub(super) struct Shard {
    index: HashTable<Slot>,
    entries: Vec<Entry>,
    hand: usize,
}

/// What the index holds: small, so that it stays in the processor's caches longer than the entries do.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    entry: u32,
}

/// Spreads a short hash over 64 bits, as the index wants it.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Shard {
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry of that hash, which nearly always is the one sought; else [`NO_ENTRY`].
    #[inline]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        self.index.find(spread(hash), |slot| slot.hash == hash).map_or(NO_ENTRY, |slot| slot.entry)
    }

    #[inline]
    pub(super) fn entry(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)
    }

    pub(super) fn find(&self, hash: u32, is: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        self.entry(self.position(hash, is)?)
    }

    fn position(&self, hash: u32, is: impl Fn(&Entry) -> bool) -> Option<u32> {
        let same = |slot: &Slot| slot.hash == hash && self.entry(slot.entry).is_some_and(&is);
        self.index.find(spread(hash), same).map(|slot| slot.entry)
    }

    /// Takes a series in, or its last_notified where it is there. With `limit` entries, one of them goes; then the
    /// answer is true. `hash_of` gives the hash of an entry.
    pub(super) fn insert(
        &mut self,
        limit: usize,
        hash: u32,
        text: NameText,
        series: NewSeries<'_>,
        hash_of: impl Fn(&Entry) -> u32,
    ) -> bool {
        if let Some(at) = self.position(hash, |entry| entry.is(text, series.metric, series.tags)) {
            if let Some(entry) = self.entries.get_mut(at as usize) {
                entry.set_last_notified(series.last_notified);
            }
            return false;
        }
        let entry = Entry::new(text, series);
        let (at, evicted) = if self.entries.len() < limit {
            self.entries.push(entry);
            (self.entries.len() - 1, false)
        } else {
            let Some((at, place)) = self.evict(hash_of) else { return false };
            *place = entry;
            (at, true)
        };
        let slot = Slot { hash, entry: at as u32 };
        self.index.insert_unique(spread(hash), slot, |slot| spread(slot.hash));
        evicted
    }

    /// Takes an entry out of the index that was not used since the hand last came by, and gives its place.
    fn evict(&mut self, hash_of: impl Fn(&Entry) -> u32) -> Option<(usize, &mut Entry)> {
        let Self { index, entries, hand } = self;
        let at = loop {
            let at = if *hand < entries.len() { *hand } else { 0 };
            *hand = at + 1;
            // Ends in the second round at the latest: the first leaves no entry used.
            if !entries.get_mut(at)?.take_used() {
                break at;
            }
        };
        let place = entries.get_mut(at)?;
        let slot = index.find_entry(spread(hash_of(place)), |slot| slot.entry as usize == at);
        slot.ok()?.remove();
        Some((at, place))
    }
}
