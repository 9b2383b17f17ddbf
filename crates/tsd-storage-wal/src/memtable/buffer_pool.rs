//! Pool for the blocks of freed arenas.
//!
//! The system zeroes memory page by page when it is allocated again, on the thread that writes. Memtables are
//! created and freed at the rate of the writes, so they share blocks instead.

use parking_lot::Mutex;

/// Bytes of a pooled block. Arenas allocate most of their memory in blocks of this size.
pub(super) const BLOCK: usize = 256 * 1024;

/// Keeps free blocks. Free blocks and memory in use together stay below a limit.
#[derive(Debug)]
pub(crate) struct BufferPool {
    limit: usize,
    blocks: Mutex<PoolBlocks>,
}

#[derive(Debug, Default)]
struct PoolBlocks {
    free: Vec<Box<[u8]>>,
    /// Bytes that arenas use.
    used: usize,
}

impl PoolBlocks {
    fn trim(&mut self, limit: usize) {
        let max_free = limit.saturating_sub(self.used) / BLOCK;
        self.free.truncate(max_free);
    }
}

impl BufferPool {
    /// Creates an empty pool. `limit` bounds free blocks and memory in use together, in bytes. Memory in use
    /// alone may exceed it.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, blocks: Mutex::default() }
    }

    /// Bytes of the free blocks.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.blocks.lock().free.len() * BLOCK
    }

    /// Returns a block of `len` bytes with arbitrary content.
    pub(super) fn acquire(&self, len: usize) -> Box<[u8]> {
        let mut blocks = self.blocks.lock();
        blocks.used += len;
        let block = if len == BLOCK { blocks.free.pop() } else { None };
        blocks.trim(self.limit);
        drop(blocks);
        block.unwrap_or_else(|| vec![0; len].into_boxed_slice())
    }

    /// Returns blocks to the pool.
    pub(super) fn release(&self, released: impl IntoIterator<Item = Box<[u8]>>) {
        let mut blocks = self.blocks.lock();
        for block in released {
            blocks.used = blocks.used.saturating_sub(block.len());
            if block.len() == BLOCK {
                blocks.free.push(block);
            }
        }
        blocks.trim(self.limit);
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
