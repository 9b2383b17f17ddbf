//! Memory of the rows of a memtable: chunks in large blocks. Chunk sizes are powers of two.
//!
//! A row grows by moving to a chunk of twice the size; the old chunk goes to a free list. All memory is freed at
//! once with the memtable, because a million small frees on another thread cost more than the writes. Later
//! memtables reuse the blocks ([`BufferPool`]).

use std::sync::Arc;

use super::buffer_pool::{BLOCK, BufferPool};

/// Bytes of the smallest chunk.
const MIN_CHUNK: u32 = 64;
/// Bytes of the largest chunk in a shared block. A larger chunk has its own block.
const MAX_SHARED: u32 = 64 * 1024;
/// Number of free lists: for chunks of 64 B, 128 B, ... 64 KiB.
const CLASSES: usize = (MAX_SHARED / MIN_CHUNK).ilog2() as usize + 1;
/// Bytes of the first block. It is small, because a memtable may have few rows.
const FIRST_BLOCK: usize = 16 * 1024;

/// A range of bytes in an [`Arena`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    block: u32,
    offset: u32,
    cap: u32,
}

impl Chunk {
    pub(super) const fn cap(self) -> usize {
        self.cap as usize
    }
}

#[derive(Debug)]
pub(super) struct Arena {
    pool: Arc<BufferPool>,
    blocks: Vec<Box<[u8]>>,
    /// Block from which new chunks are allocated, and its used bytes.
    current: Option<(u32, usize)>,
    free: [Vec<Chunk>; CLASSES],
    free_blocks: Vec<u32>,
    bytes: usize,
}

impl Arena {
    /// Creates an empty arena with blocks from `pool`.
    pub(super) fn new(pool: Arc<BufferPool>) -> Self {
        Self {
            pool,
            blocks: Vec::new(),
            current: None,
            free: std::array::from_fn(|_| Vec::new()),
            free_blocks: Vec::new(),
            bytes: 0,
        }
    }

    /// Total bytes of all blocks.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a chunk of at least `len` bytes; `None` if `len` is too large.
    pub(super) fn alloc(&mut self, len: usize) -> Option<Chunk> {
        let cap = u32::try_from(len).ok()?.max(MIN_CHUNK).checked_next_power_of_two()?;
        if cap > MAX_SHARED {
            return self.alloc_own_block(cap);
        }
        if let Some(chunk) = self.free.get_mut(class(cap)).and_then(Vec::pop) {
            return Some(chunk);
        }
        let need = cap as usize;
        let (block, offset) = match self.current {
            Some((block, used)) if used + need <= self.block_len(block) => (block, used),
            _ => {
                let len = self.bytes.clamp(FIRST_BLOCK, BLOCK).max(need);
                (self.add_block(len)?, 0)
            }
        };
        self.current = Some((block, offset + need));
        Some(Chunk { block, offset: offset as u32, cap })
    }

    /// Frees a chunk.
    pub(super) fn release(&mut self, chunk: Chunk) {
        if chunk.cap > MAX_SHARED {
            if let Some(block) = self.blocks.get_mut(chunk.block as usize) {
                self.bytes -= block.len();
                self.pool.release([std::mem::take(block)]);
                self.free_blocks.push(chunk.block);
            }
        } else if let Some(list) = self.free.get_mut(class(chunk.cap)) {
            list.push(chunk);
        }
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a chunk lies within its block")]
    pub(super) fn slice(&self, chunk: Chunk) -> &[u8] {
        let start = chunk.offset as usize;
        &self.blocks[chunk.block as usize][start..start + chunk.cap as usize]
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a chunk lies within its block")]
    pub(super) fn slice_mut(&mut self, chunk: Chunk) -> &mut [u8] {
        let start = chunk.offset as usize;
        &mut self.blocks[chunk.block as usize][start..start + chunk.cap as usize]
    }

    /// Copies the first `len` bytes of one chunk into another.
    #[expect(clippy::indexing_slicing, reason = "chunks lie within their blocks")]
    pub(super) fn copy(&mut self, from: Chunk, to: Chunk, len: usize) {
        let (source, target) = (from.block as usize, to.block as usize);
        let (start, end) = (from.offset as usize, from.offset as usize + len);
        let at = to.offset as usize;
        if source == target {
            self.blocks[source].copy_within(start..end, at);
        } else if let Ok([source, target]) = self.blocks.get_disjoint_mut([source, target]) {
            target[at..at + len].copy_from_slice(&source[start..end]);
        }
    }

    fn alloc_own_block(&mut self, cap: u32) -> Option<Chunk> {
        let block = match self.free_blocks.pop() {
            Some(block) => {
                *self.blocks.get_mut(block as usize)? = self.pool.acquire(cap as usize);
                self.bytes += cap as usize;
                block
            }
            None => self.add_block(cap as usize)?,
        };
        Some(Chunk { block, offset: 0, cap })
    }

    fn add_block(&mut self, len: usize) -> Option<u32> {
        let block = u32::try_from(self.blocks.len()).ok()?;
        self.blocks.push(self.pool.acquire(len));
        self.bytes += len;
        Some(block)
    }

    fn block_len(&self, block: u32) -> usize {
        self.blocks.get(block as usize).map_or(0, |block| block.len())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.pool.release(self.blocks.drain(..));
    }
}

const fn class(cap: u32) -> usize {
    (cap / MIN_CHUNK).ilog2() as usize
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn chunks_do_not_overlap_and_are_reused() {
        let mut arena = Arena::new(Arc::new(BufferPool::new(0)));
        let sizes = [1, 64, 65, 1000, 70_000, 3, 65_536, 200_000, 30_000];
        let mut chunks = Vec::new();
        for round in 0..40_u8 {
            for (i, size) in sizes.iter().enumerate() {
                let chunk = arena.alloc(*size).unwrap();
                assert!(chunk.cap() >= *size);
                arena.slice_mut(chunk).fill(round ^ (i as u8) << 4);
                chunks.push((chunk, round ^ (i as u8) << 4));
            }
            for (chunk, fill) in &chunks {
                assert!(arena.slice(*chunk).iter().all(|b| b == fill));
            }
            if round % 2 == 1 {
                for (chunk, _) in chunks.drain(..) {
                    arena.release(chunk);
                }
            }
        }
        let grown = arena.bytes();
        for size in sizes {
            arena.alloc(size).unwrap();
        }
        let own: usize = sizes.iter().filter(|s| **s > 65_536).map(|s| s.next_power_of_two()).sum();
        assert_eq!(arena.bytes(), grown + own, "small chunks come from the free lists");
    }

    #[test]
    fn blocks_are_reused_by_the_next_arena() {
        let pool = Arc::new(BufferPool::new(8 << 20));
        let fill = || {
            let mut arena = Arena::new(Arc::clone(&pool));
            let chunks: Vec<_> = (0..8_000_u32).map(|_| arena.alloc(200).unwrap()).collect();
            for (chunk, number) in chunks.iter().zip(0_u32..) {
                arena.slice_mut(*chunk)[..4].copy_from_slice(&number.to_be_bytes());
            }
            for (chunk, number) in chunks.iter().zip(0_u32..) {
                assert_eq!(arena.slice(*chunk)[..4], number.to_be_bytes());
            }
            pool.bytes()
        };
        assert_eq!(fill(), 0);
        let kept = pool.bytes();
        assert!(kept >= 1 << 20, "{kept}");
        assert_eq!(fill(), 0);
        assert_eq!(pool.bytes(), kept);
    }

    #[test]
    fn growth_copies_the_bytes() {
        let mut arena = Arena::new(Arc::new(BufferPool::new(0)));
        let mut chunk = arena.alloc(10).unwrap();
        arena.slice_mut(chunk)[..10].copy_from_slice(b"0123456789");
        for size in [100, 5_000, 70_000, 140_000] {
            let larger = arena.alloc(size).unwrap();
            arena.copy(chunk, larger, 10);
            arena.release(chunk);
            chunk = larger;
            assert_eq!(&arena.slice(chunk)[..10], b"0123456789");
        }
    }
}
