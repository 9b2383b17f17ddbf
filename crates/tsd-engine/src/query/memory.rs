//! Memory of queries: an account of each, and one of all together.
//!
//! Spans, decoded columns, answers and whatever else grows with the data is entered before or just after
//! it is made, and given back when the query's answer was written. A query that reaches the bound of its
//! own is told to ask for less; one that meets the bound of all is told to come back later. The last
//! part of the memory of all is for small queries, so that large ones cannot lock them out.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::QueryFailure;
use crate::query::budget::ADVICE;
use tsd_query::QueryError;

const MB: u64 = 1 << 20;
/// What a query may hold and still count as small.
const SMALL: u64 = 8 * MB;
/// Share of the memory of all that only small queries may take.
const FOR_SMALL: u64 = 8;

/// Memory of all queries.
#[derive(Debug, Default)]
pub(crate) struct TotalMemory {
    /// 0 sets no bound.
    limit: u64,
    held: AtomicU64,
}

/// Memory of one query. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Memory {
    total: Arc<TotalMemory>,
    /// 0 sets no bound.
    limit: u64,
    held: AtomicU64,
    peak: AtomicU64,
}

impl TotalMemory {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicU64::new(0) })
    }

    /// Bytes that queries hold.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes that queries may hold; 0 sets no bound.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }
}

impl Memory {
    /// An account of a new query, with a bound of its own.
    pub(crate) fn new(total: Arc<TotalMemory>, limit: u64) -> Self {
        Self { total, limit, held: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Takes memory, or nothing where a bound is reached.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), QueryFailure> {
        let bytes = bytes as u64;
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.limit > 0 && held > self.limit {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryError::too_large(format!(
                "Sorry, your query needs more than our maximum of {}MB of memory. {ADVICE}",
                self.limit / MB
            ))
            .into());
        }
        let limit = match self.total.limit {
            0 => u64::MAX,
            limit if held <= SMALL => limit,
            limit => limit - limit / FOR_SMALL,
        };
        let all = self.total.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > limit {
            self.total.held.fetch_sub(bytes, Ordering::Relaxed);
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryFailure::NoMemory { limit_mb: self.total.limit / MB });
        }
        self.peak.fetch_max(held, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back part of what was taken.
    pub(crate) fn release(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.total.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Its own bound; 0 where there is none.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes held.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Most bytes that were held at once.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.total.held.fetch_sub(self.held(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_given_back_may_be_taken_again() {
        let total = TotalMemory::new(0);
        let memory = Memory::new(Arc::clone(&total), 100);
        assert!(memory.hold(100).is_ok());
        let refused = memory.hold(1);
        assert!(matches!(refused, Err(QueryFailure::Refused(e)) if e.class.status() == 413));
        memory.release(1);
        assert!(memory.hold(1).is_ok());
        assert_eq!((total.held(), memory.peak()), (100, 100));
        drop(memory);
        assert_eq!(total.held(), 0);
    }

    #[test]
    fn the_last_of_the_memory_is_for_small_queries() {
        let total = TotalMemory::new(800 * MB);
        let large = Memory::new(Arc::clone(&total), 0);
        assert!(large.hold((700 * MB) as usize).is_ok());
        let refused = large.hold(1);
        assert!(matches!(refused, Err(QueryFailure::NoMemory { limit_mb: 800 })));
        let small = Memory::new(Arc::clone(&total), 0);
        assert!(small.hold(SMALL as usize).is_ok());
        assert!(small.hold(1).is_err());
        drop(large);
        assert!(small.hold(1).is_ok());
        assert_eq!(total.held(), SMALL + 1);
    }
}
