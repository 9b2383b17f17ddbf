//! Admission of mutations for unavailable regions.
//!
//! Mutations for a region that is unavailable stay in the buffer until the region is available. They
//! take at most half of the buffer's bytes; beyond that the callers who write to those regions wait,
//! and the other half remains for the others.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::batch::MutationBatch;
use crate::region::cache::RowRange;

/// Unavailable regions, as callers see them.
#[derive(Debug)]
pub(super) struct UnavailableRegions {
    /// Bytes of mutations for unavailable regions from which on callers wait.
    max_bytes: usize,
    bytes: AtomicUsize,
    regions: Mutex<Vec<RowRange>>,
    changed: watch::Sender<()>,
}

impl UnavailableRegions {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            bytes: AtomicUsize::new(0),
            regions: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Replaces the unavailable regions and the bytes of mutations for them.
    pub(super) fn set(&self, bytes: usize, regions: Vec<RowRange>) {
        *self.regions.lock().unwrap_or_else(PoisonError::into_inner) = regions;
        self.bytes.store(bytes, Ordering::Release);
        self.changed.send_replace(());
    }

    /// True if a mutation of the batch has to wait.
    fn blocks(&self, batch: &MutationBatch) -> bool {
        if self.bytes.load(Ordering::Acquire) < self.max_bytes {
            return false;
        }
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        (0..batch.len()).any(|at| {
            let row = batch.row(at);
            regions.iter().any(|region| region.contains(row))
        })
    }

    /// Waits until the mutations are admitted. Returns true if the caller had to wait.
    ///
    /// # Errors
    ///
    /// If the deadline passes before.
    pub(super) async fn admit(
        &self,
        batch: &MutationBatch,
        deadline: Instant,
    ) -> Result<bool, DeadlineExceeded> {
        let mut changed = self.changed.subscribe();
        let mut waited = false;
        while self.blocks(batch) {
            waited = true;
            // The sender is not dropped before `self`.
            timeout_at(deadline, changed.changed())
                .await
                .map_err(|_| DeadlineExceeded)?
                .map_err(|_| DeadlineExceeded)?;
        }
        Ok(waited)
    }
}

/// The deadline passed.
#[derive(Debug)]
pub(super) struct DeadlineExceeded;

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
        let unavailable = UnavailableRegions::new(100);
        let soon = Instant::now() + Duration::from_secs(1);
        unavailable.set(99, vec![range()]);
        assert!(!unavailable.admit(&batch("c"), soon).await.unwrap());
        unavailable.set(100, vec![range()]);
        assert!(!unavailable.admit(&batch("d"), soon).await.unwrap());
        assert!(unavailable.admit(&batch("c"), soon).await.is_err());
        let soon = Instant::now() + Duration::from_secs(1);
        let (c, end) = (batch("c"), async { unavailable.set(0, Vec::new()) });
        let (waited, ()) = tokio::join!(unavailable.admit(&c, soon), end);
        assert!(waited.unwrap());
    }
}
