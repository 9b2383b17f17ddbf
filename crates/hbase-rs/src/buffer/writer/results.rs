//! Results of calls: mutations are completed, queued again, or failed.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    super::{pending_batch::MutationRange, share::MutationShare},
    Writer,
};
use crate::{
    attempts::FailedAttempt,
    multi::{MultiOutcome, RegionResult},
    operation_error::Failure,
    random::random,
    region::info::RegionLocation,
    retry::Retry,
    server_name::ServerName,
};

/// Consecutive failed attempts from which on an immediate retry waits for a backoff too.
const MAX_IMMEDIATE_RETRIES: usize = 8;

/// Mutations of a region that are sent again, and the failed attempt with the longest pause.
#[derive(Default)]
struct RetriedMutations {
    ranges: Vec<MutationRange>,
    failed: Option<FailedAttempt>,
}

impl RetriedMutations {
    fn push(&mut self, range: MutationRange, failed: &FailedAttempt) {
        if !self.ranges.last_mut().is_some_and(|last| last.join(&range)) {
            self.ranges.push(range);
        }
        if self.failed.as_ref().is_none_or(|slowest| slowest.retry < failed.retry) {
            self.failed = Some(failed.clone());
        }
    }
}

impl Writer {
    pub(super) fn handle_outcome(
        &mut self,
        server: &ServerName,
        shares: Vec<MutationShare>,
        outcome: MultiOutcome,
        now: Instant,
    ) {
        let call_failed = matches!(outcome, MultiOutcome::Failed(_));
        let locator = self.table.client().locator();
        let is_first = |share: &MutationShare| {
            self.queues.failed_attempts(share.location.region.start_key()) == 0
        };
        let results = outcome.into_results(locator, &shares, is_first);
        let retries = |result: &RegionResult, retry| matches!(result, RegionResult::Failed(failed) if failed.retry == retry);
        if call_failed && results.iter().any(|result| retries(result, Retry::Split)) {
            self.limits.halve();
        }
        for (share, result) in shares.into_iter().zip(results) {
            if call_failed && retries(&result, Retry::Backoff { overloaded: true }) {
                let failed = self.queues.failed_attempts(share.location.region.start_key());
                let pause = self.backoff(failed, true);
                self.queues.pause_server(server, now + pause);
            }
            self.complete_share(share, result, now);
        }
    }

    fn complete_share(&mut self, share: MutationShare, result: RegionResult, now: Instant) {
        let key = share.location.region.start_key();
        let mut retried = RetriedMutations::default();
        match result {
            RegionResult::Done => {
                for range in &share.ranges {
                    self.batch_complete(range.written());
                }
                if let Some(queue) = self.queues.region_mut(key) {
                    queue.written();
                }
            }
            RegionResult::Failed(failed) => {
                let attempt = self.queues.failed_attempts(key) + 1;
                if let (Retry::After(_), Some(queue)) = (failed.retry, self.queues.region_mut(key))
                {
                    queue.throttled(share.mutations);
                }
                for range in share.ranges {
                    self.retry_or_fail(range, &failed, attempt, &mut retried);
                }
                self.requeue(&share.location, retried, now);
            }
            RegionResult::Each(results) => {
                let attempt = self.queues.failed_attempts(key) + 1;
                let mut results = results.into_iter();
                let mut any_written = false;
                for range in &share.ranges {
                    for at in range.from..range.to {
                        let one = range.part(at, at + 1);
                        let lost = || Err(FailedAttempt::lost(Failure::Lost));
                        if let Err(failed) = results.next().unwrap_or_else(lost) {
                            self.retry_or_fail(one, &failed, attempt, &mut retried);
                        } else {
                            any_written = true;
                            self.batch_complete(one.written());
                        }
                    }
                }
                self.requeue(&share.location, retried, now);
                if any_written && let Some(queue) = self.queues.region_mut(key) {
                    queue.failed_attempts = queue.failed_attempts.min(1);
                }
            }
        }
    }

    /// Adds the mutations that are sent again to `retried`, and fails the others.
    fn retry_or_fail(
        &mut self,
        mut range: MutationRange,
        failed: &FailedAttempt,
        attempt: usize,
        retried: &mut RetriedMutations,
    ) {
        range.in_doubt |= failed.in_doubt;
        if (range.from..range.to).all(|at| failed.is_retried(range.is_repeatable(at))) {
            retried.push(range, failed);
            return;
        }
        for at in range.from..range.to {
            let one = range.part(at, at + 1);
            if failed.is_retried(range.is_repeatable(at)) {
                retried.push(one, failed);
            } else {
                self.fail(&one, attempt, failed.in_doubt, failed.cause.clone());
            }
        }
    }

    /// Queues mutations of a region again, and pauses the region as the failed attempt requires.
    fn requeue(&mut self, location: &RegionLocation, retried: RetriedMutations, now: Instant) {
        let Some(FailedAttempt { cause, retry, .. }) = retried.failed else { return };
        self.table.client().metrics().retried(cause.retry_reason());
        let key = location.region.start_key();
        let attempts = self.queues.failed_attempts(key);
        let pause = match retry {
            Retry::Backoff { overloaded } => Some(self.backoff(attempts, overloaded)),
            Retry::After(wait) => {
                let mutations = retried.ranges.iter().map(MutationRange::len).sum();
                let pause = self.table.client().config().backoff.throttled(wait, mutations);
                // Mutations whose deadline is before the end of the wait fail in time.
                let deadline = retried.ranges.iter().map(|range| range.pending.deadline).min();
                let left = deadline.map_or(pause, |at| at.saturating_duration_since(now));
                Some(pause.min(left))
            }
            _ if attempts >= MAX_IMMEDIATE_RETRIES => Some(self.backoff(attempts, false)),
            _ => None,
        };
        // Regions that replaced this one have their own pauses.
        let queue =
            self.queues.region(key).filter(|queue| queue.region.name() == location.region.name());
        if let Some(queue) = queue {
            match pause {
                // Already unavailable after another call.
                Some(_) if queue.location.is_none() => {}
                Some(pause) => self.queues.set_unavailable(key, now + pause, cause),
                None => self.retry_at_once(key, cause, &retried.ranges, now),
            }
        }
        for range in retried.ranges.into_iter().rev() {
            self.enqueue(range, true, now);
        }
    }

    /// Continues without a pause at the cached location of the region, or looks it up.
    fn retry_at_once(
        &mut self,
        key: &Bytes,
        cause: Failure,
        ranges: &[MutationRange],
        now: Instant,
    ) {
        let Some(first) = ranges.first() else { return };
        let locator = self.table.client().locator();
        match locator.cached_for_row(self.table.name(), first.first_row()) {
            Some(location) => {
                if let Some(queue) = self.queues.region_mut(key) {
                    queue.failed_attempts += 1;
                }
                self.region_located(Some(key), location, now);
            }
            None => self.queues.set_unavailable(key, now, cause),
        }
    }

    pub(super) fn backoff(&self, failed: usize, overloaded: bool) -> Duration {
        self.table.client().config().backoff.pause(failed, overloaded, random())
    }

    pub(super) fn fail(
        &mut self,
        range: &MutationRange,
        attempts: usize,
        in_doubt: bool,
        cause: Failure,
    ) {
        self.batch_complete(range.failed(attempts, in_doubt, cause));
    }
}
