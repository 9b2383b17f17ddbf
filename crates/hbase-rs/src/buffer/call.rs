//! One Multi with parts of many batches.
//!
//! Of the answer to puts and deletes only one thing is of interest as a rule, that all were done, and
//! that is seen without decoding it; anything else is decoded in full.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::encoding::decode_varint;
use tokio::time::Instant;

use super::{buffer_pool::BufferPool, chunk::Run};
use crate::{
    client::{Client, RegionCall},
    connection::{CallClass, CallError},
    multi::{MultiError, RegionOutcome, multi_outcomes},
    region::info::RegionLocation,
};

/// Mutations of one region in one call.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) location: RegionLocation,
    pub(super) runs: Vec<Run>,
    pub(super) mutations: usize,
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum CallOutcome {
    /// All was done.
    Done,
    /// What became of each region's share.
    Regions(Vec<RegionOutcome>),
    /// The answer does not fit.
    Unreadable(MultiError),
    /// The call failed as a whole.
    Failed(CallError),
}

/// Makes the call.
pub(super) async fn call(
    client: &Client,
    shares: &[Share],
    deadline: Instant,
    pool: &BufferPool,
) -> CallOutcome {
    let Some(first) = shares.first() else { return CallOutcome::Done };
    let mut encoder = pool.encoder();
    let (message, block) = encoder.encode(shares, client.nonce_group());
    let metrics = client.metrics();
    metrics.batches.one();
    metrics.batch_actions.add(shares.iter().map(|share| share.mutations as u64).sum());
    let timeout = deadline.saturating_duration_since(Instant::now());
    let call = RegionCall { method: "Multi", class: CallClass::Data, priority: None, timeout };
    let location = &first.location;
    let answer = client.call_location(location, call, &message, block.clone(), deadline).await;
    encoder.take_back(message, block);
    pool.keep_encoder(encoder);
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return CallOutcome::Failed(error),
    };
    if answer.has_no_block() && all_done(answer.encoded_message(), shares) {
        return CallOutcome::Done;
    }
    match client.read::<pb::MultiResponse>(location, &answer) {
        Err(error) => CallOutcome::Failed(error),
        Ok((response, cells)) => {
            let shape: Vec<_> = shares.iter().map(|share| (share.mutations, false)).collect();
            match multi_outcomes(&shape, &response, cells) {
                Ok(outcomes) => CallOutcome::Regions(outcomes),
                Err(error) => CallOutcome::Unreadable(error),
            }
        }
    }
}

/// Whether an answer says nothing but that every mutation was done.
///
/// False means only that it must be looked at.
fn all_done(message: &Bytes, shares: &[Share]) -> bool {
    let mut rest = &message[..];
    let mut shares = shares.iter();
    while !rest.is_empty() {
        match field(&mut rest) {
            Some((1, Value::Bytes(region))) => {
                let Some(share) = shares.next() else { return false };
                if region_done(region, share.mutations) != Some(true) {
                    return false;
                }
            }
            // Whether a condition held, and how loaded regions are.
            Some((2 | 3, _)) => {}
            _ => return false,
        }
    }
    shares.next().is_none()
}

fn region_done(mut rest: &[u8], mutations: usize) -> Option<bool> {
    let mut seen = vec![0_u64; mutations.div_ceil(64)];
    let mut count = 0;
    while !rest.is_empty() {
        match field(&mut rest)? {
            (1, Value::Bytes(entry)) => {
                let index =
                    usize::try_from(entry_done(entry)?).ok().filter(|at| *at < mutations)?;
                let word = seen.get_mut(index / 64)?;
                let bit = 1 << (index % 64);
                if *word & bit != 0 {
                    return Some(false);
                }
                *word |= bit;
                count += 1;
            }
            (3, _) => {}
            _ => return Some(false),
        }
    }
    Some(count == mutations)
}

/// Index of an entry with a result and no exception.
fn entry_done(mut rest: &[u8]) -> Option<u64> {
    let (mut index, mut done) = (0, false);
    while !rest.is_empty() {
        match field(&mut rest)? {
            (1, Value::Varint(at)) => index = at,
            // Cells inside would be new values, and belong to nobody here.
            (2, Value::Bytes(_)) => done = true,
            // Load and metrics.
            (5 | 6, _) => {}
            _ => return None,
        }
    }
    done.then_some(index)
}

enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// The next field.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = decode_varint(rest).ok()?;
    let value = match key & 7 {
        0 => Value::Varint(decode_varint(rest).ok()?),
        2 => {
            let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            Value::Bytes(bytes)
        }
        _ => return None,
    };
    Some((key >> 3, value))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::BytesMut;
    use proptest::{collection::vec, prelude::*};
    use prost::Message;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{
        buffer::{batch::MutationBatch, buffer_pool::BufferPool, chunk::Chunk, encode::Encoder},
        cell::Cells,
        multi::{Action, RegionBatch, multi_request},
        region::info::Region,
        request::mutation::{Append, Delete, Mutation, Put},
        server_name::ServerName,
    };

    fn location(start: &str) -> RegionLocation {
        let region = Region::new("t".parse().unwrap(), start.to_owned().into(), Bytes::new(), 7);
        RegionLocation { region: Arc::new(region), server: ServerName::new("rs", 1, 1), seq_num: 1 }
    }

    fn share(location: RegionLocation, batch: MutationBatch) -> Share {
        let room = Arc::new(Semaphore::new(1)).try_acquire_many_owned(1).unwrap();
        let (chunk, _) = {
            let pool = Arc::new(BufferPool::new(Arc::default()));
            Chunk::new(batch, Instant::now(), room, Arc::default(), &pool)
        };
        let whole = Run::whole(Arc::new(chunk));
        let mutations = whole.len();
        // Cut somewhere: that makes no difference.
        let middle = mutations as u32 / 2;
        let runs = vec![whole.part(0, middle), whole.part(middle, whole.to)];
        Share { location, runs, mutations }
    }

    fn batch(mutations: &[Mutation]) -> MutationBatch {
        let mut batch = MutationBatch::default();
        for mutation in mutations {
            batch.push(mutation.clone()).unwrap();
        }
        batch
    }

    fn put(row: &str, cells: u64) -> Mutation {
        let add = |put: Put, at: u64| put.cell(b"f", b"q", at, b"value").unwrap();
        (0..cells).fold(Put::try_new(row.to_owned()).unwrap(), add).into()
    }

    #[test]
    fn the_request_is_that_of_a_batch() {
        let delete = Delete::try_new("d").unwrap();
        let column = Delete::try_new("e").unwrap().column(b"f", b"q", 9).unwrap();
        let append =
            Append::try_new("x").unwrap().value(b"f", b"q", b"!").unwrap().without_result();
        let first = vec![put("a", 1), put("b", 200), delete.into(), column.into()];
        let second: Vec<_> =
            (0..300).map(|at| put(&format!("m{at:03}"), 2)).chain([append.into()]).collect();
        let shares = [share(location("a"), batch(&first)), share(location("m"), batch(&second))];
        let mut encoder = Encoder::default();
        let (message, cells) = encoder.encode(&shares, 77);
        let seen = pb::MultiRequest::decode(&message.0[..]).unwrap();

        let actions = |mutations: Vec<Mutation>| -> Vec<Action> {
            mutations.into_iter().map(Action::from).collect()
        };
        let (first, second) = (actions(first), actions(second));
        let region = |at: usize, actions: &'static [Action]| RegionBatch {
            region: shares[at].location.region.name(),
            actions: actions.iter().collect(),
            atomic: false,
            condition: None,
        };
        let mut block = BytesMut::new();
        let expected =
            multi_request(&[region(0, first.leak()), region(1, second.leak())], 77, &mut block);
        // Nonces are chosen anew.
        let without_nonces = |mut request: pb::MultiRequest| {
            for action in request.region_action.iter_mut().flat_map(|region| &mut region.action) {
                if let Some(mutation) = &mut action.mutation {
                    mutation.nonce = None;
                }
            }
            request
        };
        assert!(seen.region_action[1].action[300].mutation.as_ref().unwrap().nonce() > 0);
        assert_eq!(without_nonces(seen), without_nonces(expected));
        assert_eq!(cells, block);

        // The same in memory that was used before.
        encoder.take_back(message, cells);
        let held = encoder.capacity();
        assert!(held >= block.len());
        let (message, cells) = encoder.encode(&shares[1..], 78);
        let seen = pb::MultiRequest::decode(&message.0[..]).unwrap();
        assert_eq!((seen.region_action.len(), seen.nonce_group), (1, Some(78)));
        assert_eq!(Cells::new(&cells).map(Result::unwrap).count(), 601);
        encoder.take_back(message, cells);
        assert_eq!(encoder.capacity(), held);
    }

    #[test]
    fn mutations_of_a_region_go_by_row_and_are_known_by_their_places() {
        // Rows that differ late, early, and one that comes twice.
        let rows =
            ["m-and-so-on-until-7", "n", "m-and-so-on-until-5", "m", "n", "m-and-so-on-until-6"];
        let mutations: Vec<_> = rows.iter().zip(1..).map(|(row, cells)| put(row, cells)).collect();
        let mut one = share(location("m"), batch(&mutations[..4]));
        let other = share(location("m"), batch(&mutations[4..]));
        one.mutations += other.mutations;
        one.runs.extend(other.runs);
        let (message, block) = Encoder::default().encode(&[one], 1);
        let request = pb::MultiRequest::decode(&message.0[..]).unwrap();
        let seen: Vec<_> = request.region_action[0]
            .action
            .iter()
            .map(|action| {
                let mutation = action.mutation.as_ref().unwrap();
                let row = String::from_utf8(mutation.row().to_vec()).unwrap();
                (row, action.index(), mutation.associated_cell_count())
            })
            .collect();
        // Batches bring rows that begin alike together before; places are those after that.
        let expected = [
            ("m", 0, 4),
            ("m-and-so-on-until-5", 2, 3),
            ("m-and-so-on-until-6", 4, 6),
            ("m-and-so-on-until-7", 1, 1),
            ("n", 3, 2),
            ("n", 5, 5),
        ]
        .map(|(row, place, cells)| (row.to_owned(), place, cells));
        assert_eq!(seen, expected);
        let mut cells = Cells::new(&block);
        for (row, _, count) in seen {
            for _ in 0..count {
                assert_eq!(cells.next().unwrap().unwrap().row, row.as_bytes());
            }
        }
        assert!(cells.next().is_none());
    }

    fn two_regions() -> [Share; 2] {
        [
            share(location("a"), batch(&[put("a", 1), put("b", 1)])),
            share(location("m"), batch(&[put("m", 1)])),
        ]
    }

    fn entry(index: u32) -> pb::ResultOrException {
        let result = Some(pb::Result::default());
        pb::ResultOrException { index: Some(index), result, ..pb::ResultOrException::default() }
    }

    fn answer(regions: &[Vec<pb::ResultOrException>]) -> pb::MultiResponse {
        let region = |entries: &Vec<_>| pb::RegionActionResult {
            result_or_exception: entries.clone(),
            processed: Some(true),
            exception: None,
        };
        pb::MultiResponse {
            region_action_result: regions.iter().map(region).collect(),
            processed: Some(true),
            ..pb::MultiResponse::default()
        }
    }

    #[track_caller]
    fn check(answer: &pb::MultiResponse, expected: bool) {
        assert_eq!(all_done(&answer.encode_to_vec().into(), &two_regions()), expected);
    }

    #[test]
    fn all_is_done_when_every_mutation_has_a_result() {
        check(&answer(&[vec![entry(0), entry(1)], vec![entry(0)]]), true);
        check(&answer(&[vec![entry(1), entry(0)], vec![entry(0)]]), true);
        let mut loaded = entry(0);
        loaded.load_stats = Some(pb::RegionLoadStats::default());
        check(&answer(&[vec![loaded, entry(1)], vec![entry(0)]]), true);
    }

    #[test]
    fn anything_else_is_looked_at() {
        check(&answer(&[vec![entry(0), entry(1)]]), false);
        check(&answer(&[vec![entry(0), entry(1)], vec![entry(0)], vec![]]), false);
        check(&answer(&[vec![entry(0)], vec![entry(0)]]), false);
        check(&answer(&[vec![entry(0), entry(0)], vec![entry(0)]]), false);
        check(&answer(&[vec![entry(0), entry(2)], vec![entry(0)]]), false);
        check(&answer(&[vec![entry(0), entry(1), entry(1)], vec![entry(0)]]), false);
        let exception = pb::NameBytesPair { name: "x".to_owned(), value: None };
        let mut failed = entry(1);
        failed.result = None;
        check(&answer(&[vec![entry(0), failed.clone()], vec![entry(0)]]), false);
        failed.exception = Some(exception.clone());
        check(&answer(&[vec![entry(0), failed.clone()], vec![entry(0)]]), false);
        failed.result = Some(pb::Result::default());
        check(&answer(&[vec![entry(0), failed], vec![entry(0)]]), false);
        let mut region = answer(&[vec![entry(0), entry(1)], vec![entry(0)]]);
        region.region_action_result[0].exception = Some(exception);
        check(&region, false);
    }

    proptest! {
        #[test]
        fn any_answer_is_looked_at_without_harm(bytes in vec(any::<u8>(), 0..60)) {
            let shares = two_regions();
            let bytes = Bytes::from(bytes);
            if all_done(&bytes, &shares) {
                let response = pb::MultiResponse::decode(bytes).unwrap();
                let outcomes = multi_outcomes(&[(2, false), (1, false)], &response, Bytes::new()).unwrap();
                for outcome in outcomes {
                    let RegionOutcome::Each(each) = outcome else { panic!("{outcome:?}") };
                    prop_assert!(each.iter().all(|one| matches!(one, crate::multi::ActionOutcome::Done(_))));
                }
            }
        }
    }
}
