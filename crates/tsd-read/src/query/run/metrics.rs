//! Metrics of query outcomes.

use std::time::Instant;

use metrics::Histogram;

use crate::query::failure::QueryFailure;

/// Histograms of query time, by outcome.
#[derive(Clone)]
pub(crate) struct QueryMetrics {
    answered: Histogram,
    rejected: Histogram,
    cancelled: Histogram,
    failed: Histogram,
}

/// Times one query.
pub(crate) struct QueryTimer<'a> {
    metrics: &'a QueryMetrics,
    began: Option<Instant>,
}

impl QueryMetrics {
    pub(crate) fn new() -> Self {
        let seconds =
            |outcome: &'static str| metrics::histogram!("tsd_query_seconds", "outcome" => outcome);
        Self {
            answered: seconds("answered"),
            rejected: seconds("refused"),
            cancelled: seconds("cancelled"),
            failed: seconds("failed"),
        }
    }

    /// Starts the timer of a query.
    pub(crate) fn begin(&self) -> QueryTimer<'_> {
        QueryTimer { metrics: self, began: Some(Instant::now()) }
    }
}

impl QueryTimer<'_> {
    /// Records success, or a failure and the limit that was reached, if any.
    pub(crate) fn end(mut self, result: Result<(), (&QueryFailure, Option<&'static str>)>) {
        let seconds = match result {
            Ok(()) => &self.metrics.answered,
            Err((_, Some(limit))) => {
                metrics::counter!("tsd_query_rejected_total", "limit" => limit).increment(1);
                &self.metrics.rejected
            }
            Err((QueryFailure::Cancelled, None)) => return,
            Err((QueryFailure::CancelledByOperator, None)) => {
                cancelled("operator");
                &self.metrics.cancelled
            }
            Err((QueryFailure::Rejected(_) | QueryFailure::Uid(_), None)) => &self.metrics.rejected,
            Err(_) => &self.metrics.failed,
        };
        seconds.record(self.began.take().map_or(0.0, |began| began.elapsed().as_secs_f64()));
    }
}

impl Drop for QueryTimer<'_> {
    /// A query whose future is dropped was cancelled by its client.
    fn drop(&mut self) {
        if let Some(began) = self.began.take() {
            cancelled("client");
            self.metrics.cancelled.record(began.elapsed().as_secs_f64());
        }
    }
}

fn cancelled(by: &'static str) {
    metrics::counter!("tsd_query_cancelled_total", "by" => by).increment(1);
}

impl std::fmt::Debug for QueryMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryMetrics").finish_non_exhaustive()
    }
}
