//! Memory budgets of queries: one for each query and one shared by all of them.
//!
//! Spans, decoded columns, results and everything else that grows with the data is reserved before
//! or just after it is allocated, and released once the query's response was written. A query that
//! exceeds its own budget is rejected as too large (413); one that finds the shared budget
//! exhausted may be retried later (503). The last part of the shared budget is reserved for small
//! queries, so that large ones cannot starve them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tsd_query::QueryError;

use super::{QueryFailure, read_budget::ADVICE};

const MB: u64 = 1 << 20;
/// Most bytes a query may have reserved and still count as small.
const SMALL_QUERY_BYTES: u64 = 8 * MB;
/// One part in this many of the shared budget is reserved for small queries.
const SMALL_QUERY_SHARE: u64 = 8;

/// Memory budget shared by all queries.
#[derive(Debug, Default)]
pub(crate) struct TotalMemoryBudget {
    /// Bytes; 0 means unlimited.
    limit: u64,
    reserved: AtomicU64,
}

/// Memory budget of one query. Dropping it releases everything it reserved.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    total: Arc<TotalMemoryBudget>,
    /// Bytes; 0 means unlimited.
    limit: u64,
    reserved: AtomicU64,
    peak: AtomicU64,
}

impl TotalMemoryBudget {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, reserved: AtomicU64::new(0) })
    }

    /// Bytes reserved by all queries.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Most bytes that may be reserved; 0 means unlimited.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }
}

impl MemoryBudget {
    /// A budget of `limit` bytes (0 means unlimited) within `total`, with nothing reserved.
    pub(crate) fn new(total: Arc<TotalMemoryBudget>, limit: u64) -> Self {
        Self { total, limit, reserved: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Reserves memory. Reserves nothing if that would exceed either budget.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), QueryFailure> {
        let bytes = bytes as u64;
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.limit > 0 && reserved > self.limit {
            self.reserved.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryError::too_large(format!(
                "Sorry, your query needs more than our maximum of {}MB of memory. {ADVICE}",
                self.limit / MB
            ))
            .into());
        }
        let limit = match self.total.limit {
            0 => u64::MAX,
            limit if reserved <= SMALL_QUERY_BYTES => limit,
            limit => limit - limit / SMALL_QUERY_SHARE,
        };
        let total = self.total.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > limit {
            self.total.reserved.fetch_sub(bytes, Ordering::Relaxed);
            self.reserved.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryFailure::NoMemory { limit_mb: self.total.limit / MB });
        }
        self.peak.fetch_max(reserved, Ordering::Relaxed);
        Ok(())
    }

    /// Releases part of what was reserved.
    pub(crate) fn release(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        self.total.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The query's own limit in bytes; 0 means unlimited.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Most bytes reserved at once so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryBudget {
    fn drop(&mut self) {
        self.total.reserved.fetch_sub(self.reserved(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_memory_can_be_reserved_again() {
        let total = TotalMemoryBudget::new(0);
        let memory = MemoryBudget::new(Arc::clone(&total), 100);
        assert!(memory.reserve(100).is_ok());
        let rejected = memory.reserve(1);
        assert!(matches!(rejected, Err(QueryFailure::Rejected(e)) if e.class.status() == 413));
        memory.release(1);
        assert!(memory.reserve(1).is_ok());
        assert_eq!((total.reserved(), memory.peak()), (100, 100));
        drop(memory);
        assert_eq!(total.reserved(), 0);
    }

    #[test]
    fn last_part_of_the_total_is_for_small_queries() {
        let total = TotalMemoryBudget::new(800 * MB);
        let large = MemoryBudget::new(Arc::clone(&total), 0);
        assert!(large.reserve((700 * MB) as usize).is_ok());
        let rejected = large.reserve(1);
        assert!(matches!(rejected, Err(QueryFailure::NoMemory { limit_mb: 800 })));
        let small = MemoryBudget::new(Arc::clone(&total), 0);
        assert!(small.reserve(SMALL_QUERY_BYTES as usize).is_ok());
        assert!(small.reserve(1).is_err());
        drop(large);
        assert!(small.reserve(1).is_ok());
        assert_eq!(total.reserved(), SMALL_QUERY_BYTES + 1);
    }
}
