//! Memory budgets of queries: one for each query and one shared by all of them.
//!
//! Spans, decoded columns, results and everything else that grows with the data is reserved before
//! or just after it is allocated, and released once the query's response was written. A query that
//! exceeds its own budget is rejected as too large; one that finds the shared budget
//! exhausted may be retried later. The last part of the shared budget is reserved for small
//! queries, so that large ones cannot starve them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tsd_query::{LimitError, QueryError};

use crate::{
    process_memory::{MEMORY_LIMIT_KEY, MemoryPart, ProcessMemory},
    query::failure::QueryFailure,
};

const MB: u64 = 1 << 20;
/// Most bytes a query may have reserved and still count as small.
const SMALL_QUERY_BYTES: u64 = 8 * MB;
/// One part in this many of the shared budget is reserved for small queries.
const SMALL_QUERY_SHARE: u64 = 8;

/// Bytes of one point, with its time.
pub(crate) const BYTES_PER_POINT: u64 = 16;

/// Key of the limit of all queries.
const TOTAL_KEY: &str = "tsd.query.max_total_memory_bytes";

/// Memory budget shared by all queries, a part of that of the process.
#[derive(Debug)]
pub(crate) struct TotalMemoryBudget {
    /// Bytes; 0 means unlimited.
    limit: u64,
    /// Key of `limit`.
    key: &'static str,
    reserved: AtomicU64,
    process: ProcessMemory,
}

/// Memory budget of one query. Dropping it releases everything it reserved.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    total: Arc<TotalMemoryBudget>,
    /// Bytes; 0 means unlimited.
    limit: u64,
    /// Key of `limit`.
    key: &'static str,
    reserved: AtomicU64,
    peak: AtomicU64,
}

impl TotalMemoryBudget {
    /// A budget of `limit` bytes (0 means unlimited), or of what `process` has for queries, if that
    /// is less.
    pub(crate) fn new(limit: u64, process: ProcessMemory) -> Arc<Self> {
        let most = process.most(MemoryPart::Queries);
        let is_unlimited = process.is_unlimited();
        let (limit, key) = match limit {
            0 if is_unlimited => (0, TOTAL_KEY),
            limit if limit > 0 && limit <= most => (limit, TOTAL_KEY),
            _ => (most, MEMORY_LIMIT_KEY),
        };
        Arc::new(Self { limit, key, reserved: AtomicU64::new(0), process })
    }

    /// Bytes reserved by all queries.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Most bytes that may be reserved; 0 means unlimited.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Key of the limit.
    pub(crate) const fn key(&self) -> &'static str {
        self.key
    }

    fn release(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        self.process.release(MemoryPart::Queries, bytes);
    }
}

impl MemoryBudget {
    /// A budget of `limit` bytes (0 means unlimited), set by `key`, within `total`, with nothing
    /// reserved.
    pub(crate) fn new(total: Arc<TotalMemoryBudget>, limit: u64, key: &'static str) -> Self {
        Self { total, limit, key, reserved: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Reserves memory. Reserves nothing if that would exceed either budget.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), QueryFailure> {
        let bytes = bytes as u64;
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.limit > 0 && reserved > self.limit {
            self.reserved.fetch_sub(bytes, Ordering::Relaxed);
            let (limit_mb, key) = (self.limit / MB, self.key);
            return Err(QueryError::from(LimitError::Memory { limit_mb, key }).into());
        }
        let limit = match self.total.limit {
            0 => u64::MAX,
            limit if reserved <= SMALL_QUERY_BYTES => limit,
            limit => limit - limit / SMALL_QUERY_SHARE,
        };
        let total = &self.total;
        let fits_total = total.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes <= limit;
        let process = &total.process;
        if !fits_total || !process.try_add(MemoryPart::Queries, bytes) {
            total.reserved.fetch_sub(bytes, Ordering::Relaxed);
            self.reserved.fetch_sub(bytes, Ordering::Relaxed);
            let (limit, key) = if fits_total {
                (process.limit(), MEMORY_LIMIT_KEY)
            } else {
                (total.limit, total.key)
            };
            if key == MEMORY_LIMIT_KEY {
                process.record_refusal(MemoryPart::Queries);
            }
            return Err(QueryFailure::NoMemory { limit_mb: limit / MB, key });
        }
        self.peak.fetch_max(reserved, Ordering::Relaxed);
        Ok(())
    }

    /// Releases part of what was reserved.
    pub(crate) fn release(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        self.total.release(bytes);
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
        self.total.release(self.reserved());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_memory_can_be_reserved_again() {
        let total = TotalMemoryBudget::new(0, ProcessMemory::unlimited());
        let memory = MemoryBudget::new(Arc::clone(&total), 100, "a.key");
        assert!(memory.reserve(100).is_ok());
        let rejected = memory.reserve(1);
        let expected = QueryError::from(LimitError::Memory { limit_mb: 0, key: "a.key" });
        assert!(matches!(rejected, Err(QueryFailure::Rejected(error)) if error == expected));
        memory.release(1);
        assert!(memory.reserve(1).is_ok());
        assert_eq!((total.reserved(), memory.peak()), (100, 100));
        drop(memory);
        assert_eq!(total.reserved(), 0);
    }

    #[test]
    fn last_part_of_the_total_is_for_small_queries() {
        let total = TotalMemoryBudget::new(800 * MB, ProcessMemory::unlimited());
        let large = MemoryBudget::new(Arc::clone(&total), 0, "a.key");
        assert!(large.reserve((700 * MB) as usize).is_ok());
        let rejected = large.reserve(1);
        assert!(matches!(rejected, Err(QueryFailure::NoMemory { limit_mb: 800, key: TOTAL_KEY })));
        let small = MemoryBudget::new(Arc::clone(&total), 0, "a.key");
        assert!(small.reserve(SMALL_QUERY_BYTES as usize).is_ok());
        assert!(small.reserve(1).is_err());
        drop(large);
        assert!(small.reserve(1).is_ok());
        assert_eq!(total.reserved(), SMALL_QUERY_BYTES + 1);
    }

    #[test]
    fn queries_leave_the_memory_of_connections() {
        let process = ProcessMemory::new(800 * MB, Vec::new());
        let total = TotalMemoryBudget::new(0, process.clone());
        assert_eq!((total.limit(), total.key()), (400 * MB, MEMORY_LIMIT_KEY));
        let taken = process.try_reserve(MemoryPart::Connections, (400 * MB) as usize);
        let memory = MemoryBudget::new(Arc::clone(&total), 0, "a.key");
        let rejected = memory.reserve((201 * MB) as usize);
        let key = MEMORY_LIMIT_KEY;
        assert!(
            matches!(rejected, Err(QueryFailure::NoMemory { limit_mb: 800, key: k }) if k == key)
        );
        assert!(memory.reserve((200 * MB) as usize).is_ok());
        drop((memory, taken));
        assert_eq!(process.reserved(MemoryPart::Queries), 0);
        assert_eq!(total.reserved(), 0);
    }
}
