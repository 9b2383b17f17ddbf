//! Recorded answers to Multi through the whole client.
//!
//! The batch has as many regions and actions, of the same kinds, as the recorded request. Its actions
//! are numbered by their place in their region, so the numbers of the recorded answer are changed to
//! that; all else is said as it was.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hbase_rs::{
    Action, Append, BufferConfig, Client, ClientConfig, Condition, Delete, Failure, FixedDiscovery,
    Get, Increment, Mutation, MutationBatch, Put, RowResult, Table,
    protocol::{ActionOutcome, Outcome, RegionOutcome, Response, multi_outcomes},
};
use hbase_rs_protobuf as pb;
use pb::mutation_proto::MutationType;
use prost::Message;

use crate::{
    recording::{self, Exchange},
    server::{LIMIT, Script, start},
};

/// A recorded call.
struct Recorded {
    exchange: Exchange,
    request: pb::MultiRequest,
    /// The answer with numbers that are places.
    frame: Bytes,
    /// What it says, by region; nothing if the call failed as a whole.
    outcomes: Option<Vec<RegionOutcome>>,
    class: Option<hbase_rs::ExceptionClass>,
}

fn recorded(exchange: Exchange) -> Option<Recorded> {
    let (header, message, _) = exchange.request.as_ref().and_then(recording::request)?;
    let bytes = exchange.response.clone()?;
    // Bytes that are no request: the place of a cell that is not there, and the like.
    let request = pb::MultiRequest::decode(message).ok()?;
    if header.method_name() != "Multi" || request.region_action.is_empty() {
        return None;
    }
    let response = Response::decode(recording::frame(&bytes)).unwrap();
    let (frame, outcomes, class) = match response.outcome {
        Outcome::Exception(exception) => (bytes, None, Some(exception.class())),
        Outcome::Answer(answer) => {
            let mut message: pb::MultiResponse = answer.message().unwrap();
            number_by_place(&request, &mut message);
            let shape: Vec<_> = request
                .region_action
                .iter()
                .map(|region| (region.action.len(), region.atomic() || region.condition.is_some()))
                .collect();
            let block = answer.block(exchange.compressor, LIMIT).unwrap();
            let outcomes = multi_outcomes(&shape, &message, block).unwrap();
            (with_message(&bytes, &message), Some(outcomes), None)
        }
        Outcome::Unreadable(error) => panic!("{}: {error}", exchange.place),
    };
    Some(Recorded { exchange, request, frame, outcomes, class })
}

fn number_by_place(request: &pb::MultiRequest, response: &mut pb::MultiResponse) {
    for (asked, said) in request.region_action.iter().zip(&mut response.region_action_result) {
        for entry in &mut said.result_or_exception {
            let place = asked.action.iter().position(|action| action.index == entry.index);
            // An atomic answer numbers by place already.
            if let Some(place) = place {
                entry.index = Some(place as u32);
            }
        }
    }
}

/// The frame with another message in it.
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

/// An action of the recorded one's kind.
fn action(region: usize, place: usize, recorded: &pb::Action) -> Action {
    let row = format!("{region}{place:03}");
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

/// What a batch must make of an outcome.
#[track_caller]
fn check(
    place: &str,
    expected: &ActionOutcome,
    seen: &Result<RowResult, hbase_rs::OperationError>,
) {
    match (expected, seen) {
        (ActionOutcome::Done(result), Ok(seen)) => assert_eq!(seen, result, "{place}"),
        (ActionOutcome::Failed(exception), Err(error)) => {
            assert_eq!(error.class(), Some(exception.class()), "{place}");
        }
        (ActionOutcome::Lost, Err(error)) => {
            assert!(matches!(&*error.cause, Failure::Lost), "{place}: {error:?}");
        }
        (expected, seen) => panic!("{place}: {expected:?}, {seen:?}"),
    }
}

async fn replay_batch(recorded: &Recorded, table: &Table) {
    let regions = recorded.request.region_action.iter().enumerate();
    let actions: Vec<_> = regions
        .flat_map(|(region, asked)| {
            asked.action.iter().enumerate().map(move |(place, one)| action(region, place, one))
        })
        .collect();
    let place = &recorded.exchange.place;
    let mut seen = table.batch(actions).await.into_iter();
    let Some(outcomes) = &recorded.outcomes else {
        for seen in seen {
            assert_eq!(seen.unwrap_err().class(), recorded.class, "{place}");
        }
        return;
    };
    for (asked, outcome) in recorded.request.region_action.iter().zip(outcomes) {
        let outcomes = match outcome {
            RegionOutcome::Each(each) => each.clone(),
            RegionOutcome::Failed(exception) => {
                vec![ActionOutcome::Failed(exception.clone()); asked.action.len()]
            }
            group @ RegionOutcome::Group { .. } => panic!("{place}: {group:?}"),
        };
        for expected in &outcomes {
            check(place, expected, &seen.next().unwrap());
        }
    }
    assert!(seen.next().is_none());
}

async fn replay_together(recorded: &Recorded, table: &Table) {
    let [asked] = &recorded.request.region_action[..] else { panic!("one region") };
    let kinds = asked.action.iter().filter_map(|action| action.mutation.as_ref());
    let mutations = kinds.map(|one| mutation("row".to_owned(), one.mutate_type())).collect();
    let condition = Condition::absent("f", "q");
    let condition = asked.condition.as_ref().map(|_| &condition);
    let seen = table.mutate_row(mutations, condition).await;
    let place = &recorded.exchange.place;
    let [outcome] = &recorded.outcomes.as_ref().unwrap()[..] else { panic!("one outcome") };
    match (outcome, seen) {
        (RegionOutcome::Group { processed, .. }, Ok(seen)) => {
            assert_eq!(seen, *processed, "{place}");
        }
        (RegionOutcome::Failed(exception), Err(error)) => {
            assert_eq!(error.class(), Some(exception.class()), "{place}");
        }
        (expected, seen) => panic!("{place}: {expected:?}, {seen:?}"),
    }
}

/// Whether all was done, and nothing was read.
fn only_written(recorded: &Recorded) -> bool {
    let mut actions = recorded.request.region_action.iter().flat_map(|region| &region.action);
    let done = |outcome: &RegionOutcome| match outcome {
        RegionOutcome::Each(each) => each.iter().all(|one| matches!(one, ActionOutcome::Done(_))),
        RegionOutcome::Group { .. } | RegionOutcome::Failed(_) => false,
    };
    actions.all(|action| action.mutation.is_some())
        && recorded.outcomes.as_ref().is_some_and(|outcomes| outcomes.iter().all(done))
}

async fn replay_buffered(recorded: &Recorded, table: &Table) {
    let mut batch = MutationBatch::default();
    for (region, asked) in recorded.request.region_action.iter().enumerate() {
        for (place, one) in asked.action.iter().enumerate() {
            let kind = one.mutation.as_ref().unwrap().mutate_type();
            batch.push(mutation(format!("{region}{place:03}"), kind)).unwrap();
        }
    }
    // All regions are known, so that they go in one call.
    let written = table.buffered(BufferConfig::default()).write(batch).await;
    written.unwrap_or_else(|error| panic!("{}: {error:?}", recorded.exchange.place));
}

#[tokio::test]
async fn batches_make_of_recorded_answers_what_they_say() {
    let script = Script::default();
    let server = start(Arc::clone(&script)).await;
    let (mut batches, mut together, mut buffered) = (0, 0, 0);
    for recorded in recording::exchanges().into_iter().filter_map(recorded) {
        let regions = &recorded.request.region_action;
        let atomic = |region: &pb::RegionAction| region.atomic() || region.condition.is_some();
        let mut config = ClientConfig::new("wire");
        // What it makes of the answer, not of the next one.
        config.max_attempts = 1;
        config.compressor = recorded.exchange.compressor;
        let discovery = FixedDiscovery::new(Some(server.clone()), None);
        let table = Client::new(config, discovery).table("wire".parse().unwrap());
        script.lock().unwrap().more_regions = regions.len() - 1;
        for region in 0..regions.len() {
            table.locate(format!("{region}").into()).await.unwrap();
        }
        script.lock().unwrap().next = Some(recorded.frame.clone());
        if !regions.iter().any(atomic) && regions.iter().all(|region| !region.action.is_empty()) {
            replay_batch(&recorded, &table).await;
            batches += 1;
            if only_written(&recorded) {
                script.lock().unwrap().next = Some(recorded.frame.clone());
                replay_buffered(&recorded, &table).await;
                buffered += 1;
            }
        } else if let [only] = &regions[..]
            && atomic(only)
            && only.action.iter().all(|action| action.mutation.is_some())
        {
            replay_together(&recorded, &table).await;
            together += 1;
        }
        script.lock().unwrap().next.take();
    }
    // The others mix in one request what this client sends in several.
    assert_eq!((batches, together, buffered), (25, 7, 3));
}
