//! Packed runs: the compressed form of a row's point cells in the embedded store.
//!
//! A run keeps the identity of its cells ([`RunShape`]): it expands to the exact bytes that were put.
//! Queries do not expand it; they decode timestamps and values directly into columns.
//!
//! ```text
//! run    = version and flags u8 | kinds u8 | count | first offset | span
//!          | [time steps] | [integer marks] | [width marks] | [exponent u8] | values | cell times
//! flags  : 10 version 1, 01 compacted column, 02 milliseconds, 04 steps differ
//! kinds  : 03 all integers 0, all floats 1, mixed 2; 0C floats are 8 bytes 0, 4 bytes 4, the
//!          shortest that is exact 8, marked individually C; 10 values are bits, not decimals
//! ```
//!
//! Offsets, span and steps are in the run's resolution; the sequences are integer streams
//! (`packed_run/int_stream.rs`), single numbers varints. Equal steps are not stored. `cell times`
//! are relative to the point's offset, that is, the delay of its write; a compacted column has one,
//! absolute. They come last, since queries do not read them.

mod bit_packing;
mod chunk;
mod decimal;
mod encoder;
mod error;
mod expand;
mod header;
mod int_stream;
mod number;
mod qualifier;
mod summary;
mod varint;

#[cfg(test)]
mod tests;

use bytes::Bytes;

use self::{
    header::Header,
    qualifier::{ROW_SECS, parse_qualifier},
};
use crate::columns::PointColumns;

pub use self::{
    chunk::{ChunkEncoder, ChunkPoint, PackedChunk},
    encoder::{PackablePoint, RunEncoder},
    error::PackedRunError,
    header::RunShape,
    summary::{DaySummaries, SummaryEncoder},
};

/// Points of one row in packed form; immutable.
#[derive(Clone, Debug)]
pub struct PackedRun {
    bytes: Bytes,
    header: Header,
}

/// Version bits of a run's first byte.
const VERSION: u8 = 0x10;

impl PackedRun {
    /// Maximum number of points of one run. Longer sequences need several.
    pub const MAX_POINTS: usize = 1 << 16;

    /// Opens bytes written by [`RunEncoder`] and validates the header.
    pub fn open(bytes: Bytes) -> Result<Self, PackedRunError> {
        let header = Header::parse(&bytes, VERSION, Self::MAX_POINTS, u64::from(ROW_SECS))?;
        Ok(Self { bytes, header })
    }

    /// The encoded bytes, the input of [`Self::open`].
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The cells that the run expands to.
    #[must_use]
    pub const fn shape(&self) -> RunShape {
        self.header.shape
    }

    /// Number of points, at least 1.
    #[must_use]
    pub const fn point_count(&self) -> usize {
        self.header.count
    }

    /// True if the qualifiers have millisecond form.
    #[must_use]
    pub const fn is_millis(&self) -> bool {
        self.header.millis
    }

    /// Offsets of the first and the last point from the base time, in milliseconds.
    #[must_use]
    pub const fn offset_range_ms(&self) -> (u32, u32) {
        let (first, last) = self.header.offset_range_ms();
        (first as u32, last as u32)
    }

    /// True if the run may contain the column `qualifier` of family `t`. No false negatives; false
    /// positives where only decoding can decide.
    #[must_use]
    pub fn may_contain_column(&self, qualifier: &[u8]) -> bool {
        let Header { millis, count, first, span, .. } = self.header;
        let compacted = self.header.shape == RunShape::Compacted;
        let width = if millis { 4 } else { 2 };
        let points = if compacted { count } else { 1 };
        if qualifier.len() != width * points {
            return false;
        }
        let (Some(head), Some(tail)) = (
            qualifier.get(..width).and_then(parse_qualifier),
            qualifier.get(qualifier.len() - width..).and_then(parse_qualifier),
        ) else {
            return false;
        };
        let (offset, last) = (u64::from(head.offset), u64::from(tail.offset));
        let inside = if compacted {
            offset == first && last == first + span
        } else {
            (first..=first + span).contains(&offset)
        };
        inside && head.millis == millis && tail.millis == millis
    }

    /// Appends the points, in time order, to `columns`. `base_secs` is the base time of the row.
    /// After an error `columns` is unchanged.
    pub fn decode_into(
        &self,
        base_secs: u32,
        columns: &mut PointColumns,
    ) -> Result<(), PackedRunError> {
        let origin_ms = i64::from(base_secs) * 1_000;
        self.header.decode_points(&self.bytes, origin_ms, columns, None).map(|_| ())
    }
}
