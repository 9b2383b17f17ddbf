//! The sender of requests or of telnet points, with the limits of its identity.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;
use tsd_engine::{Clock, QueryBounds, SeriesAllowance};

use super::{
    IdentityLimits,
    bucket::Allowance,
    usage::{IdentityUsage, RunningQuery},
};

/// Time after which a client with too many concurrent queries may try again.
const QUERY_RETRY: Duration = Duration::from_secs(1);
const SECONDS_PER_HOUR: f64 = 3_600.0;

/// A sender whose identity is limited or counted.
#[derive(Clone, Debug)]
pub(crate) struct LimitedSender {
    pub(super) usage: Arc<IdentityUsage>,
    pub(super) limits: IdentityLimits,
    pub(super) clock: Arc<dyn Clock>,
}

/// An identity has reached a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct LimitExceeded {
    reason: String,
    /// Time after which the client may try again.
    pub(crate) retry_after: Duration,
}

impl LimitedSender {
    /// Counts points that were received. Returns how long the sender must not be read, if it sent too many.
    pub(crate) fn count_points(&self, points: u64) -> Option<Duration> {
        if points == 0 {
            return None;
        }
        self.usage.metrics.points.increment(points);
        let allowance = self.points_allowance()?;
        let owed = self.usage.points.lock().take_on_credit(Instant::now(), allowance, points);
        if owed.is_zero() {
            return None;
        }
        self.usage.metrics.telnet_pauses.increment(1);
        Some(owed)
    }

    /// Admits the points of a request, all or none. A request with more points than the burst is admitted if nothing
    /// is owed, and later requests wait for it.
    pub(crate) fn admit_points(&self, points: u64) -> Result<(), LimitExceeded> {
        if let Some(allowance) = self.points_allowance() {
            let mut bucket = self.usage.points.lock();
            let taken = bucket.take_unless_owing(Instant::now(), allowance, points);
            taken.map_err(|retry_after| self.too_many_points(retry_after))?;
        }
        self.usage.metrics.points.increment(points);
        Ok(())
    }

    /// Fails if [`Self::admit_points`] would fail now for any number of points.
    pub(crate) fn check_points(&self) -> Result<(), LimitExceeded> {
        let Some(allowance) = self.points_allowance() else { return Ok(()) };
        match self.usage.points.lock().take_on_credit(Instant::now(), allowance, 0) {
            Duration::ZERO => Ok(()),
            retry_after => Err(self.too_many_points(retry_after)),
        }
    }

    /// The limit on new series, for an ingest session.
    pub(crate) fn new_series(&self) -> Arc<dyn SeriesAllowance> {
        Arc::new(self.clone())
    }

    /// Begins a query.
    pub(crate) fn begin_query(&self) -> Result<RunningQuery, LimitExceeded> {
        let limit = self.limits.concurrent_queries;
        self.usage.begin_query(limit).ok_or_else(|| {
            self.usage.metrics.refused_queries.increment(1);
            let reason = format!(
                "{} has {limit} concurrent queries, the most it may have (tsd.limits.concurrent_queries, or queries= \
                 in the file of users)",
                self.usage.shown
            );
            LimitExceeded { reason, retry_after: QUERY_RETRY }
        })
    }

    /// The limits of each query.
    pub(crate) const fn query_bounds(&self) -> QueryBounds {
        let IdentityLimits { query_bytes, query_memory, .. } = self.limits;
        QueryBounds { max_bytes: query_bytes, max_memory_bytes: query_memory }
    }

    /// Returns how long to wait for the next new series.
    pub(crate) fn new_series_wait(&self) -> Duration {
        let Some(allowance) = self.series_allowance() else { return Duration::ZERO };
        let mut bucket = self.usage.new_series.lock();
        let taken = bucket.take_one(Instant::now(), allowance);
        if taken.is_ok() {
            bucket.put_back_one();
        }
        taken.err().unwrap_or_default()
    }

    fn points_allowance(&self) -> Option<Allowance> {
        let rate = self.limits.points_per_second as f64;
        let burst = (rate * self.limits.points_burst.as_secs_f64()).max(1.0);
        (rate > 0.0).then_some(Allowance { rate, burst })
    }

    fn series_allowance(&self) -> Option<Allowance> {
        let burst = self.limits.new_series_per_hour as f64;
        (burst > 0.0).then_some(Allowance { rate: burst / SECONDS_PER_HOUR, burst })
    }

    fn too_many_points(&self, retry_after: Duration) -> LimitExceeded {
        self.usage.metrics.refused_points.increment(1);
        let reason = format!(
            "{} sends more than {} points a second (tsd.limits.points_per_second, or points= in the file of users); \
             no point of the request was stored",
            self.usage.shown, self.limits.points_per_second
        );
        LimitExceeded { reason, retry_after }
    }

    /// The wall-clock time after a wait, rounded up to a second.
    fn time_after(&self, wait: Duration) -> Timestamp {
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let at_ms = self.clock.now_ms().saturating_add(wait_ms).saturating_add(999);
        Timestamp::from_second(at_ms.div_euclid(1_000)).unwrap_or(Timestamp::MAX)
    }
}

impl SeriesAllowance for LimitedSender {
    fn take(&self) -> Result<(), String> {
        if let Some(allowance) = self.series_allowance() {
            let taken = self.usage.new_series.lock().take_one(Instant::now(), allowance);
            taken.map_err(|wait| {
                self.usage.metrics.refused_series.increment(1);
                format!(
                    "{} has added {} series within an hour, the most it may add (tsd.limits.new_series_per_hour, or \
                     series= in the file of users); the next one is accepted at {}",
                    self.usage.shown,
                    self.limits.new_series_per_hour,
                    self.time_after(wait)
                )
            })?;
        }
        self.usage.metrics.new_series.increment(1);
        Ok(())
    }

    fn put_back(&self) {
        self.usage.new_series.lock().put_back_one();
    }
}
