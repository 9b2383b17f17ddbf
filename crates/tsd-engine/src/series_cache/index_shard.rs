//! A shard of the index of the series cache: numbers of entries by hash.

use hashbrown::HashTable;
use tsd_storage::widen_hash;

/// Stands for no entry.
pub(super) const NO_ENTRY: u32 = u32::MAX;

/// Numbers of the entries of some hashes.
#[derive(Debug, Default)]
pub(super) struct IndexShard {
    slots: HashTable<IndexSlot>,
}

/// Index slot. Small, so that the index stays in the CPU cache longer than the entries.
#[derive(Clone, Copy, Debug)]
struct IndexSlot {
    hash: u32,
    entry: u32,
}

impl IndexShard {
    /// An entry with this hash, nearly always the right one; [`NO_ENTRY`] if no entry has it.
    #[inline]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        self.slots
            .find(widen_hash(hash), |slot| slot.hash == hash)
            .map_or(NO_ENTRY, |slot| slot.entry)
    }

    /// The entry with this hash for which `is` is true.
    pub(super) fn position(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let same = |slot: &IndexSlot| slot.hash == hash && is(slot.entry);
        self.slots.find(widen_hash(hash), same).map(|slot| slot.entry)
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, hash: u32, entry: u32) {
        let slot = IndexSlot { hash, entry };
        self.slots.insert_unique(widen_hash(hash), slot, |slot| widen_hash(slot.hash));
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, hash: u32, entry: u32) {
        if let Ok(slot) = self.slots.find_entry(widen_hash(hash), |slot| slot.entry == entry) {
            slot.remove();
        }
    }
}
