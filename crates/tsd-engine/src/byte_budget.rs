//! Admission by bytes: bounds the cells that one write actor may hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one semaphore permit.
const PERMIT_BYTES: usize = 64;

/// A bound on bytes held at once. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ByteBudget {
    semaphore: Arc<Semaphore>,
    permits: u32,
}

impl ByteBudget {
    /// A budget of `bytes`, rounded down to units of 64 and at least one unit.
    pub(crate) fn new(bytes: usize) -> Self {
        let permits = u32::try_from((bytes / PERMIT_BYTES).max(1))
            .unwrap_or(u32::MAX)
            .min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self { semaphore: Arc::new(Semaphore::new(permits as usize)), permits }
    }

    /// Most requests that can hold permits at once: a mailbox of this capacity never fills.
    pub(crate) const fn max_requests(&self) -> usize {
        self.permits as usize
    }

    /// Waits for `bytes` of the budget; dropping the permit returns them. A request larger than the
    /// budget waits for all of it. `None`: the budget is closed.
    pub(crate) async fn acquire(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes / PERMIT_BYTES + 1).unwrap_or(u32::MAX).min(self.permits);
        Arc::clone(&self.semaphore).acquire_many_owned(permits).await.ok()
    }

    /// Bytes acquired and not returned yet.
    pub(crate) fn acquired_bytes(&self) -> usize {
        (self.permits as usize).saturating_sub(self.semaphore.available_permits()) * PERMIT_BYTES
    }

    /// Fails every waiting and later [`Self::acquire`].
    pub(crate) fn close(&self) {
        self.semaphore.close();
    }
}
