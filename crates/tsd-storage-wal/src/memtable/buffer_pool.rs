//! Pool of the blocks of freed arenas.
//!
//! Memory that goes back to the system is zeroed page by page at its next allocation, by the thread
//! that writes. Memtables are created and freed at the rate of the writes, so they share blocks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a pooled block. Arenas allocate most of their memory in blocks of this size.
pub(super) const BLOCK: usize = 256 * 1024;

/// Free blocks. Together with the memory in use they stay below a bound.
#[derive(Debug)]
pub(crate) struct BufferPool {
    limit: usize,
    blocks: Mutex<PoolBlocks>,
}

#[derive(Debug, Default)]
struct PoolBlocks {
    free: Vec<Box<[u8]>>,
    /// Bytes in use by arenas.
    used: usize,
}

impl PoolBlocks {
    const fn free_bytes(&self) -> usize {
        self.free.len() * BLOCK
    }

    fn trim(&mut self, limit: usize) {
        let max_free = limit.saturating_sub(self.used) / BLOCK;
        self.free.truncate(max_free);
    }
}

impl BufferPool {
    /// An empty pool. Free blocks and memory in use are bounded by `limit` bytes together; memory
    /// in use alone may exceed it.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, blocks: Mutex::default() }
    }

    /// Bytes of the free blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().free_bytes()
    }

    /// Returns a block of `len` bytes, with arbitrary content.
    pub(super) fn acquire(&self, len: usize) -> Box<[u8]> {
        let mut blocks = self.lock();
        blocks.used += len;
        let block = if len == BLOCK { blocks.free.pop() } else { None };
        blocks.trim(self.limit);
        drop(blocks);
        block.unwrap_or_else(|| vec![0; len].into_boxed_slice())
    }

    /// Takes blocks back.
    pub(super) fn release(&self, released: impl IntoIterator<Item = Box<[u8]>>) {
        let mut blocks = self.lock();
        for block in released {
            blocks.used = blocks.used.saturating_sub(block.len());
            if block.len() == BLOCK {
                blocks.free.push(block);
            }
        }
        blocks.trim(self.limit);
    }

    fn lock(&self) -> MutexGuard<'_, PoolBlocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_and_used_blocks_are_bounded_together() {
        let pool = BufferPool::new(4 * BLOCK);
        let blocks: Vec<_> = (0..6).map(|_| pool.acquire(BLOCK)).collect();
        let small = pool.acquire(BLOCK / 2);
        assert_eq!(pool.bytes(), 0);
        pool.release(blocks);
        assert_eq!(pool.bytes(), 3 * BLOCK, "half a block is used");
        pool.release([small]);
        assert_eq!(pool.bytes(), 3 * BLOCK, "and not pooled");
        let mut block = pool.acquire(BLOCK);
        assert_eq!((block.len(), pool.bytes()), (BLOCK, 2 * BLOCK));
        let large = pool.acquire(3 * BLOCK);
        assert_eq!(pool.bytes(), 0, "free blocks are dropped for it");
        block.fill(7);
        pool.release([block, large]);
        assert_eq!(pool.bytes(), BLOCK);
        assert_eq!(pool.acquire(BLOCK).first(), Some(&7), "content is not cleared");
    }
}
