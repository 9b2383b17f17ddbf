//! What one identity uses now.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{bucket::Bucket, metrics::IdentityMetrics};

/// What one identity has used recently, over all of its connections.
#[derive(Debug)]
pub(super) struct IdentityUsage {
    /// The identity in messages.
    pub(super) shown: String,
    pub(super) points: Mutex<Bucket>,
    pub(super) new_series: Mutex<Bucket>,
    running_queries: AtomicU64,
    pub(super) metrics: Arc<IdentityMetrics>,
}

/// A query in progress. Counts until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningQuery(Arc<IdentityUsage>);

impl IdentityUsage {
    pub(super) fn new(shown: String, metrics: Arc<IdentityMetrics>, now: Instant) -> Self {
        Self {
            shown,
            points: Mutex::new(Bucket::new(now)),
            new_series: Mutex::new(Bucket::new(now)),
            running_queries: AtomicU64::new(0),
            metrics,
        }
    }

    /// Begins a query, unless `most` run already; 0 means no limit.
    pub(super) fn begin_query(self: &Arc<Self>, most: u64) -> Option<RunningQuery> {
        let before = self.running_queries.fetch_add(1, Ordering::Relaxed);
        if most > 0 && before >= most {
            self.running_queries.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        self.metrics.queries.increment(1);
        self.metrics.running_queries.increment(1);
        Some(RunningQuery(Arc::clone(self)))
    }

    /// Returns true if a new usage would be the same.
    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        self.points.lock().is_full(now) && self.new_series.lock().is_full(now)
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.0.running_queries.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.running_queries.decrement(1);
    }
}
