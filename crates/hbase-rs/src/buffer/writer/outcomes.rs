//! What becomes of the mutations of a call: written, tried again, or failed.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    super::{
        call::{CallOutcome, Share},
        chunk::Run,
    },
    Writer,
};
use crate::{
    client::Next,
    connection::CallError,
    error::Failure,
    multi::{ActionOutcome, RegionOutcome},
    random::random,
    region::info::RegionLocation,
    server_name::ServerName,
};

/// Failures in a row after which there is a pause even where none is asked for.
const IN_A_ROW: usize = 8;

impl Writer {
    pub(super) fn called(
        &mut self,
        server: &ServerName,
        shares: Vec<Share>,
        outcome: CallOutcome,
        now: Instant,
    ) {
        match outcome {
            CallOutcome::Done => {
                for share in &shares {
                    self.done(share);
                }
            }
            CallOutcome::Failed(error) => self.call_failed(server, &shares, &error, now),
            CallOutcome::Unreadable(error) => {
                let cause = Failure::Batch(error.to_string());
                for share in shares {
                    let next = Next::Pause { overloaded: false };
                    self.again(&share.location, share.runs, &cause, next, true, now);
                }
            }
            CallOutcome::Regions(outcomes) => {
                for (share, outcome) in shares.into_iter().zip(outcomes) {
                    self.region_answered(server, share, outcome, now);
                }
            }
        }
    }

    fn done(&mut self, share: &Share) {
        for run in &share.runs {
            let settled = run.written();
            self.settled(settled);
        }
        if let Some(queue) = self.queues.region(share.location.region.start_key()) {
            (queue.attempt, queue.cause) = (0, None);
        }
    }

    fn call_failed(
        &mut self,
        server: &ServerName,
        shares: &[Share],
        error: &CallError,
        now: Instant,
    ) {
        let single = shares.iter().map(|share| share.mutations).sum::<usize>() <= 1;
        for share in shares {
            let mut next = self.table.client().digest(&share.location, error);
            match next {
                Next::Split if single => next = Next::Fail,
                Next::Split => {
                    self.max = ((self.max.0 / 2).max(1), (self.max.1 / 2).max(1));
                    next = Next::AtOnce;
                }
                Next::Pause { overloaded: true } => {
                    let attempt = self.attempt_of(share);
                    let pause = self.backoff(attempt, true);
                    self.queues.pause_server(server, now + pause);
                }
                _ => {}
            }
            let cause = Failure::Call(error.clone());
            self.again(
                &share.location,
                share.runs.clone(),
                &cause,
                next,
                error.is_ambiguous(),
                now,
            );
        }
    }

    fn region_answered(
        &mut self,
        server: &ServerName,
        share: Share,
        outcome: RegionOutcome,
        now: Instant,
    ) {
        match outcome {
            RegionOutcome::Each(outcomes) => self.each_answered(server, &share, outcomes, now),
            RegionOutcome::Failed(exception) => {
                let error = CallError::Remote { server: server.clone(), exception };
                let next = self.digest(&share.location, &error);
                let cause = Failure::Call(error);
                self.again(&share.location, share.runs, &cause, next, false, now);
            }
            // Only shares that are atomic have one outcome.
            RegionOutcome::Group { .. } => {
                let next = Next::Pause { overloaded: false };
                self.again(&share.location, share.runs, &Failure::Lost, next, true, now);
            }
        }
    }

    /// Sorts the outcomes of single mutations; those alike that lie side by side stay together.
    fn each_answered(
        &mut self,
        server: &ServerName,
        share: &Share,
        outcomes: Vec<ActionOutcome>,
        now: Instant,
    ) {
        let mut outcomes = outcomes.into_iter();
        let mut any_done = false;
        for run in &share.runs {
            for at in run.from..run.to {
                let one = run.part(at, at + 1);
                match outcomes.next() {
                    Some(ActionOutcome::Done(_)) => {
                        any_done = true;
                        let settled = one.written();
                        self.settled(settled);
                    }
                    Some(ActionOutcome::Failed(exception)) => {
                        let error = CallError::Remote { server: server.clone(), exception };
                        let next = self.digest(&share.location, &error);
                        let cause = Failure::Call(error);
                        self.again(&share.location, vec![one], &cause, next, false, now);
                    }
                    Some(ActionOutcome::Lost) | None => {
                        let next = Next::Pause { overloaded: false };
                        self.again(&share.location, vec![one], &Failure::Lost, next, true, now);
                    }
                }
            }
        }
        if any_done && let Some(queue) = self.queues.region(share.location.region.start_key()) {
            queue.attempt = queue.attempt.min(1);
        }
    }

    /// What comes after an exception about a region or a mutation.
    fn digest(&self, location: &RegionLocation, error: &CallError) -> Next {
        match self.table.client().digest(location, error) {
            Next::Split => Next::Fail,
            next => next,
        }
    }

    /// These were not done, or nobody knows: they are tried again or fail.
    fn again(
        &mut self,
        location: &RegionLocation,
        runs: Vec<Run>,
        cause: &Failure,
        next: Next,
        in_doubt: bool,
        now: Instant,
    ) {
        let key = location.region.start_key();
        let attempt = self.queues.region(key).map_or(0, |queue| queue.attempt);
        let mut left = Vec::with_capacity(runs.len());
        for mut run in runs {
            if next == Next::Fail || next == Next::AtOnceIfFirst && attempt > 0 {
                self.fail(&run, attempt + 1, in_doubt, cause.clone());
                continue;
            }
            if in_doubt {
                run.doubt = true;
                left.extend(self.repeatable(&run, attempt, cause));
            } else {
                left.push(run);
            }
        }
        if left.is_empty() {
            return;
        }
        self.table.client().metrics().retried(cause.retry_reason());
        let until = match next {
            Next::Pause { overloaded } => Some(now + self.backoff(attempt, overloaded)),
            Next::Wait(wait) => Some(now + wait),
            _ if attempt >= IN_A_ROW => Some(now + self.backoff(attempt, false)),
            _ => None,
        };
        // Regions that took this one's place have their own pauses.
        let ours =
            self.queues.region(key).filter(|queue| queue.region.name() == location.region.name());
        if let Some(queue) = ours {
            match until {
                // Several calls may say so one after the other; once is enough.
                Some(_) if queue.location.is_none() => {}
                Some(until) => self.queues.park(key, until, cause.clone()),
                None => self.go_on_at_once(key, cause, &left, now),
            }
        }
        for run in left.into_iter().rev() {
            self.route(run, true, now);
        }
    }

    /// The region is written without a pause, where it is as far as is known by now.
    fn go_on_at_once(&mut self, key: &Bytes, cause: &Failure, left: &[Run], now: Instant) {
        let Some(first) = left.first() else { return };
        let known = self.table.client().locator().holding(self.table.name(), first.first_row());
        match known {
            Some(known) => {
                if let Some(queue) = self.queues.region(key) {
                    queue.attempt += 1;
                }
                self.found(Some(key), known, now);
            }
            None => self.queues.park(key, now, cause.clone()),
        }
    }

    /// Parts of a run that may be sent a second time; the others fail.
    fn repeatable(&mut self, run: &Run, attempt: usize, cause: &Failure) -> Vec<Run> {
        let may = |at: u32| run.chunk.batch.entry(at as usize).is_none_or(|entry| entry.repeatable);
        if (run.from..run.to).all(may) {
            return vec![run.clone()];
        }
        let mut left = Vec::new();
        for at in run.from..run.to {
            let one = run.part(at, at + 1);
            if may(at) {
                left.push(one);
            } else {
                self.fail(&one, attempt + 1, true, cause.clone());
            }
        }
        left
    }

    fn attempt_of(&mut self, share: &Share) -> usize {
        self.queues.region(share.location.region.start_key()).map_or(0, |queue| queue.attempt)
    }

    pub(super) fn pause_of(&mut self, key: &Bytes, overloaded: bool, now: Instant) -> Instant {
        let attempt = self.queues.region(key).map_or(0, |queue| queue.attempt);
        now + self.backoff(attempt, overloaded)
    }

    pub(super) fn backoff(&self, attempt: usize, overloaded: bool) -> Duration {
        self.table.client().config().backoff.pause(attempt, overloaded, random())
    }

    pub(super) fn fail(&mut self, run: &Run, attempts: usize, in_doubt: bool, cause: Failure) {
        let settled = run.failed(attempts, in_doubt, cause);
        self.settled(settled);
    }
}
