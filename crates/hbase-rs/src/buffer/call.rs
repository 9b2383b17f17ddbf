//! One Multi with parts of many batches.
//!
//! Of the answer to puts and deletes only one thing is of interest as a rule, that all were done, and
//! that is seen without decoding it; anything else is decoded in full.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::encoding::decode_varint;
use tokio::time::Instant;

use super::{chunk::Run, spares::Spares};
use crate::{
    client::{Client, RegionCall},
    connection::CallError,
    multi::{MultiError, RegionOutcome, multi_outcomes},
    pool::Lane,
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
    spares: &Spares,
) -> CallOutcome {
    let Some(first) = shares.first() else { return CallOutcome::Done };
    let mut encoder = spares.encoder();
    let (message, block) = encoder.encode(shares, client.nonce_group());
    let metrics = client.metrics();
    metrics.batches.one();
    metrics.batch_actions.add(shares.iter().map(|share| share.mutations as u64).sum());
    let timeout = deadline.saturating_duration_since(Instant::now());
    let call = RegionCall { method: "Multi", lane: Lane::Data, priority: None, timeout };
    let location = &first.location;
    let answer = client.call_location(location, call, &message, block.clone(), deadline).await;
    encoder.take_back(message, block);
    spares.keep_encoder(encoder);
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
mod tests;
