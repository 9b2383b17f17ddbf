//! Bounds the bytes of the writes that wait for a store, wherever they wait.
//!
//! Each store has one budget. The engine acquires the bytes of a chunk before it queues them, and
//! returns them when the points are durable or have failed. One permit covers the queue of the
//! write actor, the call of the store, and the store's own queue: the writer passes it to
//! [`Storage::write`](crate::Storage::write). A store with a queue acquires the bytes of all other
//! writes (UIDs, row compaction, annotations) from the same budget. While the budget is exhausted,
//! senders wait.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Semaphore;
use tsd_runtime::Receipt;

/// Bytes of one semaphore permit.
const PERMIT_BYTES: usize = 64;
/// Bytes of a queued request in addition to its cells: messages, completions, a call of the store.
const REQUEST_BYTES: usize = 512;

/// A bound on the bytes that are held at once. Clones share it.
///
/// Pipelined senders have three quarters of it. Their points may be held while the store does not
/// accept them, and meanwhile senders that wait for a response must get one.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<PermitPools>);

#[derive(Debug)]
struct PermitPools {
    all: PermitPool,
    pipelined: PermitPool,
    waits: AtomicU64,
}

#[derive(Debug)]
struct PermitPool {
    semaphore: Semaphore,
    permits: u32,
}

/// Bytes acquired from a budget, and the receipt of their write; dropping it returns the bytes.
#[derive(Debug)]
pub struct BytePermit {
    /// `None` for bytes that another limit bounds.
    budget: Option<ByteBudget>,
    all: u32,
    pipelined: u32,
    receipt: Option<Receipt>,
}

/// Use of a budget by one component, which can be closed separately.
#[derive(Debug)]
pub struct BudgetAccess {
    budget: ByteBudget,
    /// Semaphore without permits; closed with the access.
    end: Semaphore,
}

impl ByteBudget {
    /// A budget of `bytes`, rounded down to units of 64 and at least one unit.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (all, pipelined) = (PermitPool::new(bytes), PermitPool::new(bytes / 4 * 3));
        Self(Arc::new(PermitPools { all, pipelined, waits: AtomicU64::new(0) }))
    }

    /// Most requests that can hold separate permits at once.
    #[must_use]
    pub fn max_requests(&self) -> usize {
        (self.0.all.permits / units(0)).max(1) as usize
    }

    /// Waits for the bytes of requests with `bytes` of cells in all; dropping the permit returns
    /// them. A request larger than the budget waits for the whole budget.
    pub async fn acquire(&self, requests: usize, bytes: usize, is_pipelined: bool) -> BytePermit {
        let PermitPools { all, pipelined, waits } = &*self.0;
        let needed = units(bytes + requests.saturating_sub(1) * REQUEST_BYTES);
        let mut permit = BytePermit::exempt(None);
        permit.budget = Some(self.clone());
        if is_pipelined {
            permit.pipelined = pipelined.acquire(needed, waits).await;
        }
        permit.all = all.acquire(needed, waits).await;
        permit
    }

    /// Bytes acquired and not returned yet.
    #[must_use]
    pub fn acquired_bytes(&self) -> usize {
        let PermitPool { semaphore, permits } = &self.0.all;
        (*permits as usize).saturating_sub(semaphore.available_permits()) * PERMIT_BYTES
    }

    /// Number of waits of senders so far.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.0.waits.load(Ordering::Relaxed)
    }
}

impl BudgetAccess {
    /// Access to a budget, open.
    #[must_use]
    pub fn new(budget: ByteBudget) -> Self {
        Self { budget, end: Semaphore::new(0) }
    }

    /// The budget.
    #[must_use]
    pub const fn budget(&self) -> &ByteBudget {
        &self.budget
    }

    /// As [`ByteBudget::acquire`]. `None`: the access is closed.
    pub async fn acquire(
        &self,
        requests: usize,
        bytes: usize,
        is_pipelined: bool,
    ) -> Option<BytePermit> {
        if self.end.is_closed() {
            return None;
        }
        tokio::select! {
            biased;
            permit = self.budget.acquire(requests, bytes, is_pipelined) => Some(permit),
            // Returns only when the semaphore is closed, since it has no permits.
            _ = self.end.acquire() => None,
        }
    }

    /// Fails every waiting and later [`Self::acquire`]. The budget stays open to others.
    pub fn close(&self) {
        self.end.close();
    }
}

impl BytePermit {
    /// A permit for bytes that the budget does not count, because another limit bounds them.
    #[must_use]
    pub const fn exempt(receipt: Option<Receipt>) -> Self {
        Self { budget: None, all: 0, pipelined: 0, receipt }
    }

    /// When the daemon received the write; `None` if the write has no deadline.
    #[must_use]
    pub const fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }

    /// As [`Self::receipt`], to change it.
    pub const fn receipt_mut(&mut self) -> &mut Option<Receipt> {
        &mut self.receipt
    }

    /// Adds the bytes and the receipt of another permit of the same budget.
    pub fn merge(&mut self, mut other: Self) {
        self.all += mem::take(&mut other.all);
        self.pipelined += mem::take(&mut other.pipelined);
        self.receipt = match (self.receipt.take(), other.receipt.take()) {
            (Some(first), Some(second)) => Some(first.joined(second)),
            (first, second) => first.or(second),
        };
    }

    /// Splits off the permit of one request with `bytes` of cells; at most the whole permit.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let (all, pipelined) = (units(bytes).min(self.all), units(bytes).min(self.pipelined));
        self.all -= all;
        self.pipelined -= pipelined;
        Self { budget: self.budget.clone(), all, pipelined, receipt: self.receipt.clone() }
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        let Some(ByteBudget(pools)) = &self.budget else { return };
        let PermitPools { all, pipelined, .. } = &**pools;
        for (pool, permits) in [(all, self.all), (pipelined, self.pipelined)] {
            if permits > 0 {
                pool.semaphore.add_permits(permits as usize);
            }
        }
    }
}

impl PermitPool {
    fn new(bytes: usize) -> Self {
        let permits = u32::try_from((bytes / PERMIT_BYTES).max(1))
            .unwrap_or(u32::MAX)
            .min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self { semaphore: Semaphore::new(permits as usize), permits }
    }

    /// Waits for the permits, or for all permits of the budget.
    async fn acquire(&self, permits: u32, waits: &AtomicU64) -> u32 {
        let permits = permits.min(self.permits);
        if let Ok(permit) = self.semaphore.try_acquire_many(permits) {
            permit.forget();
            return permits;
        }
        waits.fetch_add(1, Ordering::Relaxed);
        match self.semaphore.acquire_many(permits).await {
            Ok(permit) => permit.forget(),
            // Unreachable, since the semaphore is never closed.
            Err(_) => return 0,
        }
        permits
    }
}

/// Permits of a request with `bytes` of cells.
fn units(bytes: usize) -> u32 {
    u32::try_from((bytes + REQUEST_BYTES).div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    const KIB: usize = 1 << 10;

    fn is_pending<T>(future: impl Future<Output = T>) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn pipelined_senders_leave_a_quarter_to_the_others() {
        let budget = ByteBudget::new(64 * KIB);
        let held = budget.acquire(1, 48 * KIB, true).await;
        assert_eq!(budget.acquired_bytes(), 48 * KIB + REQUEST_BYTES);
        assert!(is_pending(budget.acquire(1, 1, true)));
        let waiting = budget.acquire(1, 15 * KIB, false).await;
        assert!(is_pending(budget.acquire(1, 15 * KIB, false)));
        drop(waiting);
        assert_eq!((budget.waits(), budget.acquired_bytes()), (2, 48 * KIB + REQUEST_BYTES));
        drop(held);
        assert_eq!(budget.acquired_bytes(), 0);
    }

    #[tokio::test]
    async fn parts_of_a_permit_return_their_bytes_by_themselves() {
        let budget = ByteBudget::new(64 * KIB);
        let mut all = budget.acquire(3, 3 * KIB, true).await;
        let parts = [KIB, KIB, KIB].map(|bytes| all.split(bytes));
        drop(all);
        assert_eq!(budget.acquired_bytes(), 3 * (KIB + REQUEST_BYTES));
        let [mut first, second, third] = parts;
        drop(second);
        assert_eq!(budget.acquired_bytes(), 2 * (KIB + REQUEST_BYTES));
        first.merge(third);
        assert_eq!(budget.acquired_bytes(), 2 * (KIB + REQUEST_BYTES));
        drop(first);
        assert_eq!(budget.acquired_bytes(), 0);
        assert!(
            !is_pending(budget.acquire(1, 47 * KIB, true)),
            "pipelined bytes are returned, too"
        );
    }

    #[tokio::test]
    async fn joined_writes_have_the_earlier_deadline() {
        let budget = ByteBudget::new(64 * KIB);
        let late = || Receipt::until(None, 0);
        for (first, second, is_late) in
            [(None, None, false), (None, Some(late()), true), (Some(late()), None, true)]
        {
            let mut permits = [budget.acquire(1, 1, true).await, budget.acquire(1, 1, true).await];
            for (permit, receipt) in permits.iter_mut().zip([first, second]) {
                *permit.receipt_mut() = receipt;
            }
            let [mut joined, other] = permits;
            joined.merge(other);
            let divided = joined.split(1);
            for permit in [joined, divided] {
                assert_eq!(permit.receipt().is_some_and(|of| of.check().is_err()), is_late);
            }
        }
    }

    #[tokio::test]
    async fn more_than_the_budget_waits_for_all_of_it() {
        let budget = ByteBudget::new(KIB);
        let small = budget.acquire(1, 1, false).await;
        assert!(is_pending(budget.acquire(1, KIB * KIB, true)));
        assert_eq!(budget.acquired_bytes(), 576, "a wait that ended has returned its part");
        drop(small);
        let large = budget.acquire(9, KIB * KIB, true).await;
        assert!(is_pending(budget.acquire(1, 1, false)));
        drop(large);
        assert_eq!(budget.acquired_bytes(), 0);
    }

    #[tokio::test]
    async fn a_closed_access_leaves_the_budget_to_others() {
        let budget = ByteBudget::new(KIB);
        let (closed, open) = (BudgetAccess::new(budget.clone()), BudgetAccess::new(budget.clone()));
        let all = open.acquire(1, KIB, false).await;
        let (waiting, ()) = tokio::join!(closed.acquire(1, 1, true), async { closed.close() });
        assert!(all.is_some() && waiting.is_none());
        drop(all);
        assert!(closed.acquire(1, 1, false).await.is_none());
        assert!(open.acquire(1, 1, false).await.is_some());
        assert_eq!(budget.acquired_bytes(), 0);
    }
}
