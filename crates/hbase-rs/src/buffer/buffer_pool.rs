//! Buffer pool: memory of completed batches and calls, for later ones.
//!
//! A fast writer has tens of megabytes in flight. The operating system clears every page of newly
//! allocated memory, which costs more than encoding the cells.

use parking_lot::Mutex;
use std::sync::Arc;

use super::batch::MutationBatch;
use crate::{metrics::Metrics, multi::Encoder};

/// Smaller buffers are not pooled: the allocator is as fast.
const SMALLEST: usize = 32 << 10;

/// Larger buffers are not pooled.
const LARGEST: usize = 4 << 20;

/// Maximum bytes in the pool.
const MAX_BYTES: usize = 16 << 20;

/// A pool of empty batches and encoders.
#[derive(Debug)]
pub(super) struct BufferPool {
    buffers: Mutex<PooledBuffers>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct PooledBuffers {
    batches: Vec<MutationBatch>,
    encoders: Vec<Encoder>,
    bytes: usize,
}

impl BufferPool {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { buffers: Mutex::default(), metrics }
    }

    /// Returns an empty batch with capacity for this many mutations and bytes of cells.
    pub(super) fn take(&self, mutations: usize, bytes: usize) -> MutationBatch {
        if bytes >= SMALLEST {
            let mut buffers = self.buffers.lock();
            if let Some(batch) = buffers.batches.pop() {
                self.subtract(&mut buffers, batch.capacity());
                return batch;
            }
        }
        MutationBatch::with_capacity(mutations, bytes)
    }

    /// Returns the memory of a batch to the pool, unless it is too small or the pool is full.
    pub(super) fn recycle(&self, mut batch: MutationBatch) {
        batch.clear();
        let mut buffers = self.buffers.lock();
        if self.try_add(&mut buffers, batch.capacity()) {
            buffers.batches.push(batch);
        }
    }

    /// Returns an encoder for a call.
    pub(super) fn encoder(&self) -> Encoder {
        let mut buffers = self.buffers.lock();
        let encoder = buffers.encoders.pop().unwrap_or_default();
        self.subtract(&mut buffers, encoder.capacity());
        encoder
    }

    /// Returns an encoder to the pool, unless it is too small or the pool is full.
    pub(super) fn recycle_encoder(&self, encoder: Encoder) {
        let mut buffers = self.buffers.lock();
        if self.try_add(&mut buffers, encoder.capacity()) {
            buffers.encoders.push(encoder);
        }
    }

    fn subtract(&self, buffers: &mut PooledBuffers, bytes: usize) {
        buffers.bytes -= bytes;
        self.metrics.buffers.pool_bytes.sub(bytes as u64);
    }

    /// Adds `bytes` to the count if a buffer of this size fits. Returns true if it does.
    fn try_add(&self, buffers: &mut PooledBuffers, bytes: usize) -> bool {
        let fits = (SMALLEST..=LARGEST).contains(&bytes) && buffers.bytes + bytes <= MAX_BYTES;
        if fits {
            buffers.bytes += bytes;
            self.metrics.buffers.pool_bytes.add(bytes as u64);
        }
        fits
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.metrics.buffers.pool_bytes.sub(self.buffers.lock().bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(bytes: usize) -> MutationBatch {
        let mut batch = MutationBatch::with_capacity(1, bytes);
        batch.put(b"row", b"f", b"q", 1, b"value").unwrap();
        batch
    }

    #[test]
    fn pooled_buffers_are_empty_bounded_and_counted() {
        let metrics = Arc::<Metrics>::default();
        let pool = BufferPool::new(Arc::clone(&metrics));
        let counted = || metrics.buffers.pool_bytes.get() as usize;
        for (bytes, pooled) in [(SMALLEST / 2, false), (LARGEST * 2, false), (1 << 20, true)] {
            let before = counted();
            pool.recycle(full(bytes));
            assert_eq!(counted() > before, pooled, "{bytes}");
        }
        assert_eq!(pool.take(0, 10).capacity(), 10, "a small request does not take a large buffer");
        let batch = pool.take(0, SMALLEST);
        assert!(batch.is_empty() && batch.size() == 0 && batch.capacity() >= 1 << 20);
        assert_eq!(counted(), 0);
        for _ in 0..100 {
            pool.recycle(full(1 << 20));
        }
        assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&counted()));
        drop(pool);
        assert_eq!(metrics.buffers.pool_bytes.get(), 0);
    }
}
