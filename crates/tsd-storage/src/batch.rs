//! A batch of cells to write, encoded in one buffer so that a cell needs no allocation.
//!
//! The producer encodes the cells once. Most batches are rows of one point each, so a point costs
//! its key, its qualifier, its value and two bytes. The write-ahead log stores the differences
//! between rows ([`CellBatch::encode_delta`]).
//!
//! ```text
//! batch  = row *
//! row    = 0 m kkkkkk | key (k bytes) | cell *
//!        | 1 m 000000 | key length u16 | key | cell *
//! cell   = 0 m q vvv t 0   | time | qualifier (2 bytes, q: 4) | value (v + 1 bytes)      family t
//!        | 1 m ff 00 t 0   | qualifier length u16 | value length u32 | time | qualifier | value
//! time   = i64, only with t                                                     (big-endian)
//! ```
//!
//! `m` is set in the header of a row or cell that is followed by another cell of that row.

mod delta;

use tsd_model::Family;

pub use self::delta::MAX_DELTA_BATCH_BYTES;

/// Longest row key and longest qualifier, in bytes (HBase's limit for rows).
pub const MAX_KEY_BYTES: usize = 32_767;

/// In the header of a row or cell: another cell of the row follows.
const MORE: u8 = 0x40;
const LONG_KEY: u8 = 0x80;
const SHORT_KEY_BYTES: usize = 0x3f;
const GENERAL_CELL: u8 = 0x80;
const LONG_QUALIFIER: u8 = 0x20;
const WITH_TIMESTAMP: u8 = 0x02;

/// Cells to put into (or append to) one table, in order.
#[derive(Clone, Debug, Default)]
pub struct CellBatch {
    buf: Vec<u8>,
    cells: usize,
    rows: usize,
    /// Offset of the header that gets [`MORE`] with the next cell: the current row's, or its last
    /// cell's.
    last_header: Option<usize>,
}

/// Cells that no store can hold, or bytes that are not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A row key that is empty or longer than [`MAX_KEY_BYTES`].
    #[error("row key is {0} bytes; it must have 1 to {MAX_KEY_BYTES}")]
    RowKey(usize),
    /// A qualifier longer than [`MAX_KEY_BYTES`], or a value of 4 GiB or more.
    #[error(
        "the cell has a qualifier of {qualifier} bytes and a value of {value} bytes; the limits are \
         {MAX_KEY_BYTES} bytes and 4 GiB"
    )]
    CellSize {
        /// Length of the qualifier, in bytes.
        qualifier: usize,
        /// Length of the value, in bytes.
        value: usize,
    },
    /// A cell was pushed before [`CellBatch::begin_row`].
    #[error("a cell without a row")]
    NoRow,
    /// The bytes at this offset are not an encoded batch.
    #[error("the batch is damaged at byte {0}")]
    Damaged(usize),
}

/// Cells of one row in a batch.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// Row key.
    pub key: &'a [u8],
    cells: &'a [u8],
    cell_count: usize,
    /// The encoded row.
    encoded: &'a [u8],
}

/// One cell in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// Column family.
    pub family: Family,
    /// Column qualifier.
    pub qualifier: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// Cell timestamp in epoch milliseconds; `None` takes the store's clock.
    pub timestamp_ms: Option<i64>,
}

impl CellBatch {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Self { buf: Vec::new(), cells: 0, rows: 0, last_header: None }
    }

    /// A batch of one cell.
    pub fn single(row: &[u8], cell: CellRef<'_>) -> Result<Self, BatchError> {
        let mut batch = Self::new();
        batch.begin_row(row)?;
        batch.push(cell)?;
        Ok(batch)
    }

    /// Starts a row; later cells belong to it. A row may be started again later in the batch.
    pub fn begin_row(&mut self, key: &[u8]) -> Result<(), BatchError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(BatchError::RowKey(key.len()));
        }
        self.last_header = Some(self.buf.len());
        self.rows += 1;
        if key.len() > SHORT_KEY_BYTES {
            self.buf.push(LONG_KEY);
            self.buf.extend_from_slice(&(key.len() as u16).to_be_bytes());
        } else {
            self.buf.push(key.len() as u8);
        }
        self.buf.extend_from_slice(key);
        Ok(())
    }

    /// Adds a cell to the current row.
    #[inline]
    pub fn push(&mut self, cell: CellRef<'_>) -> Result<(), BatchError> {
        let previous = self.last_header.ok_or(BatchError::NoRow)?;
        let (qualifier, value) = (cell.qualifier.len(), cell.value.len());
        if qualifier > MAX_KEY_BYTES || u32::try_from(value).is_err() {
            return Err(BatchError::CellSize { qualifier, value });
        }
        let at = self.buf.len();
        let timestamp_flag = if cell.timestamp_ms.is_some() { WITH_TIMESTAMP } else { 0 };
        if cell.family == Family::T && matches!(qualifier, 2 | 4) && matches!(value, 1..=8) {
            let long = if qualifier == 4 { LONG_QUALIFIER } else { 0 };
            self.buf.push(long | (value as u8 - 1) << 2 | timestamp_flag);
        } else {
            self.buf.push(GENERAL_CELL | (cell.family as u8) << 4 | timestamp_flag);
            self.buf.extend_from_slice(&(qualifier as u16).to_be_bytes());
            self.buf.extend_from_slice(&(value as u32).to_be_bytes());
        }
        if let Some(ts) = cell.timestamp_ms {
            self.buf.extend_from_slice(&ts.to_be_bytes());
        }
        self.buf.extend_from_slice(cell.qualifier);
        self.buf.extend_from_slice(cell.value);
        if let Some(header) = self.buf.get_mut(previous) {
            *header |= MORE;
        }
        self.last_header = Some(at);
        self.cells += 1;
        Ok(())
    }

    /// Adds a row of another batch. Its later cells need [`Self::begin_row`].
    pub fn push_row(&mut self, row: RowRef<'_>) {
        self.buf.extend_from_slice(row.encoded);
        self.cells += row.cell_count;
        self.rows += 1;
        self.last_header = None;
    }

    /// Reserves memory for this many further bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.buf.reserve(bytes);
    }

    /// Appends all rows of another batch.
    pub fn extend(&mut self, other: &Self) {
        self.buf.extend_from_slice(&other.buf);
        self.cells += other.cells;
        self.rows += other.rows;
        self.last_header = None;
    }

    /// Number of cells.
    #[must_use]
    pub const fn cell_count(&self) -> usize {
        self.cells
    }

    /// Number of rows; a row that was started twice counts twice.
    #[must_use]
    pub const fn row_count(&self) -> usize {
        self.rows
    }

    /// True if the batch has no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Length of the encoded batch, in bytes.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.buf.len()
    }

    /// The encoded batch, in the format of the module documentation.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Removes all rows and keeps the capacity of the buffer.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.cells = 0;
        self.rows = 0;
        self.last_header = None;
    }

    /// The rows, in the order they were started.
    pub fn rows(&self) -> impl Iterator<Item = RowRef<'_>> {
        // Only the methods of this type encode a batch, so decoding cannot fail.
        RowIter { rest: &self.buf, at: 0 }.map_while(Result::ok)
    }

    /// Decodes a buffer read from elsewhere (a log) and validates all of it.
    pub fn from_bytes(buf: Vec<u8>) -> Result<Self, BatchError> {
        let (mut cells, mut rows) = (0, 0);
        for row in (RowIter { rest: &buf, at: 0 }) {
            rows += 1;
            cells += row?.cell_count;
        }
        Ok(Self { buf, cells, rows, last_header: None })
    }
}

impl<'a> RowRef<'a> {
    /// The cells, in the order they were pushed.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'a>> + use<'a> {
        CellIter { rest: self.cells }
    }

    /// Number of cells.
    #[must_use]
    pub const fn cell_count(&self) -> usize {
        self.cell_count
    }

    /// Bytes of the row in a batch.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.encoded.len()
    }
}

struct RowIter<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Iterator for RowIter<'a> {
    type Item = Result<RowRef<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((row, rest)) = decode_row(self.rest) else {
            self.rest = &[];
            return Some(Err(BatchError::Damaged(self.at)));
        };
        self.at += self.rest.len() - rest.len();
        self.rest = rest;
        Some(Ok(row))
    }
}

/// Decodes the first row of `bytes` and validates its cells; returns it with the remaining bytes.
#[inline]
fn decode_row(bytes: &[u8]) -> Option<(RowRef<'_>, &[u8])> {
    let (header, mut rest) = bytes.split_first()?;
    let short = usize::from(header & !(LONG_KEY | MORE));
    let len = if header & LONG_KEY == 0 {
        short
    } else {
        let (len, after) = rest.split_first_chunk::<2>().filter(|_| short == 0)?;
        rest = after;
        usize::from(u16::from_be_bytes(*len))
    };
    let (key, cells) = rest.split_at_checked(len).filter(|_| len > 0)?;
    let (mut rest, mut more, mut cell_count) = (cells, header & MORE != 0, 0);
    while more {
        (_, more, rest) = decode_cell(rest)?;
        cell_count += 1;
    }
    let cells = cells.get(..cells.len() - rest.len())?;
    let encoded = bytes.get(..bytes.len() - rest.len())?;
    Some((RowRef { key, cells, cell_count, encoded }, rest))
}

/// Decodes a column family from its code.
#[must_use]
#[inline]
pub const fn decode_family(code: u8) -> Option<Family> {
    match code {
        0 => Some(Family::Id),
        1 => Some(Family::Name),
        2 => Some(Family::T),
        _ => None,
    }
}

/// Decodes the first cell of `bytes`; returns it, whether its row has another cell, and the rest.
#[inline]
fn decode_cell(bytes: &[u8]) -> Option<(CellRef<'_>, bool, &[u8])> {
    let (&header, mut rest) = bytes.split_first()?;
    let (family, qualifier, value);
    if header & GENERAL_CELL == 0 {
        family = Family::T;
        qualifier = if header & LONG_QUALIFIER == 0 { 2 } else { 4 };
        value = usize::from(header >> 2 & 7) + 1;
    } else {
        family = decode_family(header >> 4 & 3)?;
        let (lengths, after) = rest.split_first_chunk::<6>()?;
        let [q0, q1, v0, v1, v2, v3] = *lengths;
        qualifier = usize::from(u16::from_be_bytes([q0, q1]));
        value = u32::from_be_bytes([v0, v1, v2, v3]) as usize;
        rest = after;
    }
    let timestamp_ms = if header & WITH_TIMESTAMP == 0 {
        None
    } else {
        let (ts, after) = rest.split_first_chunk::<8>()?;
        rest = after;
        Some(i64::from_be_bytes(*ts))
    };
    let (qualifier, rest) = rest.split_at_checked(qualifier)?;
    let (value, rest) = rest.split_at_checked(value)?;
    Some((CellRef { family, qualifier, value, timestamp_ms }, header & MORE != 0, rest))
}

struct CellIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for CellIter<'a> {
    type Item = CellRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (cell, _, rest) = decode_cell(self.rest)?;
        self.rest = rest;
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type DecodedRow = (Vec<u8>, Vec<(u8, Vec<u8>, Vec<u8>, Option<i64>)>);

    fn family(code: u8) -> Family {
        match code {
            0 => Family::Id,
            1 => Family::Name,
            _ => Family::T,
        }
    }

    fn decoded(batch: &CellBatch) -> Vec<DecodedRow> {
        let cells = |row: RowRef<'_>| {
            row.cells()
                .map(|c| (c.family as u8, c.qualifier.to_vec(), c.value.to_vec(), c.timestamp_ms))
                .collect()
        };
        batch.rows().map(|row| (row.key.to_vec(), cells(row))).collect()
    }

    fn rows() -> impl Strategy<Value = Vec<DecodedRow>> {
        let bytes = |sizes| prop::collection::vec(any::<u8>(), sizes);
        let other = (0..3_u8, bytes(0..20), bytes(0..20), any::<Option<i64>>());
        let long = prop::sample::select(vec![2_usize, 4]);
        let point = (long.prop_flat_map(move |q| bytes(q..q + 1)), bytes(1..9));
        let point = point.prop_map(|(qualifier, value)| (2_u8, qualifier, value, None));
        let cells = prop::collection::vec(prop_oneof![point, other], 0..5);
        let key = prop_oneof![8 => bytes(1..20), 1 => bytes(60..300)];
        prop::collection::vec((key, cells), 0..5)
    }

    proptest! {
        #[test]
        fn decoded_batch_has_the_cells_that_were_pushed(rows in rows()) {
            let mut batch = CellBatch::new();
            for (key, cells) in &rows {
                prop_assert_eq!(batch.begin_row(key), Ok(()));
                for (code, qualifier, value, timestamp_ms) in cells {
                    let family = family(*code);
                    let timestamp_ms = *timestamp_ms;
                    let pushed = batch.push(CellRef { family, qualifier, value, timestamp_ms });
                    prop_assert_eq!(pushed, Ok(()));
                }
            }
            prop_assert_eq!(decoded(&batch), rows.clone());
            let copy = CellBatch::from_bytes(batch.as_bytes().to_vec());
            let copy = copy.map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(copy.cell_count(), batch.cell_count());
            prop_assert_eq!(copy.row_count(), batch.row_count());
            let mut by_row = CellBatch::new();
            let mut bytes = 0;
            for row in copy.rows() {
                by_row.push_row(row);
                bytes += row.byte_len();
            }
            prop_assert_eq!((by_row.as_bytes(), by_row.byte_len()), (batch.as_bytes(), bytes));
            prop_assert_eq!(by_row.cell_count(), batch.cell_count());
            prop_assert_eq!(by_row.row_count(), batch.row_count());
            prop_assert_eq!(decoded(&copy), rows);
        }

        #[test]
        fn arbitrary_bytes_decode_to_a_batch_or_an_error(bytes: Vec<u8>) {
            if let Ok(batch) = CellBatch::from_bytes(bytes) {
                prop_assert_eq!(decoded(&batch).len(), batch.row_count());
            }
        }
    }

    #[test]
    fn a_row_of_another_batch_ends_the_row_before() {
        let cell = CellRef { family: Family::T, qualifier: b"q1", value: b"v", timestamp_ms: None };
        let other = CellBatch::single(b"other", cell);
        let mut batch = CellBatch::new();
        assert_eq!(batch.begin_row(b"row"), Ok(()));
        for row in other.iter().flat_map(CellBatch::rows) {
            batch.push_row(row);
        }
        assert_eq!(batch.push(cell), Err(BatchError::NoRow));
        assert_eq!(batch.begin_row(b"last"), Ok(()));
        assert_eq!(batch.push(cell), Ok(()));
        let keys: Vec<_> = decoded(&batch).into_iter().map(|(key, of)| (key, of.len())).collect();
        assert_eq!(keys, [(b"row".to_vec(), 0), (b"other".to_vec(), 1), (b"last".to_vec(), 1)]);
    }

    #[test]
    fn point_in_its_own_row_has_two_bytes_of_overhead() {
        let (qualifier, value) = (&[0, 7][..], &[1, 2, 3, 4][..]);
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        let batch = CellBatch::single(&[9; 20], cell);
        assert_eq!(batch.map(|batch| batch.byte_len()), Ok(20 + 2 + 4 + 2));
    }

    #[test]
    fn batch_truncated_inside_a_row_is_an_error() {
        let cell =
            CellRef { family: Family::T, qualifier: b"odd", value: b"v", timestamp_ms: None };
        let mut batch = CellBatch::new();
        assert_eq!(batch.begin_row(b"row"), Ok(()));
        for _ in 0..2 {
            assert_eq!(batch.push(cell), Ok(()));
        }
        for len in 1..batch.byte_len() {
            let cut = CellBatch::from_bytes(batch.as_bytes().iter().take(len).copied().collect());
            assert!(cut.is_err(), "{len} bytes");
        }
    }

    #[test]
    fn keys_and_qualifiers_are_limited_in_length() {
        let mut batch = CellBatch::new();
        let long = vec![0; MAX_KEY_BYTES + 1];
        let cell = CellRef { family: Family::T, qualifier: &long, value: b"", timestamp_ms: None };
        assert_eq!(batch.push(cell), Err(BatchError::NoRow));
        assert_eq!(batch.begin_row(b""), Err(BatchError::RowKey(0)));
        assert_eq!(batch.begin_row(&long), Err(BatchError::RowKey(MAX_KEY_BYTES + 1)));
        assert_eq!(batch.begin_row(b"row"), Ok(()));
        let size = BatchError::CellSize { qualifier: MAX_KEY_BYTES + 1, value: 0 };
        assert_eq!(batch.push(cell), Err(size));
        assert_eq!(batch.cell_count(), 0);
    }
}
