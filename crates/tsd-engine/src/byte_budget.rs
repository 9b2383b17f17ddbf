//! Admission by bytes: bounds the cells that one write actor may hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one semaphore permit.
const PERMIT_BYTES: usize = 64;

/// A bound on bytes held at once. Clones share it.
///
/// Pipelined senders have three quarters of it: their points may be held for as long as the store
/// does not accept them, and a sender that waits for a response must get one meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct ByteBudget {
    all: PermitPool,
    pipelined: PermitPool,
}

#[derive(Clone, Debug)]
struct PermitPool {
    semaphore: Arc<Semaphore>,
    permits: u32,
}

/// Bytes acquired from a budget; dropping it returns them.
#[derive(Debug)]
pub(crate) struct BytePermit {
    _all: OwnedSemaphorePermit,
    _pipelined: Option<OwnedSemaphorePermit>,
}

impl ByteBudget {
    /// A budget of `bytes`, rounded down to units of 64 and at least one unit.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { all: PermitPool::new(bytes), pipelined: PermitPool::new(bytes / 4 * 3) }
    }

    /// Most requests that can hold permits at once: a mailbox of this capacity never fills.
    pub(crate) const fn max_requests(&self) -> usize {
        self.all.permits as usize
    }

    /// Waits for `bytes` of the budget; dropping the permit returns them. A request larger than the
    /// budget waits for all of it. `None`: the budget is closed.
    pub(crate) async fn acquire(&self, bytes: usize, is_pipelined: bool) -> Option<BytePermit> {
        let pipelined =
            if is_pipelined { Some(self.pipelined.acquire(bytes).await?) } else { None };
        Some(BytePermit { _all: self.all.acquire(bytes).await?, _pipelined: pipelined })
    }

    /// Bytes acquired and not returned yet.
    pub(crate) fn acquired_bytes(&self) -> usize {
        let PermitPool { semaphore, permits } = &self.all;
        (*permits as usize).saturating_sub(semaphore.available_permits()) * PERMIT_BYTES
    }

    /// Fails every waiting and later [`Self::acquire`].
    pub(crate) fn close(&self) {
        self.all.semaphore.close();
        self.pipelined.semaphore.close();
    }
}

impl PermitPool {
    fn new(bytes: usize) -> Self {
        let permits = u32::try_from((bytes / PERMIT_BYTES).max(1))
            .unwrap_or(u32::MAX)
            .min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self { semaphore: Arc::new(Semaphore::new(permits as usize)), permits }
    }

    async fn acquire(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes / PERMIT_BYTES + 1).unwrap_or(u32::MAX).min(self.permits);
        Arc::clone(&self.semaphore).acquire_many_owned(permits).await.ok()
    }
}
