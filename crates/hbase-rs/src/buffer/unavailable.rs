//! Admission of mutations for unavailable regions, and for those under memstore pressure.
//!
//! Mutations for an unavailable region stay in the buffer until the region is available. They take at
//! most half of the buffer's bytes. Beyond that, the callers that write to those regions wait, and
//! the other half remains for other callers. The bytes of a batch count from its admission on: first
//! by a [`HeldBytes`], then by the queues.

use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::batch::MutationBatch;
use crate::{operation_error::Failure, region::cache::RowRange};

/// Unavailable regions, as callers see them.
#[derive(Debug)]
pub(super) struct UnavailableRegions {
    /// Bytes of mutations for unavailable regions from which on callers wait.
    max_bytes: usize,
    bytes: AtomicUsize,
    /// Bytes of admitted batches that are not queued yet.
    admitted: AtomicUsize,
    regions: Mutex<Vec<RowRange>>,
    changed: watch::Sender<()>,
}

impl UnavailableRegions {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            bytes: AtomicUsize::new(0),
            admitted: AtomicUsize::new(0),
            regions: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Replaces the unavailable regions and the bytes of mutations for them.
    pub(super) fn set(&self, bytes: usize, regions: Vec<RowRange>) {
        *self.regions.lock() = regions;
        self.bytes.store(bytes, Ordering::Release);
        self.changed.send_replace(());
    }

    /// Admits the batch unless one of its mutations has to wait.
    fn try_admit(self: &Arc<Self>, batch: &MutationBatch) -> Option<HeldBytes> {
        // Locked until the bytes are counted, so that callers cannot pass together.
        let regions = self.regions.lock();
        let is_held = |row: &[u8]| regions.iter().any(|region| region.contains(row));
        if regions.is_empty() || !(0..batch.len()).any(|at| is_held(batch.row(at))) {
            return Some(HeldBytes { of: Arc::clone(self), bytes: 0 });
        }
        let held = self.bytes.load(Ordering::Acquire) + self.admitted.load(Ordering::Acquire);
        if held >= self.max_bytes {
            return None;
        }
        let bytes = batch.size();
        self.admitted.fetch_add(bytes, Ordering::AcqRel);
        Some(HeldBytes { of: Arc::clone(self), bytes })
    }

    /// Waits until the mutations are admitted. Also returns true if the caller had to wait.
    ///
    /// # Errors
    ///
    /// If the deadline passes before.
    pub(super) async fn admit(
        self: &Arc<Self>,
        batch: &MutationBatch,
        deadline: Instant,
    ) -> Result<(HeldBytes, bool), Failure> {
        let mut changed = self.changed.subscribe();
        let mut waited = false;
        loop {
            if let Some(held) = self.try_admit(batch) {
                return Ok((held, waited));
            }
            waited = true;
            // The sender is not dropped before `self`.
            let _ = timeout_at(deadline, changed.changed()).await.map_err(|_| Failure::Time)?;
        }
    }
}

/// Counts the bytes of an admitted batch for held regions until it is dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    of: Arc<UnavailableRegions>,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.of.admitted.fetch_sub(self.bytes, Ordering::AcqRel);
            self.of.changed.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn batch(row: &str) -> MutationBatch {
        let mut batch = MutationBatch::default();
        batch.put(row.as_bytes(), b"f", b"q", 1, b"v").unwrap();
        batch
    }

    fn range() -> RowRange {
        RowRange { start: "b".into(), end: "d".into(), exact: true }
    }

    #[tokio::test(start_paused = true)]
    async fn only_writers_to_unavailable_regions_wait_when_half_is_full() {
        let unavailable = Arc::new(UnavailableRegions::new(100));
        let soon = Instant::now() + Duration::from_secs(1);
        unavailable.set(99, vec![range()]);
        let (held, waited) = unavailable.admit(&batch("c"), soon).await.unwrap();
        assert!(!waited);
        // The batch counts until it is queued.
        let now = Instant::now();
        assert!(unavailable.admit(&batch("c"), now).await.is_err());
        drop(held);
        assert!(unavailable.admit(&batch("c"), soon).await.is_ok());
        unavailable.set(100, vec![range()]);
        assert!(!unavailable.admit(&batch("d"), soon).await.unwrap().1);
        assert!(unavailable.admit(&batch("c"), soon).await.is_err());
        let soon = Instant::now() + Duration::from_secs(1);
        let (c, end) = (batch("c"), async { unavailable.set(0, Vec::new()) });
        let (waited, ()) = tokio::join!(unavailable.admit(&c, soon), end);
        assert!(waited.unwrap().1);
    }
}
