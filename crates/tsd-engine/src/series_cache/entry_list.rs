//! The entries of the series cache, numbered in the order of their insertion.
//!
//! They are in blocks, because moving a million entries would hold the lock of the cache for long. The CLOCK algorithm
//! chooses the entries to evict.

use super::entry::SeriesEntry;

/// Entries of a block.
const BLOCK: usize = 512;

/// Most used entries that a search for an unused one passes, so that the search is short.
const MAX_PASSED: usize = 4_096;

/// All entries.
#[derive(Debug, Default)]
pub(super) struct EntryList {
    blocks: Vec<Vec<SeriesEntry>>,
    len: usize,
    clock_hand: usize,
}

impl EntryList {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&SeriesEntry> {
        self.blocks.get(at as usize / BLOCK)?.get(at as usize % BLOCK)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut SeriesEntry> {
        self.blocks.get_mut(at as usize / BLOCK)?.get_mut(at as usize % BLOCK)
    }

    /// Adds an entry. Returns its number.
    pub(super) fn push(&mut self, entry: SeriesEntry) -> u32 {
        let at = self.len;
        self.len += 1;
        if at.is_multiple_of(BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(entry);
        }
        at as u32
    }

    /// Number of the entry to replace: an entry that was not used since the clock hand last passed it. After too many
    /// used entries, it is the next one.
    pub(super) fn next_victim(&mut self) -> u32 {
        let mut passed = 0;
        loop {
            let at = if self.clock_hand < self.len { self.clock_hand } else { 0 };
            self.clock_hand = at + 1;
            passed += 1;
            let used = self.get_mut(at as u32).is_some_and(SeriesEntry::take_used);
            if !used || passed > MAX_PASSED {
                return at as u32;
            }
        }
    }
}
