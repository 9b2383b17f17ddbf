//! The attempts of one operation: their number, its deadline, and the pauses in between.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tracing::{Span, field::display};

use crate::{
    config::ClientConfig,
    metrics::Metrics,
    operation_error::{Failure, OperationError},
    random::random,
    retry::{Backoff, Retry, RetryLimit},
    trace::Attempt,
};

/// Backoff step at which polling stays.
const MAX_POLL_STEP: usize = 4;

/// Consecutive immediate retries from which on each waits for a backoff.
const MAX_IMMEDIATE_RETRIES: usize = 8;

/// With less time than this left there is no last attempt: no response would arrive in time.
const LAST_ATTEMPT_TIME: Duration = Duration::from_millis(100);

/// A failed attempt at a call or action, and how to recover from it.
#[derive(Clone, Debug)]
pub(crate) struct FailedAttempt {
    pub(crate) cause: Failure,
    pub(crate) retry: Retry,
    /// True if HBase may have executed the operation despite the failure.
    pub(crate) in_doubt: bool,
}

impl FailedAttempt {
    /// Returns an attempt whose outcome is unknown. It is repeated after a backoff.
    pub(crate) const fn lost(cause: Failure) -> Self {
        Self { cause, retry: Retry::Backoff { overloaded: false }, in_doubt: true }
    }

    /// True if another attempt follows. `repeatable` is true if executing twice does no harm.
    pub(crate) fn is_retried(&self, repeatable: bool) -> bool {
        self.retry != Retry::Never && (repeatable || !self.in_doubt)
    }
}

/// Counts the attempts of an operation against its limits.
#[derive(Clone, Debug)]
pub(crate) struct Attempts {
    operation: &'static str,
    begun: Instant,
    deadline: Instant,
    max: usize,
    failed: usize,
    retry_limit: Option<RetryLimit>,
    /// Sum of the pauses since the last progress.
    paused: Duration,
    backoff: Backoff,
    /// True if the operation changes nothing: its errors are never in doubt.
    read_only: bool,
    /// True if a failed attempt may have executed the operation.
    in_doubt: bool,
    /// Cause of the last failed attempt.
    last: Option<Failure>,
    span: Span,
    metrics: Arc<Metrics>,
}

impl Attempts {
    pub(crate) fn new(
        operation: &'static str,
        config: &ClientConfig,
        metrics: &Arc<Metrics>,
        deadline: Option<Instant>,
    ) -> Self {
        let begun = Instant::now();
        Self {
            operation,
            begun,
            deadline: deadline.unwrap_or_else(|| begun + config.operation_timeout),
            max: config.max_attempts,
            failed: 0,
            retry_limit: config.retry_limit,
            paused: Duration::ZERO,
            backoff: config.backoff,
            read_only: false,
            in_doubt: false,
            last: None,
            span: Span::none(),
            metrics: Arc::clone(metrics),
        }
    }

    /// Declares that the operation changes nothing.
    pub(crate) const fn reading(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Makes the attempts children of this span of the operation.
    pub(crate) fn in_span(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    /// Returns the next attempt, for its span.
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt { operation: self.span.id(), number: self.failed + 1, regions: 1 }
    }

    /// Records that a failed attempt may have executed the operation.
    pub(crate) const fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Deadline of the operation.
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Deadline of a call with this timeout.
    pub(crate) fn call_deadline(&self, timeout: Duration) -> Instant {
        self.deadline.min(Instant::now() + timeout)
    }

    /// Resets the count of failed attempts, after progress.
    pub(crate) const fn reset(&mut self) {
        self.failed = 0;
        self.paused = Duration::ZERO;
    }

    /// True if no attempt has failed yet.
    pub(crate) const fn is_first(&self) -> bool {
        self.failed == 0
    }

    /// Returns the same operation with no attempt failed.
    pub(crate) fn fresh(&self) -> Self {
        Self { failed: 0, paused: Duration::ZERO, last: None, ..self.clone() }
    }

    /// Pauses before the next poll of something that is not complete. Only the deadline limits the
    /// number of polls.
    pub(crate) async fn poll(&mut self, cause: Failure) -> Result<(), OperationError> {
        let pause = self.backoff.pause(self.failed, false, random());
        self.failed = (self.failed + 1).min(MAX_POLL_STEP);
        if Instant::now() + pause >= self.deadline {
            return Err(self.fail(cause, true));
        }
        sleep(pause).await;
        Ok(())
    }

    /// Waits as the failed attempt requires, or returns the error of the operation if no attempt
    /// follows. `repeatable` is true if executing the operation twice does no harm.
    pub(crate) async fn retry(
        &mut self,
        failed: FailedAttempt,
        repeatable: bool,
    ) -> Result<(), OperationError> {
        if !failed.is_retried(repeatable) {
            return Err(self.fail(failed.cause, failed.in_doubt));
        }
        self.in_doubt |= failed.in_doubt;
        match failed.retry {
            Retry::Backoff { overloaded } => self.pause(failed.cause, overloaded).await,
            Retry::After(wait) => self.wait(wait, failed.cause).await,
            Retry::Immediately | Retry::Split | Retry::Never => self.at_once(failed.cause).await,
        }
    }

    /// Waits for the backoff, or gives up. A pause beyond the deadline is shortened, for one last
    /// attempt.
    pub(crate) async fn pause(
        &mut self,
        cause: Failure,
        overloaded: bool,
    ) -> Result<(), OperationError> {
        let mut pause = self.backoff.pause(self.failed, overloaded, random());
        let left = self.deadline.saturating_duration_since(Instant::now());
        if pause >= left && left > LAST_ATTEMPT_TIME {
            pause = left / 2;
        }
        self.wait(pause, cause).await
    }

    /// Waits for exactly this time, or gives up if the deadline is before its end.
    async fn wait(&mut self, pause: Duration, cause: Failure) -> Result<(), OperationError> {
        self.failed += 1;
        self.paused += pause;
        if self.is_used_up() || Instant::now() + pause >= self.deadline {
            return Err(self.fail(cause, false));
        }
        tracing::debug!(parent: &self.span, operation = self.operation, attempt = self.failed, ?pause, %cause, "retrying");
        self.metrics.retried(cause.retry_reason());
        sleep(pause).await;
        self.last = Some(cause);
        Ok(())
    }

    /// Counts a failed attempt that is repeated at once, or gives up. After
    /// [`MAX_IMMEDIATE_RETRIES`] failures it pauses like [`Self::pause`].
    pub(crate) async fn at_once(&mut self, cause: Failure) -> Result<(), OperationError> {
        if self.failed >= MAX_IMMEDIATE_RETRIES {
            return self.pause(cause, false).await;
        }
        self.failed += 1;
        if self.is_used_up() || Instant::now() >= self.deadline {
            return Err(self.fail(cause, false));
        }
        self.metrics.retried(cause.retry_reason());
        Ok(())
    }

    fn is_used_up(&self) -> bool {
        let limit = |limit: RetryLimit| limit.is_reached(self.failed, self.paused);
        self.failed >= self.max || self.retry_limit.is_some_and(limit)
    }

    /// Returns the error of the operation. A deadline that has passed, or a discovery without a result,
    /// is reported with the cause of the last failed attempt.
    pub(crate) fn fail(&self, cause: Failure, in_doubt: bool) -> OperationError {
        let cause = match &self.last {
            Some(last) if cause.says_less_than(last) => last.clone(),
            _ => cause,
        };
        self.span.record("outcome", display(&cause));
        OperationError {
            operation: self.operation,
            attempts: self.failed.max(1),
            elapsed: self.begun.elapsed(),
            in_doubt: !self.read_only && (in_doubt || self.in_doubt),
            cause: Box::new(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time until an operation gives up whose attempts all fail at once.
    async fn time_of(config: &ClientConfig) -> Duration {
        let mut attempts = Attempts::new("test", config, &Arc::default(), None);
        let begun = Instant::now();
        while attempts.pause(Failure::Lost, false).await.is_ok() {}
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_operation_timeout_ends_the_retries_by_default() {
        let mut config = ClientConfig::new("me");
        assert!(time_of(&config).await > Duration::from_secs(170));
        // As HBase's own default.
        config.operation_timeout = Duration::from_mins(20);
        assert!(time_of(&config).await > Duration::from_mins(19));
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_retries_lasts_as_long_as_with_the_pauses_of_hbase() {
        let mut config = ClientConfig::new("me");
        // 100 ms, 200 ms, and so on, up to 10 s twice and 20 s.
        for (retries, from, to) in [(1, 0.05, 0.5), (10, 30.0, 45.0), (15, 115.0, 140.0)] {
            config.retry_limit = Some(RetryLimit::new(retries));
            let time = time_of(&config).await.as_secs_f64();
            assert!((from..=to).contains(&time), "{retries}: {time}");
        }
        config.retry_limit = Some(RetryLimit::new(35));
        assert!(time_of(&config).await > Duration::from_secs(170));
    }

    #[tokio::test(start_paused = true)]
    async fn endless_immediate_retries_wait() {
        let mut attempts = Attempts::new("test", &ClientConfig::new("me"), &Arc::default(), None);
        let mut count = 0;
        while attempts.at_once(Failure::Lost).await.is_ok() {
            count += 1;
        }
        assert!(count < 200, "{count}");
    }
}
