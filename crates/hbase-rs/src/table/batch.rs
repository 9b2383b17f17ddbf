//! Many actions at once, grouped by server and region.
//!
//! A round finds the region of every action that is left, sends each server its share, and sorts
//! the outcomes: done, failed for good, or left for the next round, after the longest pause that any
//! of them asks for. Only what is left is grouped again, by row: its region may be another by then.

use std::collections::{BTreeMap, HashMap};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, future::join_all, stream};
use hbase_rs_protobuf as pb;

use super::Table;
use crate::{
    attempts::Attempts,
    client::{Next, RegionCall},
    connection::{CallClass, CallError},
    error::{Failure, OperationError},
    exception::RemoteException,
    locator::Unlocated,
    multi::{Action, ActionOutcome, RegionBatch, RegionOutcome, multi_outcomes, multi_request},
    random::nonce,
    region::{info::RegionLocation, meta::RegionTarget},
    row::RowResult,
    server_name::ServerName,
};

/// Lookups in a round that may fail before the rest is left for the next.
const FAILED_LOOKUPS: usize = 4;

type Outcome = Result<RowResult, OperationError>;

/// Actions of one region in one call, by their place in the batch.
struct Share {
    location: RegionLocation,
    actions: Vec<usize>,
}

/// What a round made of an action.
enum Sorted {
    Done(RowResult),
    Again(Failure, Next),
    Failed(Failure, bool),
}

/// A batch under way.
struct Batch<'a> {
    table: &'a Table,
    actions: Vec<Action>,
    outcomes: Vec<Option<Outcome>>,
    /// Of each action, whether an attempt may have done it.
    doubts: Vec<bool>,
    attempts: Attempts,
    max_actions: usize,
    max_bytes: usize,
}

pub(super) async fn run(table: &Table, mut actions: Vec<Action>) -> Vec<Outcome> {
    let attempts = table.attempts("batch");
    let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(actions.len());
    for action in &mut actions {
        let mut refused = None;
        if let Action::Mutate(mutation, number) = action {
            refused = table.check(mutation, &attempts).err().map(Err);
            if mutation.needs_nonce() {
                *number = Some(nonce());
            }
        }
        outcomes.push(refused);
    }
    let config = table.client.config();
    let (max_actions, max_bytes) = (config.max_batch_actions.max(1), config.max_batch_bytes);
    let doubts = vec![false; actions.len()];
    let mut batch = Batch { table, actions, outcomes, doubts, attempts, max_actions, max_bytes };
    while batch.round().await {}
    let missing = || Err(batch.attempts.fail(Failure::Lost, true));
    batch.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
}

impl Batch<'_> {
    /// One round. Returns whether another one is needed.
    async fn round(&mut self) -> bool {
        let mut left = Vec::new();
        let servers = self.group(&mut left).await;
        // A call is encoded when its turn comes, so that a large batch is not in memory twice.
        let width = self.table.client.config().max_batch_calls.max(1);
        let sent = servers.into_values().map(|shares| {
            let calls = self.split(shares).into_iter().map(|shares| self.send(shares));
            stream::iter(calls).buffer_unordered(width).collect::<Vec<_>>()
        });
        let results = join_all(sent).await;
        let mut progress = false;
        for (action, sorted) in results.into_iter().flatten().flatten() {
            let outcome = match sorted {
                Sorted::Done(result) => {
                    progress = true;
                    Ok(result)
                }
                Sorted::Failed(cause, in_doubt) => Err(self.attempts.fail(cause, in_doubt)),
                Sorted::Again(cause, next) => {
                    let in_doubt = match &cause {
                        Failure::Call(error) => error.is_ambiguous(),
                        Failure::Lost | Failure::Batch(_) => true,
                        _ => false,
                    };
                    if let Some(doubt) = self.doubts.get_mut(action) {
                        *doubt |= in_doubt;
                    }
                    left.push((action, cause, next));
                    continue;
                }
            };
            self.settle(action, outcome);
        }
        self.rest(left, progress).await
    }

    /// Waits as long as the slowest of those that are left needs, or fails them.
    async fn rest(&mut self, left: Vec<(usize, Failure, Next)>, progress: bool) -> bool {
        let Some((_, cause, next)) = left.iter().max_by_key(|(_, _, next)| *next) else {
            return false;
        };
        let cause = cause.clone();
        if progress {
            self.attempts.progress();
        }
        let waited = match *next {
            Next::Pause { overloaded } => self.attempts.pause(cause, overloaded).await,
            Next::Wait(wait) => self.attempts.wait(wait, cause).await,
            Next::Split => {
                self.max_actions = (self.max_actions / 2).max(1);
                self.max_bytes /= 2;
                self.attempts.at_once(cause)
            }
            Next::AtOnce | Next::AtOnceIfFirst | Next::Fail => self.attempts.at_once(cause),
        };
        if waited.is_ok() {
            return true;
        }
        for (action, cause, _) in left {
            let error = self.attempts.fail(cause, false);
            self.settle(action, Err(error));
        }
        false
    }

    fn settle(&mut self, action: usize, mut outcome: Outcome) {
        if let Err(error) = &mut outcome {
            let reads = matches!(self.actions.get(action), Some(Action::Get(_)));
            error.in_doubt |= self.doubts.get(action).is_some_and(|doubt| *doubt);
            error.in_doubt &= !reads;
        }
        if let Some(place) = self.outcomes.get_mut(action) {
            *place = Some(outcome);
        }
    }

    /// Regions of the actions that are left, by server. Those whose region is not to be found now
    /// are added to `later`: they do not hold up the others.
    async fn group(
        &mut self,
        later: &mut Vec<(usize, Failure, Next)>,
    ) -> HashMap<ServerName, Vec<Share>> {
        let mut regions: BTreeMap<Bytes, Share> = BTreeMap::new();
        for at in 0..self.actions.len() {
            let open = self.outcomes.get(at).is_some_and(Option::is_none);
            let Some(action) = self.actions.get(at).filter(|_| open) else { continue };
            let locate = RegionTarget::Holding(action.row().clone());
            let (locator, table) = (self.table.client.locator(), &self.table.name);
            let located = match (locator.cached(table, &locate), later.last()) {
                (Some(known), _) => Ok(known),
                // Most likely the same region; if not, its turn comes.
                (None, Some((_, cause, _))) if later.len() >= FAILED_LOOKUPS => {
                    Err(Unlocated::ForNow { cause: cause.clone(), region: None })
                }
                (None, _) => locator.locate_once(table, &locate, &self.attempts).await,
            };
            match located {
                Ok(location) => {
                    let name = location.region.name().clone();
                    let share = regions
                        .entry(name)
                        .or_insert_with(|| Share { location, actions: Vec::new() });
                    share.actions.push(at);
                }
                Err(Unlocated::ForNow { cause, .. }) => {
                    later.push((at, cause, Next::Pause { overloaded: false }));
                }
                Err(Unlocated::ForGood(error)) => self.settle(at, Err(error)),
            }
        }
        let mut servers: HashMap<_, Vec<Share>> = HashMap::new();
        for share in regions.into_values() {
            servers.entry(share.location.server.clone()).or_default().push(share);
        }
        servers
    }

    /// Cuts a server's share into calls.
    fn split(&self, shares: Vec<Share>) -> Vec<Vec<Share>> {
        let mut calls = Vec::new();
        let mut call: Vec<Share> = Vec::new();
        let (mut actions, mut bytes) = (0, 0);
        for share in shares {
            let Share { location, actions: places } = share;
            call.push(Share { location: location.clone(), actions: Vec::new() });
            for at in places {
                let size = self.actions.get(at).map_or(0, Action::cell_bytes);
                if actions > 0 && (actions >= self.max_actions || bytes + size > self.max_bytes) {
                    calls.push(std::mem::take(&mut call));
                    call.push(Share { location: location.clone(), actions: Vec::new() });
                    (actions, bytes) = (0, 0);
                }
                if let Some(last) = call.last_mut() {
                    last.actions.push(at);
                }
                actions += 1;
                bytes += size;
            }
        }
        calls.push(call);
        // The first share of a call may have gone to the call before.
        for call in &mut calls {
            call.retain(|share| !share.actions.is_empty());
        }
        calls.retain(|call| !call.is_empty());
        calls
    }

    /// One call to a server.
    async fn send(&self, shares: Vec<Share>) -> Vec<(usize, Sorted)> {
        let Some(location) = shares.first().map(|share| share.location.clone()) else {
            return Vec::new();
        };
        let batches: Vec<_> = shares
            .iter()
            .map(|share| RegionBatch {
                region: share.location.region.name(),
                actions: share.actions.iter().filter_map(|at| self.actions.get(*at)).collect(),
                atomic: false,
                condition: None,
            })
            .collect();
        let mut block = BytesMut::new();
        let client = &self.table.client;
        let request = multi_request(&batches, client.nonce_group(), &mut block);
        client.metrics().batches.one();
        let actions = shares.iter().map(|share| share.actions.len() as u64).sum();
        client.metrics().batch_actions.add(actions);
        let timeout = client.config().call_timeout;
        let call = RegionCall { method: "Multi", class: CallClass::Data, priority: None, timeout };
        let answer =
            client.call_region(&location, call, &request, block.freeze(), &self.attempts).await;
        let read = answer.and_then(|answer| client.read::<pb::MultiResponse>(&location, &answer));
        let (response, cells) = match read {
            Ok(read) => read,
            Err(error) => return self.failed(&shares, &error),
        };
        let shape: Vec<_> = shares.iter().map(|share| (share.actions.len(), false)).collect();
        match multi_outcomes(&shape, &response, cells) {
            Ok(outcomes) => shares
                .iter()
                .zip(outcomes)
                .flat_map(|(share, outcome)| self.sort(share, outcome))
                .collect(),
            Err(error) => {
                let cause = || Failure::Batch(error.to_string());
                shares
                    .iter()
                    .flat_map(|share| &share.actions)
                    .map(|at| (*at, self.lost(*at, cause())))
                    .collect()
            }
        }
    }

    /// Outcomes of one region.
    fn sort(&self, share: &Share, outcome: RegionOutcome) -> Vec<(usize, Sorted)> {
        match outcome {
            RegionOutcome::Each(outcomes) => share
                .actions
                .iter()
                .zip(outcomes)
                .map(|(at, outcome)| {
                    let sorted = match outcome {
                        ActionOutcome::Done(result) => Sorted::Done(result),
                        ActionOutcome::Failed(exception) => self.refused(share, exception),
                        ActionOutcome::Lost => self.lost(*at, Failure::Lost),
                    };
                    (*at, sorted)
                })
                .collect(),
            RegionOutcome::Failed(exception) => share
                .actions
                .iter()
                .map(|at| (*at, self.refused(share, exception.clone())))
                .collect(),
            // Only atomic shares have one outcome.
            RegionOutcome::Group { .. } => {
                share.actions.iter().map(|at| (*at, self.lost(*at, Failure::Lost))).collect()
            }
        }
    }

    fn refused(&self, share: &Share, exception: RemoteException) -> Sorted {
        let server = share.location.server.clone();
        let error = CallError::Remote { server, exception: exception.clone() };
        match self.table.client.digest(&share.location, &error) {
            Next::Fail | Next::Split => Sorted::Failed(Failure::Action(exception), false),
            Next::AtOnceIfFirst if !self.attempts.is_first() => {
                Sorted::Failed(Failure::Action(exception), false)
            }
            next => Sorted::Again(Failure::Action(exception), next),
        }
    }

    /// The call as a whole failed.
    fn failed(&self, shares: &[Share], error: &CallError) -> Vec<(usize, Sorted)> {
        let several = shares.iter().map(|share| share.actions.len()).sum::<usize>() > 1;
        let mut sorted = Vec::new();
        for share in shares {
            let next = self.table.client.digest(&share.location, error);
            for at in &share.actions {
                let cause = Failure::Call(error.clone());
                let again = match next {
                    Next::Fail => false,
                    Next::Split => several,
                    _ => !error.is_ambiguous() || self.is_repeatable(*at),
                };
                let outcome = if again {
                    Sorted::Again(cause, next)
                } else {
                    Sorted::Failed(cause, error.is_ambiguous())
                };
                sorted.push((*at, outcome));
            }
        }
        sorted
    }

    /// Nobody knows what became of it.
    fn lost(&self, at: usize, cause: Failure) -> Sorted {
        if self.is_repeatable(at) {
            Sorted::Again(cause, Next::Pause { overloaded: false })
        } else {
            Sorted::Failed(cause, true)
        }
    }

    fn is_repeatable(&self, at: usize) -> bool {
        match self.actions.get(at) {
            Some(Action::Mutate(mutation, _)) => mutation.is_repeatable(),
            _ => true,
        }
    }
}
