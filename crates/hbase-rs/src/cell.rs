//! Cells and their encoding in cell blocks.
//!
//! A cell block is what HBase's `KeyValueCodec` writes: cells without count or trailer.
//!
//! ```text
//! size u32 | klen u32 | vlen u32 | rowlen u16, row | famlen u8, family | qualifier | timestamp u64 | kind u8 | value
//! ```
//!
//! A decoded cell borrows from its buffer, without an allocation or a copy. Every length is checked
//! before the buffer is sliced.

use bytes::{Buf, BufMut, BytesMut};

/// Maximum length of a row key in HBase.
pub(crate) const MAX_ROW_LENGTH: usize = 32_767;

/// Maximum length of a family name in HBase.
pub(crate) const MAX_FAMILY_LENGTH: usize = 127;

/// Timestamp of a mutation that the server replaces with its current time.
pub const SERVER_TIME: u64 = i64::MAX as u64;

/// Bytes of an encoded cell in addition to row, family, qualifier and value.
const OVERHEAD: usize = 24;

/// Bytes of an encoded key in addition to row, family and qualifier: row length, family length,
/// timestamp, kind.
const KEY_OVERHEAD: usize = 12;

/// Maximum encoded length of cells that are assembled on the stack and appended at once.
const SMALL_CELL: usize = 128;

/// Kind of a cell: a value or a delete marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CellKind {
    /// A value.
    Put = 4,
    /// Deletes one version of the column.
    Delete = 8,
    /// Deletes all columns of the family with exactly this timestamp.
    DeleteFamilyVersion = 10,
    /// Deletes all versions of the column up to the timestamp.
    DeleteColumn = 12,
    /// Deletes all columns of the family up to the timestamp.
    DeleteFamily = 14,
}

impl CellKind {
    /// Returns the kind of a type byte. HBase's `Minimum` and `Maximum` are search keys, never stored, and
    /// return `None`.
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

/// A cell that borrows from a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell<'a> {
    /// Row key.
    pub row: &'a [u8],
    /// Column family.
    pub family: &'a [u8],
    /// Column qualifier; may be empty.
    pub qualifier: &'a [u8],
    /// Timestamp; by convention milliseconds since the epoch.
    pub timestamp: u64,
    /// Value or delete marker.
    pub kind: CellKind,
    /// Value; empty for deletes.
    pub value: &'a [u8],
}

impl<'a> Cell<'a> {
    /// Maximum length of a row key in bytes.
    pub const MAX_ROW_LENGTH: usize = MAX_ROW_LENGTH;

    /// Maximum length of the name of a column family in bytes.
    pub const MAX_FAMILY_LENGTH: usize = MAX_FAMILY_LENGTH;

    /// Returns the number of bytes that [`Self::encode`] appends.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        OVERHEAD + self.row.len() + self.family.len() + self.qualifier.len() + self.value.len()
    }

    /// Appends the cell to a block.
    ///
    /// # Errors
    ///
    /// When a part exceeds HBase's limits; `out` is unchanged then.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), CellError> {
        self.check()?;
        let length = self.encoded_len();
        // A small cell is assembled on the stack: one append is faster than one per field.
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

    /// Writes the cell to a buffer of sufficient capacity.
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

    /// Removes one cell from the front of `block`.
    ///
    /// # Errors
    ///
    /// When it is invalid; `block` is unchanged then.
    pub fn decode(block: &mut &'a [u8]) -> Result<Self, CellError> {
        let mut rest = *block;
        let size = rest.try_get_u32().map_err(|_| CellError::Truncated)?;
        let mut body = rest.split_off(..size as usize).ok_or(CellError::Truncated)?;
        let cell = Self::decode_body(&mut body).ok_or(CellError::Lengths)??;
        *block = rest;
        Ok(cell)
    }

    /// Returns `None` if a length exceeds the cell.
    fn decode_body(body: &mut &'a [u8]) -> Option<Result<Self, CellError>> {
        let key_length = body.try_get_u32().ok()? as usize;
        let value_length = body.try_get_u32().ok()? as usize;
        let mut key = body.split_off(..key_length)?;
        let value = *body;
        let row_length = usize::from(key.try_get_u16().ok()?);
        let row = key.split_off(..row_length)?;
        let family_length = usize::from(key.try_get_u8().ok()?);
        let family = key.split_off(..family_length)?;
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

/// An invalid cell or cell block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The block ends inside a cell.
    #[error("cell block ends inside a cell")]
    Truncated,
    /// The lengths inside a cell contradict each other.
    #[error("inconsistent lengths in a cell")]
    Lengths,
    /// Longer than [`Cell::MAX_ROW_LENGTH`].
    #[error("row key is {0} bytes; the limit is {MAX_ROW_LENGTH}")]
    Row(usize),
    /// Longer than [`Cell::MAX_FAMILY_LENGTH`].
    #[error("family name is {0} bytes; the limit is {MAX_FAMILY_LENGTH}")]
    Family(usize),
    /// Larger than [`SERVER_TIME`]; negative in HBase.
    #[error("timestamp is {0}; the limit is {SERVER_TIME}")]
    Timestamp(u64),
    /// Unknown kind.
    #[error("cell of unknown kind {0}")]
    Kind(u8),
    /// More than two gigabytes.
    #[error("cell is {0} bytes; the limit is 2147483647")]
    Size(usize),
    /// A count exceeds the number of cells.
    #[error("cell block has fewer than {0} cells")]
    Count(usize),
    /// A negative count.
    #[error("negative count of {0} cells")]
    NegativeCount(i32),
    /// The counts do not cover the whole block.
    #[error("{0} bytes of the cell block belong to no result")]
    Surplus(usize),
    /// A result has cells of several rows.
    #[error("result with cells of several rows")]
    Rows,
}

/// Iterator over the cells of a block; it ends after the first invalid one.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    block: &'a [u8],
}

impl<'a> Cells<'a> {
    /// Iterates over a block.
    #[must_use]
    pub const fn new(block: &'a [u8]) -> Self {
        Self { block }
    }

    /// Returns the bytes that are not yet decoded.
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
    fn puts_encode_as_recorded() {
        check("cell-put", &[sample()]);
        check("cell-put-server-time", &[Cell { timestamp: SERVER_TIME, value: b"", ..sample() }]);
    }

    #[test]
    fn deletes_encode_as_recorded() {
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
    fn blocks_of_two_cells_encode_as_recorded() {
        let second =
            Cell { qualifier: &[1, 3], timestamp: 1_700_000_000_124, value: &[7], ..sample() };
        check("cell-block-two", &[sample(), second]);
    }

    #[test]
    fn truncated_cell_is_an_error() {
        let bytes = recorded::vector("cell-put");
        for end in 1..bytes.len() {
            assert_eq!(Cell::decode(&mut &bytes[..end]), Err(CellError::Truncated), "{end}");
        }
    }

    #[test]
    fn lengths_beyond_the_cell_are_an_error() {
        let bytes = recorded::vector("cell-put");
        // High bytes of key length, value length and row length.
        for at in [4, 8, 12] {
            let mut corrupt = bytes.to_vec();
            corrupt[at] = 0xff;
            assert_eq!(Cell::decode(&mut &corrupt[..]), Err(CellError::Lengths), "{at}");
        }
    }

    #[test]
    fn cells_over_the_limits_are_not_encoded() {
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
    fn unknown_kinds_are_errors() {
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
        fn decoding_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..80)) {
            let mut block = &bytes[..];
            if Cell::decode(&mut block).is_err() {
                prop_assert_eq!(block, &bytes[..]);
            }
        }
    }
}
