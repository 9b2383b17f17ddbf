//! One Multi with parts of many batches.
//!
//! The request is written straight from the batches: a few bytes a mutation in front, their cells in
//! one block behind. Of the answer to puts and deletes only one thing is of interest as a rule, that
//! all were done, and that is seen without decoding it; anything else is decoded in full.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use prost::{
    DecodeError, Message,
    encoding::{
        DecodeContext, WireType, decode_varint, encode_varint, encoded_len_varint, skip_field,
    },
};
use tokio::time::Instant;

use super::{
    batch::{Entry, What},
    chunk::Run,
};
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
pub(super) async fn call(client: &Client, shares: &[Share], deadline: Instant) -> CallOutcome {
    let Some(first) = shares.first() else { return CallOutcome::Done };
    let body = Body::new(shares, client.nonce_group());
    let mut block = BytesMut::with_capacity(
        shares.iter().flat_map(|share| &share.runs).map(|run| run.cells().len()).sum(),
    );
    for run in shares.iter().flat_map(|share| &share.runs) {
        block.extend_from_slice(run.cells());
    }
    let metrics = client.metrics();
    metrics.batches.one();
    metrics.batch_actions.add(shares.iter().map(|share| share.mutations as u64).sum());
    let timeout = deadline.saturating_duration_since(Instant::now());
    let call = RegionCall { method: "Multi", lane: Lane::Data, priority: None, timeout };
    let location = &first.location;
    let answer = match client.call_location(location, call, &body, block.freeze(), deadline).await {
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

/// Tag of a field, in one byte.
const fn tag(field: u8, wire_type: WireType) -> u8 {
    field << 3 | wire_type as u8
}

/// The message of a Multi.
struct Body<'a> {
    shares: &'a [Share],
    nonce_group: u64,
    /// Length of each region's part.
    regions: Vec<usize>,
    length: usize,
}

impl<'a> Body<'a> {
    fn new(shares: &'a [Share], nonce_group: u64) -> Self {
        let regions: Vec<_> = shares.iter().map(region_len).collect();
        let parts: usize = regions.iter().map(|length| 1 + delimited(*length)).sum();
        let length = parts + 1 + encoded_len_varint(nonce_group);
        Self { shares, nonce_group, regions, length }
    }
}

const fn delimited(length: usize) -> usize {
    encoded_len_varint(length as u64) + length
}

fn specifier_len(share: &Share) -> usize {
    // Kind in two bytes, name behind a tag.
    2 + 1 + delimited(share.location.region.name().len())
}

fn region_len(share: &Share) -> usize {
    let mut length = 1 + delimited(specifier_len(share));
    let mut index = 0;
    for run in &share.runs {
        for at in run.from..run.to {
            let Some(entry) = run.chunk.batch.entry(at as usize) else { continue };
            length += 1 + delimited(action_len(index, mutation_len(run, at, entry)));
            index += 1;
        }
    }
    length
}

fn action_len(index: u64, mutation: usize) -> usize {
    1 + encoded_len_varint(index) + 1 + delimited(mutation)
}

fn mutation_len(run: &Run, at: u32, entry: &Entry) -> usize {
    match entry.what {
        What::Put | What::Delete => {
            let row = run.chunk.batch.row(at as usize).len();
            1 + delimited(row) + 2 + 1 + encoded_len_varint(entry.count.into())
        }
        What::Message(at) => run.chunk.batch.message(at).map_or(0, Message::encoded_len),
    }
}

impl Message for Body<'_> {
    fn encode_raw(&self, out: &mut impl BufMut) {
        const BYTES: WireType = WireType::LengthDelimited;
        for (share, length) in self.shares.iter().zip(&self.regions) {
            out.put_u8(tag(1, BYTES));
            encode_varint(*length as u64, out);
            out.put_u8(tag(1, BYTES));
            encode_varint(specifier_len(share) as u64, out);
            out.put_slice(&[tag(1, WireType::Varint), 1, tag(2, BYTES)]);
            let name = share.location.region.name();
            encode_varint(name.len() as u64, out);
            out.put_slice(name);
            let mut index = 0;
            for run in &share.runs {
                for at in run.from..run.to {
                    let Some(entry) = run.chunk.batch.entry(at as usize) else { continue };
                    let mutation = mutation_len(run, at, entry);
                    out.put_u8(tag(3, BYTES));
                    encode_varint(action_len(index, mutation) as u64, out);
                    out.put_u8(tag(1, WireType::Varint));
                    encode_varint(index, out);
                    out.put_u8(tag(2, BYTES));
                    encode_varint(mutation as u64, out);
                    encode_mutation(run, at, entry, out);
                    index += 1;
                }
            }
        }
        out.put_u8(tag(2, WireType::Varint));
        encode_varint(self.nonce_group, out);
    }

    fn encoded_len(&self) -> usize {
        self.length
    }

    // It is only ever sent.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        input: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, input, context)
    }

    fn clear(&mut self) {
        *self = Body::new(&[], 0);
    }
}

fn encode_mutation(run: &Run, at: u32, entry: &Entry, out: &mut impl BufMut) {
    if let What::Message(at) = entry.what {
        if let Some(message) = run.chunk.batch.message(at) {
            message.encode_raw(out);
        }
        return;
    }
    let row = run.chunk.batch.row(at as usize);
    out.put_u8(tag(1, WireType::LengthDelimited));
    encode_varint(row.len() as u64, out);
    out.put_slice(row);
    out.put_slice(&[
        tag(2, WireType::Varint),
        Entry::kind(entry.what) as u8,
        tag(8, WireType::Varint),
    ]);
    encode_varint(entry.count.into(), out);
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
