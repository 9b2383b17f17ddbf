//! The attempts of one operation: how many, how long, and what pause comes next.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    config::ClientConfig,
    error::{Failure, OperationError},
    metrics::Metrics,
    random::random,
    retry::Backoff,
};

/// Step of the pauses at which polling stays.
const MAX_POLL: usize = 4;

/// With less time than this left there is no other attempt before the end: no answer would be in time.
const LAST_CHANCE: Duration = Duration::from_millis(100);

/// Keeps the time of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Attempts {
    operation: &'static str,
    begun: Instant,
    deadline: Instant,
    max: usize,
    done: usize,
    backoff: Backoff,
    /// Whether it changes nothing, so that there is nothing to doubt.
    reads: bool,
    /// Whether an attempt may have done it.
    doubt: bool,
    /// What the attempt before met with.
    last: Option<Failure>,
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
            done: 0,
            backoff: config.backoff,
            reads: false,
            doubt: false,
            last: None,
            metrics: Arc::clone(metrics),
        }
    }

    /// The same for an operation that changes nothing.
    pub(crate) const fn reading(mut self) -> Self {
        self.reads = true;
        self
    }

    /// Notes that an attempt may have done it.
    pub(crate) const fn doubt(&mut self) {
        self.doubt = true;
    }

    /// When the operation is over.
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When a call that may take so long is over.
    pub(crate) fn call_deadline(&self, timeout: Duration) -> Instant {
        self.deadline.min(Instant::now() + timeout)
    }

    /// Attempts that were counted, for the next pause to be the first one again.
    pub(crate) const fn progress(&mut self) {
        self.done = 0;
    }

    /// Whether nothing has failed so far.
    pub(crate) const fn is_first(&self) -> bool {
        self.done == 0
    }

    /// The same operation with all its attempts before it.
    pub(crate) fn fresh(&self) -> Self {
        Self { done: 0, last: None, ..self.clone() }
    }

    /// Waits before asking again for something that takes its time. Only the clock limits it.
    pub(crate) async fn poll(&mut self, cause: Failure) -> Result<(), OperationError> {
        let pause = self.backoff.pause(self.done, false, random());
        self.done = (self.done + 1).min(MAX_POLL);
        if Instant::now() + pause >= self.deadline {
            return Err(self.fail(cause, true));
        }
        sleep(pause).await;
        Ok(())
    }

    /// Waits before the next attempt, or gives up. A pause that would last to the end is cut: what was
    /// away may be back.
    pub(crate) async fn pause(
        &mut self,
        cause: Failure,
        overloaded: bool,
    ) -> Result<(), OperationError> {
        let mut pause = self.backoff.pause(self.done, overloaded, random());
        let left = self.deadline.saturating_duration_since(Instant::now());
        if pause >= left && left > LAST_CHANCE {
            pause = left / 2;
        }
        self.wait(pause, cause).await
    }

    /// Waits so long before the next attempt, or gives up if there is no time for that.
    pub(crate) async fn wait(
        &mut self,
        pause: Duration,
        cause: Failure,
    ) -> Result<(), OperationError> {
        self.done += 1;
        if self.done >= self.max || Instant::now() + pause >= self.deadline {
            return Err(self.fail(cause, false));
        }
        tracing::debug!(operation = self.operation, attempt = self.done, ?pause, %cause, "another attempt");
        self.metrics.retried(cause.retry_reason());
        sleep(pause).await;
        self.last = Some(cause);
        Ok(())
    }

    /// Goes on at once, or gives up if that was tried too often.
    pub(crate) fn at_once(&mut self, cause: Failure) -> Result<(), OperationError> {
        self.done += 1;
        if self.done >= self.max || Instant::now() >= self.deadline {
            return Err(self.fail(cause, false));
        }
        self.metrics.retried(cause.retry_reason());
        Ok(())
    }

    /// The error that tells the caller. That time was up says less than what used it up.
    pub(crate) fn fail(&self, cause: Failure, in_doubt: bool) -> OperationError {
        let cause = match &self.last {
            Some(last) if cause.is_lack_of_time() => last.clone(),
            _ => cause,
        };
        OperationError {
            operation: self.operation,
            attempts: self.done.max(1),
            elapsed: self.begun.elapsed(),
            in_doubt: !self.reads && (in_doubt || self.doubt),
            cause: Box::new(cause),
        }
    }
}
