//! Cells on their way into a store, many in one buffer.
//!
//! A batch is laid out once, by whoever makes the cells, and travels as bytes from there to the
//! log: no allocation a cell, and the write-ahead log writes the buffer as it stands.
//!
//! Most cells are points in rows of their own, and the log is as long as its batches: so a point
//! costs its key, its qualifier, its value and two bytes.
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
//! A row or a cell with `m` has another cell of the row behind it.

use tsd_model::Family;

/// Longest row key and longest qualifier, in bytes (HBase's limit for rows).
pub const MAX_KEY_BYTES: usize = 32_767;

/// In the head of a row or cell: a cell of the row follows.
const MORE: u8 = 0x40;
const LONG_KEY: u8 = 0x80;
const SHORT_KEY_BYTES: usize = 0x3f;
const OTHER: u8 = 0x80;
const LONG_QUALIFIER: u8 = 0x20;
const TIMED: u8 = 0x02;

/// Puts (or appends) of cells into one table, in order.
#[derive(Clone, Debug, Default)]
pub struct CellBatch {
    buf: Vec<u8>,
    cells: usize,
    rows: usize,
    /// Head behind which the next cell goes: of the row begun last, or of its last cell.
    open: Option<usize>,
}

/// A row key or qualifier that no store can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A row key that is empty or over [`MAX_KEY_BYTES`].
    #[error("row key of {0} bytes")]
    RowKey(usize),
    /// A qualifier over [`MAX_KEY_BYTES`], or a value over 4 GiB.
    #[error("cell of {qualifier} + {value} bytes")]
    CellSize {
        /// Bytes of the qualifier.
        qualifier: usize,
        /// Bytes of the value.
        value: usize,
    },
    /// A cell before any row was begun.
    #[error("a cell without a row")]
    NoRow,
    /// Bytes that are no batch.
    #[error("damaged batch at byte {0}")]
    Damaged(usize),
}

/// Cells of one row in a batch.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// Row key.
    pub key: &'a [u8],
    cells: &'a [u8],
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
    /// Cell timestamp in epoch milliseconds where the writer fixed one; else the store's clock.
    pub timestamp_ms: Option<i64>,
}

impl CellBatch {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Self { buf: Vec::new(), cells: 0, rows: 0, open: None }
    }

    /// A batch of one cell.
    pub fn single(row: &[u8], cell: CellRef<'_>) -> Result<Self, BatchError> {
        let mut batch = Self::new();
        batch.begin_row(row)?;
        batch.push(cell)?;
        Ok(batch)
    }

    /// Starts a row; the cells that follow belong to it. The same row may be begun again later.
    pub fn begin_row(&mut self, key: &[u8]) -> Result<(), BatchError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(BatchError::RowKey(key.len()));
        }
        self.open = Some(self.buf.len());
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

    /// Adds a cell to the row begun last.
    #[inline]
    pub fn push(&mut self, cell: CellRef<'_>) -> Result<(), BatchError> {
        let before = self.open.ok_or(BatchError::NoRow)?;
        let (qualifier, value) = (cell.qualifier.len(), cell.value.len());
        if qualifier > MAX_KEY_BYTES || u32::try_from(value).is_err() {
            return Err(BatchError::CellSize { qualifier, value });
        }
        let at = self.buf.len();
        let timed = if cell.timestamp_ms.is_some() { TIMED } else { 0 };
        if cell.family == Family::T && matches!(qualifier, 2 | 4) && matches!(value, 1..=8) {
            let long = if qualifier == 4 { LONG_QUALIFIER } else { 0 };
            self.buf.push(long | (value as u8 - 1) << 2 | timed);
        } else {
            self.buf.push(OTHER | (cell.family as u8) << 4 | timed);
            self.buf.extend_from_slice(&(qualifier as u16).to_be_bytes());
            self.buf.extend_from_slice(&(value as u32).to_be_bytes());
        }
        if let Some(ts) = cell.timestamp_ms {
            self.buf.extend_from_slice(&ts.to_be_bytes());
        }
        self.buf.extend_from_slice(cell.qualifier);
        self.buf.extend_from_slice(cell.value);
        if let Some(head) = self.buf.get_mut(before) {
            *head |= MORE;
        }
        self.open = Some(at);
        self.cells += 1;
        Ok(())
    }

    /// Appends all rows of another batch.
    pub fn extend(&mut self, other: &Self) {
        self.buf.extend_from_slice(&other.buf);
        self.cells += other.cells;
        self.rows += other.rows;
        self.open = None;
    }

    /// Number of cells.
    #[must_use]
    pub const fn cell_count(&self) -> usize {
        self.cells
    }

    /// Number of row groups; a row begun twice counts twice.
    #[must_use]
    pub const fn row_count(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of the buffer.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.buf.len()
    }

    /// The buffer, laid out as the module says.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Empties the batch and keeps its buffer.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.cells = 0;
        self.rows = 0;
        self.open = None;
    }

    /// The rows, in the order they were begun.
    pub fn rows(&self) -> impl Iterator<Item = RowRef<'_>> {
        // A batch is only made by the methods above, so its layout always holds.
        Rows { rest: &self.buf, at: 0 }.map_while(Result::ok)
    }

    /// Takes a buffer from elsewhere (a log) and checks all of it.
    pub fn from_bytes(buf: Vec<u8>) -> Result<Self, BatchError> {
        let (mut cells, mut rows) = (0, 0);
        for row in (Rows { rest: &buf, at: 0 }) {
            rows += 1;
            cells += row?.cells().count();
        }
        Ok(Self { buf, cells, rows, open: None })
    }
}

impl<'a> RowRef<'a> {
    /// The cells, in the order they were pushed.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'a>> + use<'a> {
        Cells { rest: self.cells }
    }
}

struct Rows<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Rows<'a> {
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

/// The first row of `bytes`, all of its cells checked, and what is behind it.
#[inline]
fn decode_row(bytes: &[u8]) -> Option<(RowRef<'_>, &[u8])> {
    let (head, mut rest) = bytes.split_first()?;
    let short = usize::from(head & !(LONG_KEY | MORE));
    let len = if head & LONG_KEY == 0 {
        short
    } else {
        let (len, after) = rest.split_first_chunk::<2>().filter(|_| short == 0)?;
        rest = after;
        usize::from(u16::from_be_bytes(*len))
    };
    let (key, cells) = rest.split_at_checked(len).filter(|_| len > 0)?;
    let (mut rest, mut more) = (cells, head & MORE != 0);
    while more {
        (_, more, rest) = decode_cell(rest)?;
    }
    let cells = cells.get(..cells.len() - rest.len())?;
    Some((RowRef { key, cells }, rest))
}

/// The first cell of `bytes`, whether another one of its row follows, and what is behind it.
#[inline]
fn decode_cell(bytes: &[u8]) -> Option<(CellRef<'_>, bool, &[u8])> {
    let (&head, mut rest) = bytes.split_first()?;
    let (family, qualifier, value);
    if head & OTHER == 0 {
        family = Family::T;
        qualifier = if head & LONG_QUALIFIER == 0 { 2 } else { 4 };
        value = usize::from(head >> 2 & 7) + 1;
    } else {
        family = match head >> 4 & 3 {
            0 => Family::Id,
            1 => Family::Name,
            2 => Family::T,
            _ => return None,
        };
        let (lengths, after) = rest.split_first_chunk::<6>()?;
        let [q0, q1, v0, v1, v2, v3] = *lengths;
        qualifier = usize::from(u16::from_be_bytes([q0, q1]));
        value = u32::from_be_bytes([v0, v1, v2, v3]) as usize;
        rest = after;
    }
    let timestamp_ms = if head & TIMED == 0 {
        None
    } else {
        let (ts, after) = rest.split_first_chunk::<8>()?;
        rest = after;
        Some(i64::from_be_bytes(*ts))
    };
    let (qualifier, rest) = rest.split_at_checked(qualifier)?;
    let (value, rest) = rest.split_at_checked(value)?;
    Some((CellRef { family, qualifier, value, timestamp_ms }, head & MORE != 0, rest))
}

struct Cells<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Cells<'a> {
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

    type Plain = (Vec<u8>, Vec<(u8, Vec<u8>, Vec<u8>, Option<i64>)>);

    fn family(code: u8) -> Family {
        match code {
            0 => Family::Id,
            1 => Family::Name,
            _ => Family::T,
        }
    }

    fn plain(batch: &CellBatch) -> Vec<Plain> {
        let cells = |row: RowRef<'_>| {
            row.cells()
                .map(|c| (c.family as u8, c.qualifier.to_vec(), c.value.to_vec(), c.timestamp_ms))
                .collect()
        };
        batch.rows().map(|row| (row.key.to_vec(), cells(row))).collect()
    }

    fn rows() -> impl Strategy<Value = Vec<Plain>> {
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
        fn a_batch_gives_back_what_was_pushed(rows in rows()) {
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
            prop_assert_eq!(plain(&batch), rows.clone());
            let copy = CellBatch::from_bytes(batch.as_bytes().to_vec());
            let copy = copy.map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(copy.cell_count(), batch.cell_count());
            prop_assert_eq!(copy.row_count(), batch.row_count());
            prop_assert_eq!(plain(&copy), rows);
        }

        #[test]
        fn any_bytes_are_a_batch_or_an_error(bytes: Vec<u8>) {
            if let Ok(batch) = CellBatch::from_bytes(bytes) {
                prop_assert_eq!(plain(&batch).len(), batch.row_count());
            }
        }
    }

    #[test]
    fn a_point_in_a_row_of_its_own_costs_two_bytes_more_than_it_holds() {
        let (qualifier, value) = (&[0, 7][..], &[1, 2, 3, 4][..]);
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        let batch = CellBatch::single(&[9; 20], cell);
        assert_eq!(batch.map(|batch| batch.byte_len()), Ok(20 + 2 + 4 + 2));
    }

    #[test]
    fn a_batch_that_is_cut_short_in_a_row_is_none() {
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
    fn keys_and_qualifiers_have_a_limit() {
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
