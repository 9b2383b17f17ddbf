//! Operations on one row.

use bytes::{Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use prost::Message;

use super::Table;
use crate::{
    attempts::Attempts,
    client::RegionCall,
    connection::{CallClass, CallError},
    error::{Failure, OperationError},
    multi::{Action, RegionBatch, RegionOutcome, multi_outcomes, multi_request, region_specifier},
    random::nonce,
    region::{info::RegionLocation, meta::RegionTarget},
    request::{
        condition::Condition,
        get::Get,
        mutation::{CellPlacement, Mutation},
    },
    row::{CellBlock, Row, RowResult},
};

impl Table {
    pub(super) async fn read(&self, get: &Get) -> Result<RowResult, OperationError> {
        let request = |region: &Bytes| pb::GetRequest {
            region: region_specifier(region),
            get: get.to_message(),
        };
        let mut attempts = self.attempts("get").reading();
        let call = Single { method: "Get", row: get.row(), repeatable: true };
        let (response, block): (pb::GetResponse, _) =
            self.on_region(&call, request, &Bytes::new(), &mut attempts).await?;
        let result = response.result.unwrap_or_default();
        decode(&result, block).map_err(|cause| attempts.fail(cause, false))
    }

    /// Returns new values, and whether the condition held.
    pub(super) async fn change(
        &self,
        operation: &'static str,
        mutation: &Mutation,
        condition: Option<&Condition>,
    ) -> Result<(Row, bool), OperationError> {
        let mut attempts = self.attempts(operation);
        self.check(mutation, &attempts)?;
        let message = mutation.to_message(CellPlacement::Block, mutation.needs_nonce().then(nonce));
        let condition = condition.map(|condition| condition.to_message(mutation.row()));
        // The second time a condition meets what the first attempt left behind.
        let repeatable = condition.is_none() && mutation.is_repeatable();
        let request = |region: &Bytes| pb::MutateRequest {
            region: region_specifier(region),
            mutation: message.clone(),
            condition: condition.clone(),
            nonce_group: Some(self.client.nonce_group()),
        };
        let block = Bytes::copy_from_slice(mutation.encoded_cells());
        let call = Single { method: "Mutate", row: mutation.row(), repeatable };
        let (response, block): (pb::MutateResponse, _) =
            self.on_region(&call, request, &block, &mut attempts).await?;
        let result = response.result.clone().unwrap_or_default();
        let result = decode(&result, block).map_err(|cause| attempts.fail(cause, true))?;
        Ok((result.row, response.processed()))
    }

    pub(super) async fn change_together(
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
        let mut block = BytesMut::new();
        for action in &actions {
            if let Action::Mutate(mutation, _) = action {
                block.extend_from_slice(mutation.encoded_cells());
            }
        }
        let request = |region: &Bytes| {
            let batch =
                RegionBatch { region, actions: actions.iter().collect(), atomic: true, condition };
            multi_request(&[batch], self.client.nonce_group(), &mut BytesMut::new())
        };
        loop {
            let call = Single { method: "Multi", row: &row, repeatable };
            let (location, response, cells): (_, pb::MultiResponse, _) =
                self.located(&call, request, &block.clone().freeze(), &mut attempts).await?;
            let outcomes = multi_outcomes(&[(actions.len(), true)], &response, cells)
                .map_err(|error| attempts.fail(Failure::Batch(error.to_string()), true))?;
            match outcomes.into_iter().next() {
                Some(RegionOutcome::Group { processed, .. }) => return Ok(processed),
                Some(RegionOutcome::Failed(exception)) => {
                    let error = CallError::Remote { server: location.server.clone(), exception };
                    self.client.recover(&location, error, repeatable, &mut attempts).await?;
                }
                _ => return Err(attempts.fail(Failure::Lost, true)),
            }
        }
    }

    async fn on_region<M: Message, R: Message + Default>(
        &self,
        call: &Single<'_>,
        request: impl Fn(&Bytes) -> M,
        block: &Bytes,
        attempts: &mut Attempts,
    ) -> Result<(R, Bytes), OperationError> {
        let (_, response, block) = self.located(call, request, block, attempts).await?;
        Ok((response, block))
    }

    /// Calls the server of the row's region until it answers.
    async fn located<M: Message, R: Message + Default>(
        &self,
        call: &Single<'_>,
        request: impl Fn(&Bytes) -> M,
        block: &Bytes,
        attempts: &mut Attempts,
    ) -> Result<(RegionLocation, R, Bytes), OperationError> {
        let locate = RegionTarget::Holding(call.row.clone());
        let timeout = self.client.config().call_timeout;
        let spec =
            RegionCall { method: call.method, class: CallClass::Data, priority: None, timeout };
        loop {
            let location = self.client.locator().locate(&self.name, &locate, attempts).await?;
            let message = request(location.region.name());
            let answer =
                self.client.call_region(&location, spec, &message, block.clone(), attempts).await;
            match answer.and_then(|answer| self.client.read(&location, &answer)) {
                Ok((response, block)) => return Ok((location, response, block)),
                Err(error) => {
                    self.client.recover(&location, error, call.repeatable, attempts).await?;
                }
            }
        }
    }
}

/// A call about one row.
struct Single<'a> {
    method: &'static str,
    row: &'a Bytes,
    /// Whether it may be made again when nobody knows if it was done.
    repeatable: bool,
}

fn decode(result: &pb::Result, block: Bytes) -> Result<RowResult, Failure> {
    let mut block = CellBlock::new(block);
    let result = RowResult::decode(result, &mut block)?;
    block.finish()?;
    Ok(result)
}
