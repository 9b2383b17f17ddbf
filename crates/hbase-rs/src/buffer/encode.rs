//! The request of one Multi, written straight from the batches that its mutations came in.
//!
//! Mutations of a region go in the order of their rows, whatever order they came in: a region server
//! keeps what it takes in a sorted map of its own, and rows that follow each other there are found by
//! way of the same few entries. With rows of many callers mixed that is most of what a put costs it. The
//! index of a mutation in its region stays the place that it had among the runs, so answers need no
//! sorting back.

use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message,
    encoding::{WireType, encode_varint, encoded_len_varint},
};

use super::{
    batch::{Entry, MutationBatch, What, prefix},
    call::Share,
};
use crate::frame::EncodedMessage;

/// Bytes of an action beside its row and what is in a message, as a rule at most.
const ACTION_OVERHEAD: usize = 24;

/// Encodes calls, and keeps the memory that this takes.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    message: BytesMut,
    block: BytesMut,
    actions: Vec<u8>,
    places: Vec<Place>,
}

/// A mutation and where its row belongs.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The row's first bytes, as a number of the same order.
    prefix: u128,
    /// Run of its share.
    run: u32,
    /// Place in the batch of its run.
    at: u32,
    /// Place among the mutations of the region.
    index: u32,
}

impl Encoder {
    /// What goes to each region: the message, and the cells behind it.
    pub(super) fn encode(&mut self, shares: &[Share], nonce_group: u64) -> (EncodedMessage, Bytes) {
        let Self { message, block, actions, places } = self;
        message.clear();
        block.clear();
        let runs = shares.iter().flat_map(|share| &share.runs);
        block.reserve(runs.map(|run| run.cells().len()).sum());
        for share in shares {
            sort(share, places);
            cells(share, places, block);
            actions.clear();
            for place in &*places {
                let batch = share.batch(place);
                let entry = batch.and_then(|batch| Some((batch, batch.entry(place.at as usize)?)));
                if let Some((batch, entry)) = entry {
                    action(batch, place, entry, actions);
                }
            }
            let name = share.location.region.name();
            // Kind in two bytes, name behind a tag.
            let specifier = 2 + 1 + delimited(name.len());
            message.reserve(actions.len() + specifier + 16);
            message.put_u8(tag(1, WireType::LengthDelimited));
            encode_varint((1 + delimited(specifier) + actions.len()) as u64, message);
            message.put_u8(tag(1, WireType::LengthDelimited));
            encode_varint(specifier as u64, message);
            message.put_slice(&[tag(1, WireType::Varint), 1, tag(2, WireType::LengthDelimited)]);
            encode_varint(name.len() as u64, message);
            message.put_slice(name);
            message.put_slice(actions);
        }
        message.put_u8(tag(2, WireType::Varint));
        encode_varint(nonce_group, message);
        (EncodedMessage(std::mem::take(message).freeze()), std::mem::take(block).freeze())
    }

    /// Takes the memory of a call back that is over, if nobody else has it.
    pub(super) fn take_back(&mut self, message: EncodedMessage, block: Bytes) {
        self.message = message.0.try_into_mut().unwrap_or_default();
        self.block = block.try_into_mut().unwrap_or_default();
    }

    /// Bytes that it holds.
    pub(super) fn capacity(&self) -> usize {
        self.message.capacity()
            + self.block.capacity()
            + self.actions.capacity()
            + self.places.capacity() * size_of::<Place>()
    }
}

impl Share {
    /// Places are of runs that there are.
    fn batch(&self, place: &Place) -> Option<&MutationBatch> {
        self.runs.get(place.run as usize).map(|run| &run.chunk.batch)
    }

    fn row(&self, place: &Place) -> &[u8] {
        self.batch(place).map_or(&[], |batch| batch.row(place.at as usize))
    }
}

/// The mutations of a share by row; those of one row as they came.
fn sort(share: &Share, places: &mut Vec<Place>) {
    let runs = share.runs.iter().zip(0..);
    let mutations =
        runs.flat_map(|(run, number)| (run.from..run.to).map(move |at| (run, number, at)));
    places.clear();
    places.extend(mutations.zip(0..).map(|((run, number, at), index)| {
        let prefix = u128::from_be_bytes(prefix(run.chunk.batch.row(at as usize)));
        Place { prefix, run: number, at, index }
    }));
    // Runs are sorted as a rule, and this sort makes use of it.
    places.sort_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| share.row(a).cmp(share.row(b))));
}

/// Their cells; those that lie side by side are copied in one go.
fn cells(share: &Share, places: &[Place], block: &mut BytesMut) {
    let follows = |a: &Place, b: &Place| a.run == b.run && a.at + 1 == b.at;
    for side_by_side in places.chunk_by(follows) {
        if let [first, ..] = side_by_side
            && let Some(batch) = share.batch(first)
        {
            let from = first.at as usize;
            block.extend_from_slice(batch.cells(from..from + side_by_side.len()));
        }
    }
}

fn action(batch: &MutationBatch, place: &Place, entry: &Entry, out: &mut Vec<u8>) {
    let (index, row) = (u64::from(place.index), batch.row(place.at as usize));
    let length = match entry.what {
        What::Put | What::Delete => {
            1 + delimited(row.len()) + 2 + 1 + encoded_len_varint(entry.count.into())
        }
        What::Message(at) => batch.message(at).map_or(0, Message::encoded_len),
    };
    out.reserve(length + ACTION_OVERHEAD);
    out.push(tag(3, WireType::LengthDelimited));
    encode_varint((1 + encoded_len_varint(index) + 1 + delimited(length)) as u64, out);
    out.push(tag(1, WireType::Varint));
    encode_varint(index, out);
    out.push(tag(2, WireType::LengthDelimited));
    encode_varint(length as u64, out);
    if let What::Message(at) = entry.what {
        if let Some(message) = batch.message(at) {
            message.encode_raw(out);
        }
        return;
    }
    out.push(tag(1, WireType::LengthDelimited));
    encode_varint(row.len() as u64, out);
    out.extend_from_slice(row);
    let kind = Entry::kind(entry.what) as u8;
    out.extend_from_slice(&[tag(2, WireType::Varint), kind, tag(8, WireType::Varint)]);
    encode_varint(entry.count.into(), out);
}

/// Tag of a field, in one byte.
const fn tag(field: u8, wire_type: WireType) -> u8 {
    field << 3 | wire_type as u8
}

const fn delimited(length: usize) -> usize {
    encoded_len_varint(length as u64) + length
}
