//! Rows to flush that own their bytes. For tests of flush targets.

use tsd_model::Family;

use crate::{FlushCell, FlushRow, FlushRows};

/// A cell: family, qualifier, value, cell timestamp (epoch milliseconds).
pub type OwnedFlushCell = (Family, Vec<u8>, Vec<u8>, i64);

/// A [`FlushRow`] that owns its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedFlushRow {
    /// See [`FlushRow::key`].
    pub key: Vec<u8>,
    /// See [`FlushRow::delete_row`].
    pub delete_row: Option<i64>,
    /// See [`FlushRow::deletes`].
    pub deletes: Vec<(Family, Vec<u8>, i64)>,
    /// See [`FlushRow::cells`].
    pub cells: Vec<OwnedFlushCell>,
}

struct OwnedFlushRows(std::vec::IntoIter<OwnedFlushRow>, OwnedFlushRow);

/// Cells to flush.
#[must_use]
pub fn flush_cells(cells: &[OwnedFlushCell]) -> Vec<FlushCell<'_>> {
    let cells = cells.iter().map(|(family, qualifier, value, timestamp_ms)| FlushCell {
        family: *family,
        qualifier,
        value,
        timestamp_ms: *timestamp_ms,
    });
    cells.collect()
}

impl OwnedFlushRow {
    /// The row to flush.
    #[must_use]
    pub(crate) fn to_flush_row(&self) -> FlushRow<'_> {
        FlushRow {
            key: &self.key,
            delete_row: self.delete_row,
            deletes: self.deletes.iter().map(|(f, q, at)| (*f, q.as_slice(), *at)).collect(),
            cells: flush_cells(&self.cells),
        }
    }

    /// Rows to flush, which must be in ascending key order.
    pub fn flush_rows(rows: impl IntoIterator<Item = Self>) -> Box<dyn FlushRows> {
        let rows: Vec<Self> = rows.into_iter().collect();
        Box::new(OwnedFlushRows(rows.into_iter(), Self::default()))
    }

    /// Copies of all rows of a flush.
    #[must_use]
    pub fn collect(mut rows: Box<dyn FlushRows>) -> Vec<Self> {
        let mut owned = Vec::new();
        while let Some(row) = rows.next_row() {
            let deletes = row.deletes.iter().map(|(f, q, at)| (*f, q.to_vec(), *at)).collect();
            let cells = row
                .cells
                .iter()
                .map(|c| (c.family, c.qualifier.to_vec(), c.value.to_vec(), c.timestamp_ms))
                .collect();
            let (key, delete_row) = (row.key.to_vec(), row.delete_row);
            owned.push(Self { key, delete_row, deletes, cells });
        }
        owned
    }
}

impl FlushRows for OwnedFlushRows {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.1 = self.0.next()?;
        Some(self.1.to_flush_row())
    }

    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {
        self.0.as_mut_slice().sort_by(|a, b| compare(&a.key, &b.key));
    }
}
