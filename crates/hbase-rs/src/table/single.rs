//! Operations on one row: reads, mutations, and atomic changes of several mutations.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{Table, conditions};
use crate::{
    attempts::Attempts,
    client::RegionCall,
    connection::CallClass,
    multi::{
        self, Action, ActionShare, CallOptions, Encoder, MultiOutcome, RegionOutcome, RegionResult,
    },
    operation_error::{Failure, OperationError},
    random::nonce,
    region::{meta::RegionTarget, name::region_specifier},
    request::{condition::Condition, get::Get, mutation::Mutation},
    row::{CellBlock, Row, RowResult},
};

impl Table {
    pub(super) async fn read(&self, get: &Get) -> Result<RowResult, OperationError> {
        let request = |region: &Bytes| pb::GetRequest {
            region: region_specifier(region),
            get: get.to_message(),
        };
        let mut attempts = self.attempts("get").reading();
        let call =
            RowCall { method: "Get", row: get.row(), repeatable: true, needs_support: false };
        let (response, block): (pb::GetResponse, _) =
            self.call_row(&call, request, &Bytes::new(), &mut attempts).await?;
        let result = response.result.unwrap_or_default();
        decode(&result, block).map_err(|cause| attempts.fail(cause, false))
    }

    /// Applies one mutation. Returns its new values, and whether the condition held.
    pub(super) async fn change(
        &self,
        operation: &'static str,
        mutation: &Mutation,
        condition: Option<&Condition>,
    ) -> Result<(Row, bool), OperationError> {
        let mut attempts = self.attempts(operation);
        self.check(mutation, &attempts)?;
        let message = mutation.to_message(mutation.needs_nonce().then(nonce));
        let needs_support = condition.is_some_and(Condition::needs_support);
        let condition = condition.map(|condition| condition.to_message(mutation.row()));
        // A repeated condition would see the change of the first attempt.
        let repeatable = condition.is_none() && mutation.is_repeatable();
        let request = |region: &Bytes| pb::MutateRequest {
            region: region_specifier(region),
            mutation: message.clone(),
            condition: condition.clone(),
            nonce_group: Some(self.client.nonce_group()),
        };
        let block = Bytes::copy_from_slice(mutation.encoded_cells());
        let call = RowCall { method: "Mutate", row: mutation.row(), repeatable, needs_support };
        let (response, block): (pb::MutateResponse, _) =
            self.call_row(&call, request, &block, &mut attempts).await?;
        let result = response.result.clone().unwrap_or_default();
        let result = decode(&result, block).map_err(|cause| attempts.fail(cause, true))?;
        Ok((result.row, response.processed()))
    }

    /// Applies all mutations of one row or none, optionally under a condition. Returns true if they
    /// were applied.
    ///
    /// # Errors
    ///
    /// If the change is not confirmed before the deadline. A condition is an error on servers before
    /// HBase 2.4, which would ignore it.
    pub async fn mutate_row(
        &self,
        mutations: Vec<Mutation>,
        condition: Option<&Condition>,
    ) -> Result<bool, OperationError> {
        let mut attempts = self.attempts("mutate row");
        for mutation in &mutations {
            self.check(mutation, &attempts)?;
        }
        let Some(row) = mutations.first().map(|mutation| mutation.row().clone()) else {
            return Ok(true);
        };
        let repeatable = condition.is_none()
            && mutations.iter().all(|mutation| mutation.is_repeatable() && !mutation.needs_nonce());
        let actions: Vec<_> = mutations.into_iter().map(Action::from).collect();
        let target = RegionTarget::Holding(row.clone());
        let locator = self.client.locator();
        loop {
            let location = locator.locate(&self.name, &target, &mut attempts).await?;
            if condition.is_some()
                && !self.check_condition_support(&location, &row, &mut attempts).await?
            {
                continue;
            }
            let server = location.server.clone();
            let shares = [ActionShare::atomic(location, &actions, condition)];
            let options = CallOptions {
                deadline: attempts.call_deadline(self.client.config().call_timeout),
                attempt: attempts.attempt(),
                discard_results: false,
            };
            let encoder = &mut Encoder::default();
            let answer = multi::call(&self.client, &shares, encoder, options).await;
            let outcome = answer.outcome;
            if let MultiOutcome::Regions(regions) = &outcome
                && let [RegionOutcome::Group { processed, .. }] = regions[..]
            {
                return match (processed, condition) {
                    (Some(processed), _) => Ok(processed),
                    (None, None) => Ok(true),
                    // The server was replaced by an older one.
                    (None, Some(_)) => {
                        let version = "before 2.4".to_owned();
                        Err(attempts.fail(conditions::too_old(&server, version), true))
                    }
                };
            }
            let first = attempts.is_first();
            match outcome.into_results(locator, &shares, |_| first).pop() {
                Some(RegionResult::Failed(failed)) => attempts.retry(failed, repeatable).await?,
                _ => return Err(attempts.fail(Failure::Lost, true)),
            }
        }
    }

    /// Calls the server of the row's region until a call succeeds.
    async fn call_row<M: Message, R: Message + Default>(
        &self,
        call: &RowCall<'_>,
        request: impl Fn(&Bytes) -> M,
        block: &Bytes,
        attempts: &mut Attempts,
    ) -> Result<(R, Bytes), OperationError> {
        let target = RegionTarget::Holding(call.row.clone());
        let method = call.method;
        loop {
            let location = self.client.locator().locate(&self.name, &target, attempts).await?;
            if call.needs_support
                && !self.check_condition_support(&location, call.row, attempts).await?
            {
                continue;
            }
            let message = request(location.region.name());
            let deadline = attempts.call_deadline(self.client.config().call_timeout);
            let spec = RegionCall {
                method,
                class: CallClass::Data,
                priority: None,
                deadline,
                attempt: attempts.attempt(),
            };
            let response = self.client.call_region(&location, spec, &message, block.clone()).await;
            match response.and_then(|response| self.client.read(&location, &response)) {
                Ok(read) => return Ok(read),
                Err(error) => {
                    self.client.recover(&location, error, call.repeatable, attempts).await?;
                }
            }
        }
    }
}

/// A call about one row.
struct RowCall<'a> {
    method: &'static str,
    row: &'a Bytes,
    /// True if executing it twice does no harm.
    repeatable: bool,
    /// True if its condition needs a server of version 2.4.
    needs_support: bool,
}

fn decode(result: &pb::Result, block: Bytes) -> Result<RowResult, Failure> {
    let mut block = CellBlock::new(block);
    let result = RowResult::decode(result, &mut block)?;
    block.finish()?;
    Ok(result)
}
