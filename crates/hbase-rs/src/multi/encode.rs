//! Encoding of a Multi request, without messages in between.
//!
//! Cells are in the block in the order of the actions. A server skips the cells of an action that
//! it does not execute by their count alone, so counts are exact.

use bytes::{BufMut, Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use pb::mutation_proto::MutationType;
use prost::{
    Message,
    encoding::{WireType, encode_varint, encoded_len_varint},
};

use crate::{frame::EncodedMessage, region::info::RegionLocation};

/// Typical bytes of an action in addition to its row or message.
const ACTION_OVERHEAD: usize = 24;

/// Fields of an action.
const MUTATION: u8 = 2;
const GET: u8 = 3;

/// Actions of one region in one call.
pub(crate) trait RegionShare {
    /// Where the region is.
    fn location(&self) -> &RegionLocation;

    /// Number of actions.
    fn len(&self) -> usize;

    /// True if all must be executed or none.
    fn is_atomic(&self) -> bool {
        false
    }

    /// Bytes of their cells.
    fn cell_bytes(&self) -> usize;

    /// Encodes the actions. Their indices are also the indices of the results.
    fn encode(&self, out: &mut RegionEncoder<'_>);
}

/// Bounds of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimits {
    pub(crate) actions: usize,
    /// Bytes of cells.
    pub(crate) bytes: usize,
}

impl CallLimits {
    pub(crate) fn new(actions: usize, bytes: usize) -> Self {
        Self { actions: actions.max(1), bytes: bytes.max(1) }
    }

    /// Halves both bounds, after a server has rejected a call as too large.
    pub(crate) fn halve(&mut self) {
        *self = Self::new(self.actions / 2, self.bytes / 2);
    }

    /// Bounds the actions to half of those that a quota has throttled in one call. A quota never admits
    /// more actions at once than it admits in its unit of time.
    pub(crate) fn throttled(&mut self, actions: usize) {
        self.actions = self.actions.min(actions / 2).max(1);
    }

    /// True if nothing more fits.
    pub(crate) const fn is_exhausted(self) -> bool {
        self.actions == 0 || self.bytes == 0
    }

    /// True if an action with `bytes` bytes of cells fits.
    pub(crate) const fn fits(self, bytes: usize) -> bool {
        self.actions > 0 && bytes <= self.bytes
    }

    /// Subtracts actions that were added to the call.
    pub(crate) const fn subtract(&mut self, actions: usize, bytes: usize) {
        self.actions = self.actions.saturating_sub(actions);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Encodes calls, and keeps its memory for the next one.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    message: BytesMut,
    block: BytesMut,
    actions: Vec<u8>,
    order: Vec<ActionPosition>,
}

/// An action and its sort key, for shares that sort their actions by row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionPosition {
    /// First bytes of the row, as a number of the same order.
    pub(crate) prefix: u128,
    /// List that has the action.
    pub(crate) list: u32,
    /// Index in the list.
    pub(crate) at: u32,
    /// Index in the share.
    pub(crate) index: u32,
}

/// Encodes the actions of one region.
#[derive(Debug)]
pub(crate) struct RegionEncoder<'a> {
    actions: &'a mut Vec<u8>,
    block: &'a mut BytesMut,
    /// Memory for sorting.
    pub(crate) order: &'a mut Vec<ActionPosition>,
}

impl Encoder {
    /// Returns the message, and the cells that follow it.
    pub(crate) fn encode<S: RegionShare>(
        &mut self,
        shares: &[S],
        nonce_group: u64,
    ) -> (EncodedMessage, Bytes) {
        let Self { message, block, actions, order } = self;
        message.clear();
        block.clear();
        block.reserve(shares.iter().map(S::cell_bytes).sum());
        for share in shares {
            actions.clear();
            share.encode(&mut RegionEncoder { actions, block, order });
            let name = share.location().region.name();
            // The type takes two bytes, the name a tag and its length.
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

    /// Recovers the memory of a completed call, unless something still refers to it.
    pub(crate) fn recycle(&mut self, message: EncodedMessage, block: Bytes) {
        self.message = message.0.try_into_mut().unwrap_or_default();
        self.block = block.try_into_mut().unwrap_or_default();
    }

    /// Returns the bytes of memory that it keeps.
    pub(crate) fn capacity(&self) -> usize {
        self.message.capacity()
            + self.block.capacity()
            + self.actions.capacity()
            + self.order.capacity() * size_of::<ActionPosition>()
    }
}

impl RegionEncoder<'_> {
    /// Adds encoded cells, in the order of the actions.
    pub(crate) fn cells(&mut self, cells: &[u8]) {
        self.block.extend_from_slice(cells);
    }

    /// Makes the actions atomic. Call it before the first action.
    pub(crate) fn atomic(&mut self) {
        self.actions.extend_from_slice(&[tag(2, WireType::Varint), 1]);
    }

    /// Adds the condition of atomic actions. Call it after the last action.
    pub(crate) fn condition(&mut self, condition: &pb::Condition) {
        self.actions.push(tag(4, WireType::LengthDelimited));
        encode_varint(condition.encoded_len() as u64, self.actions);
        condition.encode_raw(self.actions);
    }

    /// Adds a read.
    pub(crate) fn get(&mut self, index: u32, get: &pb::Get) {
        self.action(index, GET, get.encoded_len());
        get.encode_raw(self.actions);
    }

    /// Adds a mutation.
    pub(crate) fn mutation(&mut self, index: u32, mutation: &pb::MutationProto) {
        self.action(index, MUTATION, mutation.encoded_len());
        mutation.encode_raw(self.actions);
    }

    /// Adds a mutation that consists of cells only, without building a message.
    pub(crate) fn plain_mutation(
        &mut self,
        index: u32,
        row: &[u8],
        kind: MutationType,
        cells: u32,
    ) {
        let length = 1 + delimited(row.len()) + 2 + 1 + encoded_len_varint(cells.into());
        self.action(index, MUTATION, length);
        let out = &mut *self.actions;
        out.push(tag(1, WireType::LengthDelimited));
        encode_varint(row.len() as u64, out);
        out.extend_from_slice(row);
        out.extend_from_slice(&[tag(2, WireType::Varint), kind as u8, tag(8, WireType::Varint)]);
        encode_varint(cells.into(), out);
    }

    /// Starts an action whose `field` is a message of `length` bytes.
    fn action(&mut self, index: u32, field: u8, length: usize) {
        let (index, out) = (u64::from(index), &mut *self.actions);
        out.reserve(length + ACTION_OVERHEAD);
        out.push(tag(3, WireType::LengthDelimited));
        encode_varint((1 + encoded_len_varint(index) + 1 + delimited(length)) as u64, out);
        out.push(tag(1, WireType::Varint));
        encode_varint(index, out);
        out.push(tag(field, WireType::LengthDelimited));
        encode_varint(length as u64, out);
    }
}

/// Tag of a field below 16, in one byte.
const fn tag(field: u8, wire_type: WireType) -> u8 {
    field << 3 | wire_type as u8
}

/// Returns the bytes of a message of this length with its length prefix.
const fn delimited(length: usize) -> usize {
    encoded_len_varint(length as u64) + length
}
