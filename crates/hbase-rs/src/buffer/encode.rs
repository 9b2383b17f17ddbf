//! The request of one Multi, written straight from the batches that its mutations came in.
//!
//! Mutations of a region go in the order of their rows, whatever order they came in: a region server
//! keeps what it takes in a sorted map of its own, and rows that follow each other there are found by
//! way of the same few entries. With rows of many callers mixed that is most of what a put costs it. The
//! index of a mutation in its region stays the place that it had among the runs, so answers need no
//! sorting back.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, encode_varint, encoded_len_varint, skip_field},
};

use super::{
    batch::{Entry, What, prefix},
    call::Share,
    chunk::Run,
};

/// Bytes of an action beside its row and what is in a message, as a rule at most.
const ACTION_OVERHEAD: usize = 24;

/// The message, and the cells behind it.
pub(super) struct Encoded {
    pub(super) body: Body,
    pub(super) block: Bytes,
}

/// A message that is encoded already.
#[derive(Default)]
pub(super) struct Body(Vec<u8>);

/// A mutation and where its row belongs.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The row's first bytes, as a number of the same order.
    prefix: u128,
    run: &'a Run,
    at: u32,
    /// Place among the mutations of the region.
    index: u32,
}

/// Encodes what goes to each region.
pub(super) fn encode(shares: &[Share], nonce_group: u64) -> Encoded {
    let runs = || shares.iter().flat_map(|share| &share.runs);
    let mut block = BytesMut::with_capacity(runs().map(|run| run.cells().len()).sum());
    let mut body = Vec::new();
    let mut actions = Vec::new();
    let mut places = Vec::new();
    for share in shares {
        sort(share, &mut places);
        cells(&places, &mut block);
        actions.clear();
        for place in &places {
            let Some(entry) = place.run.chunk.batch.entry(place.at as usize) else { continue };
            action(place, entry, &mut actions);
        }
        let name = share.location.region.name();
        // Kind in two bytes, name behind a tag.
        let specifier = 2 + 1 + delimited(name.len());
        body.reserve(actions.len() + specifier + 16);
        body.push(tag(1, WireType::LengthDelimited));
        encode_varint((1 + delimited(specifier) + actions.len()) as u64, &mut body);
        body.push(tag(1, WireType::LengthDelimited));
        encode_varint(specifier as u64, &mut body);
        body.put_slice(&[tag(1, WireType::Varint), 1, tag(2, WireType::LengthDelimited)]);
        encode_varint(name.len() as u64, &mut body);
        body.put_slice(name);
        body.put_slice(&actions);
    }
    body.push(tag(2, WireType::Varint));
    encode_varint(nonce_group, &mut body);
    Encoded { body: Body(body), block: block.freeze() }
}

/// The mutations of a share by row; those of one row as they came.
fn sort<'a>(share: &'a Share, places: &mut Vec<Place<'a>>) {
    let mutations = share.runs.iter().flat_map(|run| (run.from..run.to).map(move |at| (run, at)));
    places.clear();
    places.extend(mutations.zip(0..).map(|((run, at), index)| {
        let prefix = u128::from_be_bytes(prefix(run.chunk.batch.row(at as usize)));
        Place { prefix, run, at, index }
    }));
    // Runs are sorted as a rule, and this sort makes use of it.
    places.sort_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| a.row().cmp(b.row())));
}

/// Their cells; those that lie side by side are copied in one go.
fn cells(places: &[Place<'_>], block: &mut BytesMut) {
    let follows = |a: &Place<'_>, b: &Place<'_>| std::ptr::eq(a.run, b.run) && a.at + 1 == b.at;
    for side_by_side in places.chunk_by(follows) {
        if let [first, ..] = side_by_side {
            let from = first.at as usize;
            block.extend_from_slice(first.run.chunk.batch.cells(from..from + side_by_side.len()));
        }
    }
}

fn action(place: &Place<'_>, entry: &Entry, out: &mut Vec<u8>) {
    let (index, row) = (u64::from(place.index), place.row());
    let length = match entry.what {
        What::Put | What::Delete => {
            1 + delimited(row.len()) + 2 + 1 + encoded_len_varint(entry.count.into())
        }
        What::Message(at) => place.run.chunk.batch.message(at).map_or(0, Message::encoded_len),
    };
    out.reserve(length + ACTION_OVERHEAD);
    out.push(tag(3, WireType::LengthDelimited));
    encode_varint((1 + encoded_len_varint(index) + 1 + delimited(length)) as u64, out);
    out.push(tag(1, WireType::Varint));
    encode_varint(index, out);
    out.push(tag(2, WireType::LengthDelimited));
    encode_varint(length as u64, out);
    if let What::Message(at) = entry.what {
        if let Some(message) = place.run.chunk.batch.message(at) {
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

impl<'a> Place<'a> {
    fn row(&self) -> &'a [u8] {
        self.run.chunk.batch.row(self.at as usize)
    }
}

impl Message for Body {
    fn encode_raw(&self, out: &mut impl BufMut) {
        out.put_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
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
        self.0.clear();
    }
}
