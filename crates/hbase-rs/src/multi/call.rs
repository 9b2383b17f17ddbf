//! Sends one Multi, and decides for each of its actions whether to repeat it.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use tokio::time::Instant;

use super::{
    encode::{Encoder, RegionShare},
    load::{RegionLoad, region_loads},
    outcome::{ActionOutcome, MultiError, RegionOutcome, all_done, multi_outcomes},
};
use crate::{
    attempts::FailedAttempt,
    client::{Client, RegionCall},
    connection::{CallClass, CallError},
    exception::RemoteException,
    locator::Locator,
    operation_error::Failure,
    row::RowResult,
    trace::Attempt,
};

/// Result of a call.
#[derive(Debug)]
pub(crate) struct MultiResult {
    pub(crate) outcome: MultiOutcome,
    /// Loads of its regions by name, if the server reports them.
    pub(crate) loads: Vec<(Bytes, RegionLoad)>,
}

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum MultiOutcome {
    /// Every action was executed, and its result is not needed.
    Done,
    /// Outcome of each region.
    Regions(Vec<RegionOutcome>),
    /// The response does not fit the request.
    Unreadable(MultiError),
    /// The call failed as a whole.
    Failed(CallError),
}

/// Result of the actions of one region.
#[derive(Debug)]
pub(crate) enum RegionResult {
    /// Every action was executed, and its result is not needed.
    Done,
    /// Every action failed in the same way.
    Failed(FailedAttempt),
    /// Each action by itself, in the order of the request.
    Each(Vec<Result<RowResult, FailedAttempt>>),
}

/// How a call is made.
#[derive(Debug)]
pub(crate) struct CallOptions {
    pub(crate) deadline: Instant,
    pub(crate) attempt: Attempt,
    /// A response that reports success only is not decoded.
    pub(crate) discard_results: bool,
}

/// Sends one call to the server of the shares.
pub(crate) async fn call<S: RegionShare>(
    client: &Client,
    shares: &[S],
    encoder: &mut Encoder,
    options: CallOptions,
) -> MultiResult {
    let Some(first) = shares.first() else { return MultiOutcome::Done.without_loads() };
    let (message, block) = encoder.encode(shares, client.nonce_group());
    let metrics = client.metrics();
    metrics.batches.one();
    metrics.batch_actions.add(shares.iter().map(|share| share.len() as u64).sum());
    let CallOptions { deadline, attempt, discard_results } = options;
    let attempt = Attempt { regions: shares.len(), ..attempt };
    let (method, class) = ("Multi", CallClass::Data);
    let call = RegionCall { method, class, priority: None, deadline, attempt };
    let response = client.call_region(first.location(), call, &message, block.clone()).await;
    encoder.recycle(message, block);
    let response = match response {
        Ok(response) => response,
        Err(error) => return MultiOutcome::Failed(error).without_loads(),
    };
    let loads = region_loads(response.encoded_message());
    if discard_results
        && response.has_no_block()
        && all_done(response.encoded_message(), shares.iter().map(S::len))
    {
        return MultiResult { outcome: MultiOutcome::Done, loads };
    }
    let outcome = match client.read::<pb::MultiResponse>(first.location(), &response) {
        Err(error) => MultiOutcome::Failed(error),
        Ok((response, cells)) => {
            let regions: Vec<_> =
                shares.iter().map(|share| (share.len(), share.is_atomic())).collect();
            match multi_outcomes(&regions, &response, cells) {
                Ok(outcomes) => MultiOutcome::Regions(outcomes),
                Err(error) => MultiOutcome::Unreadable(error),
            }
        }
    };
    MultiResult { outcome, loads }
}

impl MultiOutcome {
    const fn without_loads(self) -> MultiResult {
        MultiResult { outcome: self, loads: Vec::new() }
    }

    /// Returns the result of each share, with how to recover from failures. Invalidates the
    /// locations that a failure shows to be stale.
    ///
    /// `is_first` is true for a share if no attempt at it has failed before.
    pub(crate) fn into_results<S: RegionShare>(
        self,
        locator: &Locator,
        shares: &[S],
        is_first: impl Fn(&S) -> bool,
    ) -> Vec<RegionResult> {
        match self {
            Self::Done => shares.iter().map(|_| RegionResult::Done).collect(),
            Self::Unreadable(error) => {
                let cause = Failure::Batch(error.to_string());
                shares
                    .iter()
                    .map(|_| RegionResult::Failed(FailedAttempt::lost(cause.clone())))
                    .collect()
            }
            Self::Failed(error) => {
                // Atomic actions cannot be split.
                let atomic = shares.iter().any(S::is_atomic);
                let actions = if atomic { 1 } else { shares.iter().map(S::len).sum() };
                let failed = |share: &S| FailedAttempt {
                    retry: locator.classify_failure(
                        share.location(),
                        &error,
                        is_first(share),
                        actions,
                    ),
                    in_doubt: error.is_ambiguous(),
                    cause: Failure::Call(error.clone()),
                };
                shares.iter().map(|share| RegionResult::Failed(failed(share))).collect()
            }
            Self::Regions(outcomes) => shares
                .iter()
                .zip(outcomes)
                .map(|(share, outcome)| region_result(locator, share, outcome, is_first(share)))
                .collect(),
        }
    }
}

fn region_result<S: RegionShare>(
    locator: &Locator,
    share: &S,
    outcome: RegionOutcome,
    first: bool,
) -> RegionResult {
    let location = share.location();
    let in_batch = share.len() > 1 && !share.is_atomic();
    let rejected = |exception: RemoteException| {
        let in_doubt =
            if in_batch { exception.is_ambiguous_in_batch() } else { exception.is_ambiguous() };
        let error = CallError::Remote { server: location.server.clone(), exception };
        // Inside a Multi a single action is not split further.
        let retry = locator.classify_failure(location, &error, first, 1);
        FailedAttempt { cause: Failure::Call(error), retry, in_doubt }
    };
    match outcome {
        RegionOutcome::Failed(exception) => RegionResult::Failed(rejected(exception)),
        // Only atomic actions have one outcome, and their caller reads it.
        RegionOutcome::Group { .. } => RegionResult::Failed(FailedAttempt::lost(Failure::Lost)),
        RegionOutcome::Each(outcomes) => {
            // Actions of a region often fail alike: the exception is classified once.
            let mut last: Option<(RemoteException, FailedAttempt)> = None;
            let mut result = |outcome| match outcome {
                ActionOutcome::Done(result) => Ok(result),
                ActionOutcome::Lost => Err(FailedAttempt::lost(Failure::Lost)),
                ActionOutcome::Failed(exception) => match &last {
                    Some((same, failed)) if *same == exception => Err(failed.clone()),
                    _ => {
                        let failed = rejected(exception.clone());
                        last = Some((exception, failed.clone()));
                        Err(failed)
                    }
                },
            };
            RegionResult::Each(outcomes.into_iter().map(&mut result).collect())
        }
    }
}
