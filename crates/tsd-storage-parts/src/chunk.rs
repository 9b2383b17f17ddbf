//! Chunks: the data of one series in one span of a part.
//!
//! ```text
//! points     = packed chunk (tsd-model)
//! cells      = (base time | family u8 | qualifier length | value length | timestamp | qualifier | value) *
//! tombstones = (base time | FF, or family u8 | qualifier length | qualifier) *
//! summaries  = packed summaries (tsd-model), in blocks of their own
//! ```
//!
//! Base times are relative to the span. A cell that cannot be packed into points is stored as a cell.

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind, Family};

use crate::{
    error::Malformed,
    wire::{Cursor, put_signed, put_varint},
};

/// Kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChunkKind {
    /// Packed points.
    Points = 0,
    /// Cells as they were put.
    Cells = 1,
    /// Deleted rows and columns, which hide cells of older parts.
    Tombstones = 2,
    /// Summaries of all hours of a series that has only points. They are in blocks of summaries.
    Summaries = 3,
}

/// An encoded chunk.
#[derive(Clone, Debug)]
pub(crate) struct EncodedChunk {
    pub(crate) kind: ChunkKind,
    pub(crate) first_base: u32,
    pub(crate) last_base: u32,
    pub(crate) points: u64,
    pub(crate) payload: Bytes,
}

impl ChunkKind {
    pub(crate) const fn from_stored(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Points),
            1 => Some(Self::Cells),
            2 => Some(Self::Tombstones),
            3 => Some(Self::Summaries),
            _ => None,
        }
    }
}

/// A chunk of a loaded block.
#[derive(Clone, Debug)]
pub(crate) struct ChunkView {
    pub(crate) kind: ChunkKind,
    /// Base times of the first and the last row, epoch seconds.
    pub(crate) first_base: u32,
    pub(crate) last_base: u32,
    pub(crate) payload: Bytes,
    /// Offset of the block in the file.
    pub(crate) block: u64,
}

/// The deleted row or column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tombstone {
    Row,
    Column(Family, Bytes),
}

const WHOLE_ROW: u8 = 0xFF;

/// True if readers may interpret the column as points, so that its instants can equal those of packed points.
pub(crate) fn has_points(cell: &Cell) -> bool {
    cell.family == Family::T
        && matches!(
            ColumnKind::of(&cell.qualifier),
            ColumnKind::Point | ColumnKind::Compacted | ColumnKind::Append | ColumnKind::BadAppend
        )
}

pub(crate) fn put_cell(out: &mut Vec<u8>, relative_base: u32, cell: &Cell) {
    put_varint(out, u64::from(relative_base));
    out.push(cell.family as u8);
    put_varint(out, cell.qualifier.len() as u64);
    put_varint(out, cell.value.len() as u64);
    put_signed(out, cell.timestamp_ms);
    out.extend_from_slice(&cell.qualifier);
    out.extend_from_slice(&cell.value);
}

pub(crate) fn put_tombstone(out: &mut Vec<u8>, relative_base: u32, tombstone: &Tombstone) {
    put_varint(out, u64::from(relative_base));
    match tombstone {
        Tombstone::Row => out.push(WHOLE_ROW),
        Tombstone::Column(family, qualifier) => {
            out.push(*family as u8);
            put_varint(out, qualifier.len() as u64);
            out.extend_from_slice(qualifier);
        }
    }
}

const fn family_of(byte: u8) -> Result<Family, Malformed> {
    match byte {
        0 => Ok(Family::Id),
        1 => Ok(Family::Name),
        2 => Ok(Family::T),
        _ => Err(Malformed("a family")),
    }
}

impl ChunkView {
    /// Calls `each` with the base time and the cell, for every cell. `span` is the start of the span.
    pub(crate) fn cells(
        &self,
        span: u32,
        mut each: impl FnMut(u32, Cell),
    ) -> Result<(), Malformed> {
        let mut cursor = Cursor::new(&self.payload);
        while cursor.remaining() > 0 {
            let base = self.base(span, cursor.varint_u32()?)?;
            let family = family_of(cursor.byte()?)?;
            let [qualifier, value] = [cursor.varint()?, cursor.varint()?];
            let timestamp_ms = cursor.signed()?;
            let qualifier = self.payload.slice_ref(cursor.take(length(qualifier)?)?);
            let value = self.payload.slice_ref(cursor.take(length(value)?)?);
            each(base, Cell { family, qualifier, value, timestamp_ms });
        }
        Ok(())
    }

    /// Calls `each` with the base time and the tombstone, for every tombstone.
    pub(crate) fn tombstones(
        &self,
        span: u32,
        mut each: impl FnMut(u32, Tombstone),
    ) -> Result<(), Malformed> {
        let mut cursor = Cursor::new(&self.payload);
        while cursor.remaining() > 0 {
            let base = self.base(span, cursor.varint_u32()?)?;
            let tombstone = match cursor.byte()? {
                WHOLE_ROW => Tombstone::Row,
                family => {
                    let qualifier = length(cursor.varint()?)?;
                    let qualifier = self.payload.slice_ref(cursor.take(qualifier)?);
                    Tombstone::Column(family_of(family)?, qualifier)
                }
            };
            each(base, tombstone);
        }
        Ok(())
    }

    fn base(&self, span: u32, relative: u32) -> Result<u32, Malformed> {
        span.checked_add(relative)
            .filter(|base| (self.first_base..=self.last_base).contains(base))
            .ok_or(Malformed("a base time outside of its chunk"))
    }
}

fn length(v: u64) -> Result<usize, Malformed> {
    usize::try_from(v).map_err(|_| Malformed("a length"))
}
