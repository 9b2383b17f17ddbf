//! One cell, and the form in which it travels.
//!
//! Volume goes as `KeyValueCodec` writes it, one cell after the other without count or trailer:
//!
//! ```text
//! size u32 | klen u32 | vlen u32 | rowlen u16, row | famlen u8, family | qualifier | timestamp u64 | kind u8 | value
//! ```
//!
//! A decoded cell borrows from the buffer it lies in: no allocation and no copy a cell. Every
//! length is checked against its neighbours before anything is sliced.

use bytes::{BufMut, BytesMut};

use crate::wire::{take, take_length, take_slice};

/// Longest row key HBase takes.
pub const MAX_ROW_LENGTH: usize = 32_767;

/// Longest family name HBase takes.
pub const MAX_FAMILY_LENGTH: usize = 127;

/// Timestamp of a mutation that lets the server fill in its clock.
pub const SERVER_TIME: u64 = i64::MAX as u64;

/// Bytes of a cell beyond its row, family, qualifier and value.
const OVERHEAD: usize = 24;

/// Bytes of a key beyond row, family and qualifier: row length, family length, timestamp, kind.
const KEY_OVERHEAD: usize = 12;

/// Cells of up to so many bytes are put together before they go into a block.
const SMALL_CELL: usize = 128;

/// What a cell says about its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CellKind {
    /// The column has this value.
    Put = 4,
    /// One version of the column is gone.
    Delete = 8,
    /// All columns of the family are gone at exactly this timestamp.
    DeleteFamilyVersion = 10,
    /// All versions of the column up to the timestamp are gone.
    DeleteColumn = 12,
    /// All columns of the family up to the timestamp are gone.
    DeleteFamily = 14,
}

impl CellKind {
    /// Kind of a type byte; the two search markers, which are never stored, are none.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            4 => Self::Put,
            8 => Self::Delete,
            10 => Self::DeleteFamilyVersion,
            12 => Self::DeleteColumn,
            14 => Self::DeleteFamily,
            _ => return None,
        })
    }
}

/// One cell, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell<'a> {
    /// Row key.
    pub row: &'a [u8],
    /// Column family.
    pub family: &'a [u8],
    /// Column in the family; may be empty.
    pub qualifier: &'a [u8],
    /// Version; by convention milliseconds since the epoch.
    pub timestamp: u64,
    /// What the cell says.
    pub kind: CellKind,
    /// Value; empty for deletes.
    pub value: &'a [u8],
}

impl<'a> Cell<'a> {
    /// Bytes that [`Self::encode`] adds.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        OVERHEAD + self.row.len() + self.family.len() + self.qualifier.len() + self.value.len()
    }

    /// Appends the cell to a block.
    ///
    /// # Errors
    ///
    /// When a part is longer than its length field can say or HBase takes; `out` is untouched then.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), CellError> {
        self.check()?;
        let length = self.encoded_len();
        // A small cell is put together where the processor has it, and leaves as one piece.
        let mut small = [0; SMALL_CELL];
        if let Some(cell) = small.get_mut(..length) {
            self.write(&mut &mut *cell);
            out.extend_from_slice(cell);
        } else {
            out.reserve(length);
            self.write(out);
        }
        Ok(())
    }

    /// Writes the cell where there is room for it.
    fn write(&self, out: &mut impl BufMut) {
        let key = KEY_OVERHEAD + self.row.len() + self.family.len() + self.qualifier.len();
        out.put_u32((8 + key + self.value.len()) as u32);
        out.put_u32(key as u32);
        out.put_u32(self.value.len() as u32);
        out.put_u16(self.row.len() as u16);
        out.put_slice(self.row);
        out.put_u8(self.family.len() as u8);
        out.put_slice(self.family);
        out.put_slice(self.qualifier);
        out.put_u64(self.timestamp);
        out.put_u8(self.kind as u8);
        out.put_slice(self.value);
    }

    /// Takes one cell off the front of `block`.
    ///
    /// # Errors
    ///
    /// When the bytes are no cell; `block` is then where it was.
    pub fn decode(block: &mut &'a [u8]) -> Result<Self, CellError> {
        let mut rest = *block;
        let size = take_length(&mut rest).ok_or(CellError::Truncated)?;
        let mut body = take_slice(&mut rest, size).ok_or(CellError::Truncated)?;
        let cell = Self::decode_body(&mut body).ok_or(CellError::Lengths)??;
        *block = rest;
        Ok(cell)
    }

    /// `None` where a length leaves the cell.
    fn decode_body(body: &mut &'a [u8]) -> Option<Result<Self, CellError>> {
        let key_length = take_length(body)?;
        let value_length = take_length(body)?;
        let mut key = take_slice(body, key_length)?;
        let value = *body;
        let row_length = usize::from(u16::from_be_bytes(take(&mut key)?));
        let row = take_slice(&mut key, row_length)?;
        let [family_length] = take(&mut key)?;
        let family = take_slice(&mut key, family_length.into())?;
        let (qualifier, tail) = key.split_last_chunk::<9>()?;
        let (timestamp, [kind]) = tail.split_first_chunk::<8>()? else { return None };
        let timestamp = u64::from_be_bytes(*timestamp);
        if value.len() != value_length {
            return None;
        }
        let Some(kind) = CellKind::from_byte(*kind) else {
            return Some(Err(CellError::Kind(*kind)));
        };
        let cell = Self { row, family, qualifier, timestamp, kind, value };
        Some(cell.check().map(|()| cell))
    }

    const fn check(&self) -> Result<(), CellError> {
        if self.row.len() > MAX_ROW_LENGTH {
            return Err(CellError::Row(self.row.len()));
        }
        if self.family.len() > MAX_FAMILY_LENGTH {
            return Err(CellError::Family(self.family.len()));
        }
        if self.timestamp > SERVER_TIME {
            return Err(CellError::Timestamp(self.timestamp));
        }
        if self.encoded_len() > i32::MAX as usize {
            return Err(CellError::Size(self.encoded_len()));
        }
        Ok(())
    }
}

/// Bytes that are no cell, or a cell that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The block ends inside a cell.
    #[error("cell block ends inside a cell")]
    Truncated,
    /// The lengths inside a cell contradict each other.
    #[error("lengths of a cell do not add up")]
    Lengths,
    /// Longer than [`MAX_ROW_LENGTH`].
    #[error("row key of {0} bytes")]
    Row(usize),
    /// Longer than [`MAX_FAMILY_LENGTH`].
    #[error("family name of {0} bytes")]
    Family(usize),
    /// Negative where the server reads it.
    #[error("timestamp {0} is above the largest")]
    Timestamp(u64),
    /// No kind of cell.
    #[error("cell of unknown kind {0}")]
    Kind(u8),
    /// More than two gigabytes.
    #[error("cell of {0} bytes")]
    Size(usize),
    /// A count names more cells than there are.
    #[error("cell block holds less than {0} cells")]
    Count(usize),
    /// A count below zero.
    #[error("count of {0} cells")]
    NegativeCount(i32),
    /// The counts name fewer cells than there are.
    #[error("{0} bytes of the cell block belong to no result")]
    Surplus(usize),
    /// One result has cells of several rows.
    #[error("result with cells of several rows")]
    Rows,
}

/// Cells one after the other, up to the end of the slice or the first that is none.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    block: &'a [u8],
}

impl<'a> Cells<'a> {
    /// Cells of a block.
    #[must_use]
    pub const fn new(block: &'a [u8]) -> Self {
        Self { block }
    }

    /// Bytes that were not yet read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.block
    }
}

impl<'a> Iterator for Cells<'a> {
    type Item = Result<Cell<'a>, CellError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.block.is_empty() {
            return None;
        }
        let cell = Cell::decode(&mut self.block);
        if cell.is_err() {
            self.block = &[];
        }
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::recorded;

    const ROW: &[u8] = &[0, 0, 1, 0x65, 0x52, 0, 0, 0, 0, 1, 0, 0, 2];
    const VALUE: &[u8] = &[0, 0, 0, 0x2a];

    fn sample() -> Cell<'static> {
        Cell {
            row: ROW,
            family: b"t",
            qualifier: &[0, 0xf3],
            timestamp: 1_700_000_000_123,
            kind: CellKind::Put,
            value: VALUE,
        }
    }

    #[track_caller]
    fn check(vector: &str, cells: &[Cell<'_>]) {
        let bytes = recorded::vector(vector);
        let read: Result<Vec<_>, _> = Cells::new(&bytes).collect();
        assert_eq!(read.unwrap(), cells);
        let mut out = BytesMut::new();
        for cell in cells {
            cell.encode(&mut out).unwrap();
        }
        assert_eq!(out, bytes);
        assert_eq!(out.len(), cells.iter().map(Cell::encoded_len).sum::<usize>());
    }

    #[test]
    fn a_put_is_written_as_the_codec_writes_it() {
        check("cell-put", &[sample()]);
        check("cell-put-server-time", &[Cell { timestamp: SERVER_TIME, value: b"", ..sample() }]);
    }

    #[test]
    fn deletes_carry_kind_and_no_value() {
        let column = Cell { kind: CellKind::Delete, value: b"", ..sample() };
        check("cell-delete-one-version", &[column]);
        let whole = Cell { kind: CellKind::DeleteColumn, timestamp: SERVER_TIME, ..column };
        check("cell-delete-column", &[whole]);
        let family = Cell { kind: CellKind::DeleteFamily, qualifier: b"", ..whole };
        check("cell-delete-family", &[family]);
        let version = Cell { kind: CellKind::DeleteFamilyVersion, qualifier: b"", ..column };
        check("cell-delete-family-version", &[version]);
    }

    #[test]
    fn cells_follow_each_other_without_a_gap() {
        let second =
            Cell { qualifier: &[1, 3], timestamp: 1_700_000_000_124, value: &[7], ..sample() };
        check("cell-block-two", &[sample(), second]);
    }

    #[test]
    fn a_block_cut_anywhere_is_an_error() {
        let bytes = recorded::vector("cell-put");
        for end in 1..bytes.len() {
            assert_eq!(Cell::decode(&mut &bytes[..end]), Err(CellError::Truncated), "{end}");
        }
    }

    #[test]
    fn lengths_that_leave_the_cell_are_an_error() {
        let bytes = recorded::vector("cell-put");
        // High bytes of key length, value length and row length.
        for at in [4, 8, 12] {
            let mut bent = bytes.to_vec();
            bent[at] = 0xff;
            assert_eq!(Cell::decode(&mut &bent[..]), Err(CellError::Lengths), "{at}");
        }
    }

    #[test]
    fn cells_hbase_would_refuse_are_not_written() {
        let mut out = BytesMut::new();
        let long = vec![b'r'; MAX_ROW_LENGTH + 1];
        let row = Cell { row: &long, ..sample() };
        assert_eq!(row.encode(&mut out), Err(CellError::Row(MAX_ROW_LENGTH + 1)));
        let family = Cell { family: &long[..128], ..sample() };
        assert_eq!(family.encode(&mut out), Err(CellError::Family(128)));
        let timestamp = Cell { timestamp: u64::MAX, ..sample() };
        assert_eq!(timestamp.encode(&mut out), Err(CellError::Timestamp(u64::MAX)));
        assert!(out.is_empty());
    }

    #[test]
    fn search_markers_are_no_cells() {
        for kind in [0, 255, 5] {
            let mut bytes = recorded::vector("cell-put").to_vec();
            let at = bytes.len() - VALUE.len() - 1;
            bytes[at] = kind;
            assert_eq!(Cell::decode(&mut &bytes[..]), Err(CellError::Kind(kind)));
        }
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(
            row in vec(any::<u8>(), 0..40), family in vec(any::<u8>(), 0..9), qualifier in vec(any::<u8>(), 0..20),
            timestamp in 0..=SERVER_TIME, kind in prop::sample::select(vec![4_u8, 8, 10, 12, 14]),
            value in vec(any::<u8>(), 0..60),
        ) {
            let kind = CellKind::from_byte(kind).unwrap();
            let cell = Cell { row: &row, family: &family, qualifier: &qualifier, timestamp, kind, value: &value };
            let mut out = BytesMut::new();
            cell.encode(&mut out).unwrap();
            let mut block = &out[..];
            prop_assert_eq!(Cell::decode(&mut block).unwrap(), cell);
            prop_assert!(block.is_empty());
        }

        #[test]
        fn any_bytes_decode_or_err(bytes in vec(any::<u8>(), 0..80)) {
            let mut block = &bytes[..];
            if Cell::decode(&mut block).is_err() {
                prop_assert_eq!(block, &bytes[..]);
            }
        }
    }
}
