//! Memory of batches that are settled and calls that are over, for the next ones.
//!
//! A fast writer has tens of megabytes on their way. Asked from the system anew, each page of them is
//! cleared before it is written to, which costs more than the cells do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{batch::MutationBatch, encode::Encoder};
use crate::metrics::Metrics;

/// Smaller batches come from the allocator as fast.
const SMALLEST: usize = 32 << 10;

/// Larger ones are not kept.
const LARGEST: usize = 4 << 20;

/// Bytes that are kept at most, of either kind.
const KEPT: usize = 16 << 20;

/// Batches without mutations that have room for some.
#[derive(Debug)]
pub(super) struct BufferPool {
    kept: Mutex<Kept>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Kept {
    batches: Vec<MutationBatch>,
    encoders: Vec<Encoder>,
    bytes: usize,
}

impl BufferPool {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { kept: Mutex::default(), metrics }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch with room for so many mutations and bytes of cells.
    pub(super) fn take(&self, mutations: usize, bytes: usize) -> MutationBatch {
        if bytes >= SMALLEST {
            let mut kept = self.kept();
            if let Some(batch) = kept.batches.pop() {
                self.taken(&mut kept, batch.capacity());
                return batch;
            }
        }
        MutationBatch::with_capacity(mutations, bytes)
    }

    /// Keeps a batch's memory if it is worth it and there is room.
    pub(super) fn keep(&self, mut batch: MutationBatch) {
        batch.clear();
        let mut kept = self.kept();
        if self.fits(&mut kept, batch.capacity()) {
            kept.batches.push(batch);
        }
    }

    /// What encodes a call.
    pub(super) fn encoder(&self) -> Encoder {
        let mut kept = self.kept();
        let encoder = kept.encoders.pop().unwrap_or_default();
        self.taken(&mut kept, encoder.capacity());
        encoder
    }

    /// Keeps its memory if it is worth it and there is room.
    pub(super) fn keep_encoder(&self, encoder: Encoder) {
        let mut kept = self.kept();
        if self.fits(&mut kept, encoder.capacity()) {
            kept.encoders.push(encoder);
        }
    }

    fn taken(&self, kept: &mut Kept, bytes: usize) {
        kept.bytes -= bytes;
        self.metrics.buffers.pool_bytes.sub(bytes as u64);
    }

    /// Whether so many bytes are to be kept; they are counted then.
    fn fits(&self, kept: &mut Kept, bytes: usize) -> bool {
        let fits = (SMALLEST..=LARGEST).contains(&bytes) && kept.bytes + bytes <= KEPT;
        if fits {
            kept.bytes += bytes;
            self.metrics.buffers.pool_bytes.add(bytes as u64);
        }
        fits
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.metrics.buffers.pool_bytes.sub(kept.bytes as u64);
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
    fn what_is_kept_is_empty_bounded_and_counted() {
        let metrics = Arc::<Metrics>::default();
        let pool = BufferPool::new(Arc::clone(&metrics));
        let counted = || metrics.buffers.pool_bytes.get() as usize;
        for (bytes, kept) in [(SMALLEST / 2, false), (LARGEST * 2, false), (1 << 20, true)] {
            let before = counted();
            pool.keep(full(bytes));
            assert_eq!(counted() > before, kept, "{bytes}");
        }
        assert_eq!(pool.take(0, 10).capacity(), 10, "small ones are not worth a large one");
        let batch = pool.take(0, SMALLEST);
        assert!(batch.is_empty() && batch.size() == 0 && batch.capacity() >= 1 << 20);
        assert_eq!(counted(), 0);
        for _ in 0..100 {
            pool.keep(full(1 << 20));
        }
        assert!((KEPT / 2..=KEPT).contains(&counted()));
        drop(pool);
        assert_eq!(metrics.buffers.pool_bytes.get(), 0);
    }
}
