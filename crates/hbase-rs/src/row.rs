//! Rows: the decoded cells that a read returns.

use std::fmt;

use bytes::{Bytes, BytesMut};
use hbase_rs_protobuf as pb;

use crate::cell::{Cell, CellError, CellKind, Cells};

/// Cells of one row, in HBase's order: family, qualifier, newest first.
///
/// A row is a slice of the response's cell block and keeps the whole block allocated. Use
/// [`Self::detach`] for rows that are kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Encoded cells, all valid and of one row.
    cells: Bytes,
    count: usize,
}

impl Row {
    /// Returns the row key; empty if there is no cell.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.cells().next().map_or(&[], |cell| cell.row)
    }

    /// Returns the row key as a shared slice.
    #[must_use]
    pub fn key_bytes(&self) -> Bytes {
        match self.key() {
            [] => Bytes::new(),
            key => self.cells.slice_ref(key),
        }
    }

    /// Iterates over the cells.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> + Clone {
        Cells::new(&self.cells).map_while(Result::ok)
    }

    /// Returns the newest value of a column.
    #[must_use]
    pub fn value(&self, family: &[u8], qualifier: &[u8]) -> Option<&[u8]> {
        self.cells()
            .find(|cell| cell.family == family && cell.qualifier == qualifier)
            .map(|cell| cell.value)
    }

    /// Number of cells.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if there is no cell.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the encoded cells, as in a cell block.
    #[must_use]
    pub const fn encoded(&self) -> &Bytes {
        &self.cells
    }

    /// Copies the cells to an allocation of their own.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self { cells: Bytes::copy_from_slice(&self.cells), count: self.count }
    }

    /// Returns the cells after the leading cells for which `skip` is true.
    pub(crate) fn skip_while(&self, mut skip: impl FnMut(&Cell<'_>) -> bool) -> Self {
        let mut cells = Cells::new(&self.cells);
        let mut count = self.count;
        let mut rest = cells.rest();
        while let Some(Ok(cell)) = cells.next() {
            if !skip(&cell) {
                break;
            }
            count -= 1;
            rest = cells.rest();
        }
        let cells = if rest.is_empty() { Bytes::new() } else { self.cells.slice_ref(rest) };
        Self { cells, count }
    }

    /// Concatenates the cells of parts of one row.
    pub(crate) fn join(parts: &[Self]) -> Self {
        if let [only] = parts {
            return only.clone();
        }
        let mut cells = BytesMut::with_capacity(parts.iter().map(|part| part.cells.len()).sum());
        for part in parts {
            cells.extend_from_slice(&part.cells);
        }
        Self { cells: cells.freeze(), count: parts.iter().map(Self::len).sum() }
    }

    fn from_messages(cells: &[pb::Cell]) -> Result<Self, CellError> {
        let mut out = BytesMut::new();
        for cell in cells {
            let kind = cell.cell_type.unwrap_or(CellKind::Put as i32);
            let byte = u8::try_from(kind).map_err(|_| CellError::Kind(u8::MAX))?;
            let kind = CellKind::from_byte(byte).ok_or(CellError::Kind(byte))?;
            let timestamp = cell.timestamp();
            let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
            Cell { row, family, qualifier, timestamp, kind, value: cell.value() }
                .encode(&mut out)?;
        }
        let mut block = CellBlock::new(out.freeze());
        block.take(cells.len())
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Row({}, {} cells)", self.key().escape_ascii(), self.count)
    }
}

/// A cell block that is split into rows.
#[derive(Clone, Debug)]
pub struct CellBlock {
    rest: Bytes,
}

impl CellBlock {
    /// Takes an uncompressed block.
    #[must_use]
    pub const fn new(block: Bytes) -> Self {
        Self { rest: block }
    }

    /// Removes the next `count` cells, which are one row.
    ///
    /// # Errors
    ///
    /// When there are fewer cells, or they belong to several rows.
    pub fn take(&mut self, count: usize) -> Result<Row, CellError> {
        let mut cells = Cells::new(&self.rest);
        let mut key = None;
        for _ in 0..count {
            let cell = cells.next().ok_or(CellError::Count(count))??;
            if *key.get_or_insert(cell.row) != cell.row {
                return Err(CellError::Rows);
            }
        }
        let length = self.rest.len() - cells.rest().len();
        Ok(Row { cells: self.rest.split_to(length), count })
    }

    /// Checks that the block is exhausted.
    ///
    /// # Errors
    ///
    /// When cells remain.
    pub const fn finish(&self) -> Result<(), CellError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CellError::Surplus(self.rest.len())) }
    }
}

/// Result of a get, an increment or an append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowResult {
    /// Cells of the row.
    pub row: Row,
    /// Result of an existence check.
    pub exists: Option<bool>,
    /// True if the result comes from a read replica and may be stale.
    pub stale: bool,
}

impl RowResult {
    /// Decodes the cells of the message, then the counted ones of the block. Servers use one or the other.
    ///
    /// # Errors
    ///
    /// When the block has fewer cells than counted, or a cell is invalid.
    #[doc(hidden)]
    pub fn decode(result: &pb::Result, block: &mut CellBlock) -> Result<Self, CellError> {
        let count = result.associated_cell_count();
        let counted = usize::try_from(count).map_err(|_| CellError::NegativeCount(count))?;
        let from_block = block.take(counted)?;
        let row = if result.cell.is_empty() {
            from_block
        } else {
            Row::join(&[Row::from_messages(&result.cell)?, from_block])
        };
        Ok(Self { row, exists: result.exists, stale: result.stale() })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::recorded;

    #[test]
    fn cells_of_the_message_and_of_the_block_decode_to_the_same_row() {
        let block = recorded::vector("cell-put");
        let frame = recorded::vector("get-response-protobuf");
        let response = pb::GetResponse::decode_length_delimited(&frame[7..]).unwrap();
        let own = RowResult::decode(&response.result.unwrap(), &mut CellBlock::new(Bytes::new()))
            .unwrap();
        assert_eq!(own.row.encoded(), &block);
        let counted = pb::Result { associated_cell_count: Some(1), ..pb::Result::default() };
        let result = RowResult::decode(&counted, &mut CellBlock::new(block)).unwrap();
        assert_eq!(result, own);
        assert_eq!(result.row.value(b"t", &[0, 0xf3]), Some(&[0, 0, 0, 42][..]));
        assert_eq!(result.row.value(b"t", b"x"), None);
        assert_eq!(result.row.key(), result.row.key_bytes());
    }

    #[test]
    fn result_without_fields_is_an_empty_row() {
        let result =
            RowResult::decode(&pb::Result::default(), &mut CellBlock::new(Bytes::new())).unwrap();
        assert!(
            result.row.is_empty()
                && result.row.key().is_empty()
                && result.row.key_bytes().is_empty()
        );
    }

    #[test]
    fn wrong_cell_counts_are_errors() {
        let two = recorded::vector("cell-block-two");
        let mut block = CellBlock::new(two.clone());
        assert_eq!(block.take(3), Err(CellError::Count(3)));
        assert_eq!(block.take(1).unwrap().len(), 1);
        assert!(block.finish().is_err());
        assert_eq!(block.take(1).unwrap().len(), 1);
        assert_eq!(block.finish(), Ok(()));
        let negative = pb::Result { associated_cell_count: Some(-1), ..pb::Result::default() };
        let result = RowResult::decode(&negative, &mut CellBlock::new(two));
        assert_eq!(result, Err(CellError::NegativeCount(-1)));
    }

    #[test]
    fn cells_of_two_rows_are_an_error() {
        let mut block = recorded::vector("cell-block-two").to_vec();
        let second = block.len() - 30;
        block[second] ^= 1;
        assert!(matches!(
            CellBlock::new(block.into()).take(2),
            Err(CellError::Rows | CellError::Lengths)
        ));
    }

    #[test]
    fn rows_are_split_and_joined_at_cells() {
        let row = CellBlock::new(recorded::vector("cell-block-two")).take(2).unwrap();
        let tail = row.skip_while(|cell| cell.qualifier == [0, 0xf3]);
        assert_eq!(tail.len(), 1);
        assert_eq!(tail.cells().next().unwrap().qualifier, [1, 3]);
        let head = CellBlock::new(recorded::vector("cell-block-two")).take(1).unwrap();
        assert_eq!(Row::join(&[head, tail]), row);
        assert!(row.skip_while(|_| true).is_empty());
        assert_eq!(row.detach(), row);
    }
}
