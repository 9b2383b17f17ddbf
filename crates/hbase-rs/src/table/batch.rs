//! Batches of actions, grouped by server and region.
//!
//! A round locates every open action, sends each server its actions, and collects the results. The
//! next round locates and groups the retried actions again, by row, since their regions may have
//! changed. It starts after the longest pause that any of them requires.

use std::collections::HashMap;

use futures_util::{StreamExt, future::join_all, stream};

use super::Table;
use crate::{
    attempts::{Attempts, FailedAttempt},
    locator::Unlocated,
    multi::{self, Action, ActionShare, CallLimits, CallOptions, Encoder, RegionResult},
    operation_error::{Failure, OperationError},
    random::nonce,
    region::{map::RegionMap, meta::RegionTarget},
    retry::Retry,
    row::RowResult,
    server_name::ServerName,
};

/// Failed lookups of a round after which the other unlocated actions wait for the next round.
const MAX_FAILED_LOOKUPS: usize = 4;

/// A failed action, by its index.
type FailedAction = (usize, FailedAttempt);

/// A batch that is being executed.
struct Batch<'a> {
    table: &'a Table,
    actions: &'a [Action],
    results: Vec<Option<Result<RowResult, OperationError>>>,
    /// For each action, true if a failed attempt may have executed it.
    doubts: Vec<bool>,
    attempts: Attempts,
    limits: CallLimits,
}

impl Table {
    /// Executes many actions with few calls. Results are in the order of the actions; the order of
    /// execution is undefined.
    pub async fn batch(&self, mut actions: Vec<Action>) -> Vec<Result<RowResult, OperationError>> {
        let attempts = self.attempts("batch");
        let mut results = Vec::with_capacity(actions.len());
        for action in &mut actions {
            let mut rejected = None;
            if let Action::Mutate(mutation, number) = action {
                rejected = self.check(mutation, &attempts).err().map(Err);
                if mutation.needs_nonce() {
                    *number = Some(nonce());
                }
            }
            results.push(rejected);
        }
        let config = self.client.config();
        let limits = CallLimits::new(config.max_batch_actions, config.max_batch_bytes);
        let doubts = vec![false; actions.len()];
        let mut batch = Batch { table: self, actions: &actions, results, doubts, attempts, limits };
        while batch.round().await {}
        let missing = || Err(batch.attempts.fail(Failure::Lost, true));
        batch.results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }
}

impl<'a> Batch<'a> {
    /// Executes one round. Returns true if another one follows.
    async fn round(&mut self) -> bool {
        let mut retried = Vec::new();
        let servers = self.group(&mut retried).await;
        // Each call is encoded when it is sent, so that a large batch is not in memory twice.
        let width = self.table.client.config().max_batch_calls.max(1);
        let sent = servers.into_values().map(|shares| {
            let calls: Vec<_> =
                self.split(shares).into_iter().map(|shares| self.send(shares)).collect();
            stream::iter(calls).buffer_unordered(width).collect::<Vec<_>>()
        });
        let results = join_all(sent).await;
        let mut progress = false;
        for (action, result) in results.into_iter().flatten().flatten() {
            match result {
                Ok(result) => {
                    progress = true;
                    self.complete(action, Ok(result));
                }
                Err(failed) => {
                    let repeatable = self.actions.get(action).is_none_or(Action::is_repeatable);
                    if failed.is_retried(repeatable) {
                        if let Some(doubt) = self.doubts.get_mut(action) {
                            *doubt |= failed.in_doubt;
                        }
                        retried.push((action, failed));
                    } else {
                        let error = self.attempts.fail(failed.cause, failed.in_doubt);
                        self.complete(action, Err(error));
                    }
                }
            }
        }
        self.wait(retried, progress).await
    }

    /// Waits for the longest pause that a retried action requires, or fails all of them.
    async fn wait(&mut self, retried: Vec<FailedAction>, progress: bool) -> bool {
        let Some((_, slowest)) = retried.iter().max_by_key(|(_, failed)| failed.retry) else {
            return false;
        };
        if progress {
            self.attempts.reset();
        }
        // Doubt is recorded for each action.
        let mut slowest = FailedAttempt { in_doubt: false, ..slowest.clone() };
        match &mut slowest.retry {
            Retry::Split => self.limits.halve(),
            Retry::After(wait) => {
                let sent = retried.len().min(self.limits.actions);
                self.limits.throttled(sent);
                *wait = self.table.client.config().backoff.throttled(*wait, sent);
            }
            _ => {}
        }
        if self.attempts.retry(slowest, true).await.is_ok() {
            return true;
        }
        for (action, failed) in retried {
            let error = self.attempts.fail(failed.cause, false);
            self.complete(action, Err(error));
        }
        false
    }

    fn complete(&mut self, action: usize, mut result: Result<RowResult, OperationError>) {
        if let Err(error) = &mut result {
            let reads = matches!(self.actions.get(action), Some(Action::Get(_)));
            error.in_doubt |= self.doubts.get(action).is_some_and(|doubt| *doubt);
            error.in_doubt &= !reads;
        }
        if let Some(slot) = self.results.get_mut(action) {
            *slot = Some(result);
        }
    }

    /// Groups the open actions by server and region. Actions without a located region are added to
    /// `retried`, so that they do not delay the others.
    async fn group(
        &mut self,
        retried: &mut Vec<FailedAction>,
    ) -> HashMap<ServerName, Vec<ActionShare<'a>>> {
        let table: &'a Table = self.table;
        let (client, table) = (&table.client, &table.name);
        let locator = client.locator();
        let mut shares: Vec<ActionShare<'a>> = Vec::new();
        // Indices of the shares.
        let mut regions = RegionMap::default();
        let actions = self.actions;
        for (at, action) in actions.iter().enumerate() {
            if !self.results.get(at).is_some_and(Option::is_none) {
                continue;
            }
            let share = regions.holding(action.row()).map(|(_, share)| *share);
            if let Some(share) = share.and_then(|share: usize| shares.get_mut(share)) {
                client.metrics().region_hits.one();
                share.actions.push((at, action));
                continue;
            }
            let target = RegionTarget::Holding(action.row().clone());
            let located = match (locator.cached(table, &target), retried.last()) {
                (Some(cached), _) => Ok(cached),
                // Probably in the same region as the others.
                (None, Some((_, failed))) if retried.len() >= MAX_FAILED_LOOKUPS => {
                    Err(Unlocated::Transient { cause: failed.cause.clone(), region: None })
                }
                (None, _) => locator.locate_once(table, &target, &self.attempts).await,
            };
            match located {
                Ok(location) => {
                    regions.insert((location.region.clone(), shares.len()));
                    let actions = vec![(at, action)];
                    shares.push(ActionShare { actions, ..ActionShare::new(location) });
                }
                Err(Unlocated::Transient { cause, .. }) => {
                    let retry = Retry::Backoff { overloaded: false };
                    retried.push((at, FailedAttempt { cause, retry, in_doubt: false }));
                }
                Err(Unlocated::Permanent(error)) => self.complete(at, Err(error)),
            }
        }
        let mut servers: HashMap<_, Vec<_>> = HashMap::new();
        for share in shares {
            servers.entry(share.location.server.clone()).or_default().push(share);
        }
        servers
    }

    /// Splits the actions of a server into calls within the limits.
    fn split(&self, shares: Vec<ActionShare<'a>>) -> Vec<Vec<ActionShare<'a>>> {
        let (mut calls, mut call, mut left) = (Vec::new(), Vec::new(), self.limits);
        for ActionShare { location, actions, .. } in shares {
            let mut share = ActionShare::new(location.clone());
            for (at, action) in actions {
                let size = action.cell_bytes();
                if !left.fits(size) && (!call.is_empty() || !share.actions.is_empty()) {
                    let full = std::mem::replace(&mut share, ActionShare::new(location.clone()));
                    call.extend((!full.actions.is_empty()).then_some(full));
                    calls.push(std::mem::take(&mut call));
                    left = self.limits;
                }
                left.subtract(1, size);
                share.actions.push((at, action));
            }
            call.push(share);
        }
        calls.push(call);
        calls
    }

    /// Sends one call. Returns the result of each action by its index.
    async fn send(
        &self,
        shares: Vec<ActionShare<'a>>,
    ) -> Vec<(usize, Result<RowResult, FailedAttempt>)> {
        let client = &self.table.client;
        let options = CallOptions {
            deadline: self.attempts.call_deadline(client.config().call_timeout),
            attempt: self.attempts.attempt(),
            discard_results: false,
        };
        let answer = multi::call(client, &shares, &mut Encoder::default(), options).await;
        let is_first = self.attempts.is_first();
        let results = answer.outcome.into_results(client.locator(), &shares, |_| is_first);
        let mut actions = Vec::new();
        for (share, result) in shares.into_iter().zip(results) {
            let indices = share.actions.into_iter().map(|(at, _)| at);
            match result {
                RegionResult::Each(each) => actions.extend(indices.zip(each)),
                RegionResult::Failed(failed) => {
                    actions.extend(indices.map(|at| (at, Err(failed.clone()))));
                }
                RegionResult::Done => {
                    actions.extend(indices.map(|at| (at, Ok(RowResult::default()))));
                }
            }
        }
        actions
    }
}
