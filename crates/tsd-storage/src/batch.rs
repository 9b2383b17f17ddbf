//! Cells on their way into a store, many in one buffer.
//!
//! A batch is laid out once, by whoever makes the cells, and travels as bytes from there to the
//! log: no allocation a cell, and the write-ahead log writes the buffer as it stands.
//!
//! ```text
//! batch  = row *
//! row    = key length u16 | cell bytes u32 | key | cell *      (big-endian)
//! cell   = family u8 | flags u8 | qualifier length u16 | value length u32
//!          | timestamp i64, only with flag 01 | qualifier | value
//! ```

use tsd_model::Family;

/// Longest row key and longest qualifier, in bytes (HBase's limit for rows).
pub const MAX_KEY_BYTES: usize = 32_767;

const ROW_HEAD: usize = 6;
const CELL_HEAD: usize = 8;
const EXPLICIT_TIMESTAMP: u8 = 1;

/// Puts (or appends) of cells into one table, in order.
#[derive(Clone, Debug, Default)]
pub struct CellBatch {
    buf: Vec<u8>,
    cells: usize,
    rows: usize,
    open_row: Option<usize>,
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
        Self { buf: Vec::new(), cells: 0, rows: 0, open_row: None }
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
        self.open_row = Some(self.buf.len());
        self.rows += 1;
        self.buf.extend_from_slice(&(key.len() as u16).to_be_bytes());
        self.buf.extend_from_slice(&[0; 4]);
        self.buf.extend_from_slice(key);
        Ok(())
    }

    /// Adds a cell to the row begun last.
    #[inline]
    pub fn push(&mut self, cell: CellRef<'_>) -> Result<(), BatchError> {
        let at = self.open_row.ok_or(BatchError::NoRow)?;
        let (qualifier, value) = (cell.qualifier.len(), cell.value.len());
        if qualifier > MAX_KEY_BYTES || u32::try_from(value).is_err() {
            return Err(BatchError::CellSize { qualifier, value });
        }
        let mut head = [0_u8; CELL_HEAD];
        let [q0, q1] = (qualifier as u16).to_be_bytes();
        let [v0, v1, v2, v3] = (value as u32).to_be_bytes();
        head.copy_from_slice(&[
            cell.family as u8,
            u8::from(cell.timestamp_ms.is_some()),
            q0,
            q1,
            v0,
            v1,
            v2,
            v3,
        ]);
        let before = self.buf.len();
        self.buf.extend_from_slice(&head);
        if let Some(ts) = cell.timestamp_ms {
            self.buf.extend_from_slice(&ts.to_be_bytes());
        }
        self.buf.extend_from_slice(cell.qualifier);
        self.buf.extend_from_slice(cell.value);
        let grown = (self.buf.len() - before) as u32;
        if let Some(len) =
            self.buf.get_mut(at + 2..at + 6).and_then(|s| <&mut [u8; 4]>::try_from(s).ok())
        {
            *len = (u32::from_be_bytes(*len) + grown).to_be_bytes();
        }
        self.cells += 1;
        Ok(())
    }

    /// Appends all rows of another batch.
    pub fn extend(&mut self, other: &Self) {
        self.buf.extend_from_slice(&other.buf);
        self.cells += other.cells;
        self.rows += other.rows;
        self.open_row = None;
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
        self.open_row = None;
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
            let row = row?;
            rows += 1;
            let mut walk = Cells { rest: row.cells };
            for _ in walk.by_ref() {
                cells += 1;
            }
            if !walk.rest.is_empty() {
                return Err(BatchError::Damaged(0));
            }
        }
        Ok(Self { buf, cells, rows, open_row: None })
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
        let row = (|| {
            let (head, rest) = self.rest.split_first_chunk::<ROW_HEAD>()?;
            let [k0, k1, c0, c1, c2, c3] = *head;
            let (key, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([k0, k1])))?;
            let (cells, rest) =
                rest.split_at_checked(u32::from_be_bytes([c0, c1, c2, c3]) as usize)?;
            self.at += ROW_HEAD + key.len() + cells.len();
            self.rest = rest;
            (!key.is_empty()).then_some(RowRef { key, cells })
        })();
        Some(row.ok_or_else(|| {
            self.rest = &[];
            BatchError::Damaged(self.at)
        }))
    }
}

struct Cells<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Cells<'a> {
    type Item = CellRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.rest.split_first_chunk::<CELL_HEAD>()?;
        let [family, flags, q0, q1, v0, v1, v2, v3] = *head;
        let family = match family {
            0 => Family::Id,
            1 => Family::Name,
            2 => Family::T,
            _ => return None,
        };
        let (timestamp_ms, rest) = match flags {
            0 => (None, rest),
            EXPLICIT_TIMESTAMP => {
                let (ts, rest) = rest.split_first_chunk::<8>()?;
                (Some(i64::from_be_bytes(*ts)), rest)
            }
            _ => return None,
        };
        let (qualifier, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([q0, q1])))?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes([v0, v1, v2, v3]) as usize)?;
        self.rest = rest;
        Some(CellRef { family, qualifier, value, timestamp_ms })
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
        let bytes = |min| prop::collection::vec(any::<u8>(), min..20);
        let cell = (0..3_u8, bytes(0), bytes(0), any::<Option<i64>>());
        prop::collection::vec((bytes(1), prop::collection::vec(cell, 0..5)), 0..5)
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
