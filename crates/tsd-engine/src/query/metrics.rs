//! What is counted of queries.

use std::time::Instant;

use metrics::Histogram;

use super::QueryFailure;

/// Metrics of queries.
#[derive(Clone)]
pub(crate) struct QueryMetrics {
    answered: Histogram,
    refused: Histogram,
    cancelled: Histogram,
    failed: Histogram,
}

/// Times one query.
pub(crate) struct Timer<'a> {
    metrics: &'a QueryMetrics,
    began: Option<Instant>,
}

impl QueryMetrics {
    pub(crate) fn new() -> Self {
        let seconds =
            |outcome: &'static str| metrics::histogram!("tsd_query_seconds", "outcome" => outcome);
        Self {
            answered: seconds("answered"),
            refused: seconds("refused"),
            cancelled: seconds("cancelled"),
            failed: seconds("failed"),
        }
    }

    /// A query begins.
    pub(crate) fn begin(&self) -> Timer<'_> {
        Timer { metrics: self, began: Some(Instant::now()) }
    }
}

impl Timer<'_> {
    /// It has its answer, or a failure and perhaps a limit that was reached.
    pub(crate) fn end(mut self, result: Result<(), (&QueryFailure, Option<&'static str>)>) {
        let seconds = match result {
            Ok(()) => &self.metrics.answered,
            Err((_, Some(limit))) => {
                metrics::counter!("tsd_query_rejected_total", "limit" => limit).increment(1);
                &self.metrics.refused
            }
            Err((QueryFailure::Cancelled, None)) => return,
            Err((QueryFailure::Stopped, None)) => {
                cancelled("operator");
                &self.metrics.cancelled
            }
            Err((QueryFailure::Refused(_) | QueryFailure::Uid(_), None)) => &self.metrics.refused,
            Err(_) => &self.metrics.failed,
        };
        seconds.record(self.began.take().map_or(0.0, |began| began.elapsed().as_secs_f64()));
    }
}

impl Drop for Timer<'_> {
    /// Nobody waits for the answer any more.
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
