//! Recorded Multi responses, replayed to the client.
//!
//! The batch has the same number of regions and actions, of the same kinds, as the recorded request. The
//! client numbers actions by their position in the region, so the indices of the recorded response are
//! replaced; everything else is unchanged.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hbase_rs::{
    Action, Append, BufferConfig, Client, ClientConfig, Delete, Get, Increment, Mutation, Put,
    RowResult, Table,
    buffer::MutationBatch,
    condition::Condition,
    discovery::FixedDiscovery,
    errors::Failure,
    protocol::{ActionOutcome, CallOutcome, RegionOutcome, Response, multi_outcomes},
};
use hbase_rs_protobuf as pb;
use pb::mutation_proto::MutationType;
use prost::Message;

use crate::{
    recording::{self, Exchange},
    server::{LIMIT, Script, start},
};

/// A recorded Multi.
struct RecordedMulti {
    exchange: Exchange,
    request: pb::MultiRequest,
    /// The response frame with positions as indices.
    frame: Bytes,
    /// Outcomes by region; `None` if the whole call failed.
    outcomes: Option<Vec<RegionOutcome>>,
    class: Option<hbase_rs::errors::ExceptionClass>,
}

fn recorded(exchange: Exchange) -> Option<RecordedMulti> {
    let (header, message, _) = exchange.request.as_ref().and_then(recording::request)?;
    let bytes = exchange.response.clone()?;
    // Some recorded requests are intentionally invalid.
    let request = pb::MultiRequest::decode(message).ok()?;
    if header.method_name() != "Multi" || request.region_action.is_empty() {
        return None;
    }
    let response = Response::decode(recording::frame(&bytes)).unwrap();
    let (frame, outcomes, class) = match response.outcome {
        CallOutcome::Exception(exception) => (bytes, None, Some(exception.class())),
        CallOutcome::Response(body) => {
            let mut message: pb::MultiResponse = body.message().unwrap();
            replace_indices(&request, &mut message);
            let shape: Vec<_> = request
                .region_action
                .iter()
                .map(|region| (region.action.len(), region.atomic() || region.condition.is_some()))
                .collect();
            let block = body.block(exchange.compressor, LIMIT).unwrap();
            let outcomes = multi_outcomes(&shape, &message, block).unwrap();
            (with_message(&bytes, &message), Some(outcomes), None)
        }
        CallOutcome::Undecodable(error) => panic!("{}: {error}", exchange.name),
    };
    Some(RecordedMulti { exchange, request, frame, outcomes, class })
}

fn replace_indices(request: &pb::MultiRequest, response: &mut pb::MultiResponse) {
    for (requested, returned) in
        request.region_action.iter().zip(&mut response.region_action_result)
    {
        for entry in &mut returned.result_or_exception {
            let position = requested.action.iter().position(|action| action.index == entry.index);
            // Responses to atomic requests have positions already.
            if let Some(position) = position {
                entry.index = Some(position as u32);
            }
        }
    }
}

/// Returns the frame with its message replaced.
fn with_message(bytes: &Bytes, message: &pb::MultiResponse) -> Bytes {
    let mut rest = bytes.slice(4..);
    let length = prost::decode_length_delimiter(&mut rest).unwrap();
    let header = rest.split_to(length);
    let length = prost::decode_length_delimiter(&mut rest).unwrap();
    let block = rest.slice(length..);
    let mut body = BytesMut::new();
    prost::encode_length_delimiter(header.len(), &mut body).unwrap();
    body.extend_from_slice(&header);
    body.extend_from_slice(&message.encode_length_delimited_to_vec());
    body.extend_from_slice(&block);
    [&(body.len() as u32).to_be_bytes()[..], &body].concat().into()
}

/// Returns an action of the recorded kind.
fn action(region: usize, position: usize, recorded: &pb::Action) -> Action {
    let row = format!("{region}{position:03}");
    let Some(recorded) = &recorded.mutation else { return Get::try_new(row).unwrap().into() };
    mutation(row, recorded.mutate_type()).into()
}

fn mutation(row: String, kind: MutationType) -> Mutation {
    match kind {
        MutationType::Put => Put::try_new(row).unwrap().cell(b"f", b"q", 1, b"v").unwrap().into(),
        MutationType::Delete => Delete::try_new(row).unwrap().into(),
        MutationType::Append => {
            Append::try_new(row).unwrap().value(b"f", b"q", b"v").unwrap().into()
        }
        MutationType::Increment => {
            Increment::try_new(row).unwrap().counter(b"f", b"q", 1).unwrap().into()
        }
    }
}

/// Compares the result of an action with its recorded outcome.
#[track_caller]
fn check(
    name: &str,
    expected: &ActionOutcome,
    actual: &Result<RowResult, hbase_rs::OperationError>,
) {
    match (expected, actual) {
        (ActionOutcome::Done(result), Ok(actual)) => assert_eq!(actual, result, "{name}"),
        (ActionOutcome::Failed(exception), Err(error)) => {
            assert_eq!(error.class(), Some(exception.class()), "{name}");
        }
        (ActionOutcome::Lost, Err(error)) => {
            assert!(matches!(&*error.cause, Failure::Lost), "{name}: {error:?}");
        }
        (expected, actual) => panic!("{name}: {expected:?}, {actual:?}"),
    }
}

async fn replay_batch(recorded: &RecordedMulti, table: &Table) {
    let regions = recorded.request.region_action.iter().enumerate();
    let actions: Vec<_> = regions
        .flat_map(|(region, requested)| {
            let actions = requested.action.iter().enumerate();
            actions.map(move |(position, one)| action(region, position, one))
        })
        .collect();
    let name = &recorded.exchange.name;
    let mut actual = table.batch(actions).await.into_iter();
    let Some(outcomes) = &recorded.outcomes else {
        for actual in actual {
            assert_eq!(actual.unwrap_err().class(), recorded.class, "{name}");
        }
        return;
    };
    for (requested, outcome) in recorded.request.region_action.iter().zip(outcomes) {
        let outcomes = match outcome {
            RegionOutcome::Each(each) => each.clone(),
            RegionOutcome::Failed(exception) => {
                vec![ActionOutcome::Failed(exception.clone()); requested.action.len()]
            }
            group @ RegionOutcome::Group { .. } => panic!("{name}: {group:?}"),
        };
        for expected in &outcomes {
            check(name, expected, &actual.next().unwrap());
        }
    }
    assert!(actual.next().is_none());
}

async fn replay_atomic(recorded: &RecordedMulti, table: &Table) {
    let [requested] = &recorded.request.region_action[..] else { panic!("one region") };
    let kinds = requested.action.iter().filter_map(|action| action.mutation.as_ref());
    let mutations = kinds.map(|one| mutation("row".to_owned(), one.mutate_type())).collect();
    let condition = Condition::absent("f", "q");
    let condition = requested.condition.as_ref().map(|_| &condition);
    let actual = table.mutate_row(mutations, condition).await;
    let name = &recorded.exchange.name;
    let [outcome] = &recorded.outcomes.as_ref().unwrap()[..] else { panic!("one outcome") };
    match (outcome, actual) {
        (RegionOutcome::Group { processed, .. }, Ok(actual)) => {
            // A group without a condition is processed.
            assert_eq!(actual, processed.unwrap_or(true), "{name}");
        }
        (RegionOutcome::Failed(exception), Err(error)) => {
            assert_eq!(error.class(), Some(exception.class()), "{name}");
        }
        (expected, actual) => panic!("{name}: {expected:?}, {actual:?}"),
    }
}

/// True if the request has only mutations and all succeeded.
fn all_written(recorded: &RecordedMulti) -> bool {
    let mut actions = recorded.request.region_action.iter().flat_map(|region| &region.action);
    let done = |outcome: &RegionOutcome| match outcome {
        RegionOutcome::Each(each) => each.iter().all(|one| matches!(one, ActionOutcome::Done(_))),
        RegionOutcome::Group { .. } | RegionOutcome::Failed(_) => false,
    };
    actions.all(|action| action.mutation.is_some())
        && recorded.outcomes.as_ref().is_some_and(|outcomes| outcomes.iter().all(done))
}

async fn replay_buffered(recorded: &RecordedMulti, table: &Table) {
    let mut batch = MutationBatch::default();
    for (region, requested) in recorded.request.region_action.iter().enumerate() {
        for (position, one) in requested.action.iter().enumerate() {
            let kind = one.mutation.as_ref().unwrap().mutate_type();
            batch.push(mutation(format!("{region}{position:03}"), kind)).unwrap();
        }
    }
    // All regions are cached, so that the batch is one call.
    let written = table.buffered(BufferConfig::default()).write(batch).await;
    written.unwrap_or_else(|error| panic!("{}: {error:?}", recorded.exchange.name));
}

#[tokio::test]
async fn batches_return_the_outcomes_of_recorded_responses() {
    let script = Script::default();
    let server = start(Arc::clone(&script)).await;
    let (mut batches, mut atomic_groups, mut buffered) = (0, 0, 0);
    for recorded in recording::exchanges().into_iter().filter_map(recorded) {
        let regions = &recorded.request.region_action;
        let atomic = |region: &pb::RegionAction| region.atomic() || region.condition.is_some();
        let mut config = ClientConfig::new("wire");
        // No retry: only the recorded response is tested.
        config.max_attempts = 1;
        config.compressor = recorded.exchange.compressor;
        let discovery = FixedDiscovery::new(Some(server.clone()), None);
        let table = Client::new(config, discovery).table("wire".parse().unwrap());
        script.lock().more_regions = regions.len() - 1;
        for region in 0..regions.len() {
            table.locate(format!("{region}").into()).await.unwrap();
        }
        script.lock().next = Some(recorded.frame.clone());
        if !regions.iter().any(atomic) && regions.iter().all(|region| !region.action.is_empty()) {
            replay_batch(&recorded, &table).await;
            batches += 1;
            if all_written(&recorded) {
                script.lock().next = Some(recorded.frame.clone());
                replay_buffered(&recorded, &table).await;
                buffered += 1;
            }
        } else if let [only] = &regions[..]
            && atomic(only)
            && only.action.iter().all(|action| action.mutation.is_some())
        {
            replay_atomic(&recorded, &table).await;
            atomic_groups += 1;
        }
        script.lock().next.take();
    }
    // The others combine actions in one request that this client sends in several.
    assert_eq!((batches, atomic_groups, buffered), (25, 7, 3));
}
