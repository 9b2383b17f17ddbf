//! Blocks of arenas that are gone, for those to come.
//!
//! Generations of the memtable come and go at the speed of the writes. Memory that each of them gave
//! back to the system had to be cleared for the next one, page by page, by the thread that writes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the blocks that are kept, and of the larger part of an arena's.
pub(super) const BLOCK: usize = 256 * 1024;

/// Keeps blocks, as long as they and what the arenas have do not come to more than a bound.
#[derive(Debug)]
pub(crate) struct SpareBlocks {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    blocks: Vec<Box<[u8]>>,
    /// Bytes of all arenas.
    used: usize,
}

impl State {
    const fn spare(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    fn trim(&mut self, limit: usize) {
        let room = limit.saturating_sub(self.used) / BLOCK;
        self.blocks.truncate(room);
    }
}

impl SpareBlocks {
    /// Keeps nothing yet; with what is used `limit` bytes at most.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().spare()
    }

    /// A block for an arena. What it holds is left from the last one.
    pub(super) fn take(&self, len: usize) -> Box<[u8]> {
        let mut state = self.lock();
        state.used += len;
        let block = if len == BLOCK { state.blocks.pop() } else { None };
        state.trim(self.limit);
        drop(state);
        block.unwrap_or_else(|| vec![0; len].into_boxed_slice())
    }

    /// Takes blocks of an arena back.
    pub(super) fn give(&self, blocks: impl IntoIterator<Item = Box<[u8]>>) {
        let mut state = self.lock();
        for block in blocks {
            state.used = state.used.saturating_sub(block.len());
            if block.len() == BLOCK {
                state.blocks.push(block);
            }
        }
        state.trim(self.limit);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_kept_up_to_the_bound_that_counts_what_is_used() {
        let spare = SpareBlocks::new(4 * BLOCK);
        let blocks: Vec<_> = (0..6).map(|_| spare.take(BLOCK)).collect();
        let small = spare.take(BLOCK / 2);
        assert_eq!(spare.bytes(), 0);
        spare.give(blocks);
        assert_eq!(spare.bytes(), 3 * BLOCK, "half a block is used");
        spare.give([small]);
        assert_eq!(spare.bytes(), 3 * BLOCK, "and not kept");
        let mut block = spare.take(BLOCK);
        assert_eq!((block.len(), spare.bytes()), (BLOCK, 2 * BLOCK));
        let large = spare.take(3 * BLOCK);
        assert_eq!(spare.bytes(), 0, "it makes room");
        block.fill(7);
        spare.give([block, large]);
        assert_eq!(spare.bytes(), BLOCK);
        assert_eq!(spare.take(BLOCK).first(), Some(&7), "as it was left");
    }
}
