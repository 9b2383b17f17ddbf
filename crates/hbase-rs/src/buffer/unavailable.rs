//! Who must wait because their regions are not available.
//!
//! Mutations for such regions stay in the buffer until the regions are back. They may take half of its
//! room; from then on callers who write to those regions wait outside, and the other half is left to
//! those who do not.

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

/// What callers know of parked regions.
#[derive(Debug)]
pub(super) struct UnavailableRegions {
    /// Bytes that parked regions may take.
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

    /// Says which regions are parked now, and how much is for them.
    pub(super) fn set(&self, bytes: usize, regions: Vec<RowRange>) {
        *self.regions.lock().unwrap_or_else(PoisonError::into_inner) = regions;
        self.bytes.store(bytes, Ordering::Release);
        self.changed.send_replace(());
    }

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

    /// Waits until the mutations may be taken. Returns whether that took a wait; errs when time is up.
    pub(super) async fn admit(
        &self,
        batch: &MutationBatch,
        deadline: Instant,
    ) -> Result<bool, Overdue> {
        let mut changed = self.changed.subscribe();
        let mut waited = false;
        while self.blocks(batch) {
            waited = true;
            // The sender lives as long as this.
            timeout_at(deadline, changed.changed())
                .await
                .map_err(|_| Overdue)?
                .map_err(|_| Overdue)?;
        }
        Ok(waited)
    }
}

/// Time was up.
#[derive(Debug)]
pub(super) struct Overdue;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn batch(row: &str) -> MutationBatch {
        let mut batch = MutationBatch::default();
        batch.put(row.as_bytes(), b"f", b"q", 1, b"v").unwrap();
        batch
    }

    fn span() -> RowRange {
        RowRange { start: "b".into(), end: "d".into(), exact: true }
    }

    #[tokio::test(start_paused = true)]
    async fn only_those_wait_who_write_to_a_parked_region_when_half_is_full() {
        let parking = UnavailableRegions::new(100);
        let soon = Instant::now() + Duration::from_secs(1);
        parking.set(99, vec![span()]);
        assert!(!parking.admit(&batch("c"), soon).await.unwrap());
        parking.set(100, vec![span()]);
        assert!(!parking.admit(&batch("d"), soon).await.unwrap());
        assert!(parking.admit(&batch("c"), soon).await.is_err());
        let soon = Instant::now() + Duration::from_secs(1);
        let (c, end) = (batch("c"), async { parking.set(0, Vec::new()) });
        let (waited, ()) = tokio::join!(parking.admit(&c, soon), end);
        assert!(waited.unwrap());
    }
}
