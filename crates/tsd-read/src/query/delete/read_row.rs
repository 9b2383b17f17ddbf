//! A row that a delete by query has read, with the cells to delete.

use bytes::Bytes;
use tsd_model::{Cell, Value};
use tsd_storage::Table;

/// The cells of a row to delete.
#[derive(Debug)]
pub(crate) struct ReadRow {
    pub(crate) table: Table,
    pub(crate) key: Bytes,
    /// Offsets of the points in milliseconds, with the bits of their values; sorted.
    pub(crate) points: Vec<(u32, u64)>,
    /// Qualifiers and timestamps of the other cells, rolled-up values and histograms.
    pub(crate) cells: Vec<(Bytes, i64)>,
    /// True if some points of the row are outside of the query range.
    pub(crate) is_cut: bool,
}

impl ReadRow {
    /// Joins rows that several sub queries have read.
    pub(super) fn merged(mut rows: Vec<Self>) -> Vec<Self> {
        rows.sort_unstable_by(|a, b| (&a.table, &a.key).cmp(&(&b.table, &b.key)));
        rows.dedup_by(|from, to| {
            let is_same = from.table == to.table && from.key == to.key;
            if is_same {
                to.points.append(&mut from.points);
                to.points.sort_unstable();
                to.points.dedup();
                to.cells.append(&mut from.cells);
                to.cells.sort_unstable();
                to.cells.dedup();
                to.is_cut |= from.is_cut;
            }
            is_same
        });
        rows
    }

    /// Number of points, rolled-up values and histograms.
    pub(crate) const fn len(&self) -> usize {
        self.points.len() + self.cells.len()
    }

    /// True if a point was read at this offset, with this value if one is given.
    pub(super) fn has(&self, offset_ms: u32, value: Option<Value>) -> bool {
        let bits = |value| match value {
            Value::Integer(value) => value as u64,
            Value::Float(value) => f64::to_bits(value),
        };
        let from = self.points.partition_point(|(at, _)| *at < offset_ms);
        let read = self.points.get(from..).unwrap_or_default().iter();
        read.take_while(|(at, _)| *at == offset_ms)
            .any(|(_, read)| value.is_none_or(|value| bits(value) == *read))
    }

    /// True if this cell was read and was not written since.
    pub(super) fn has_cell(&self, cell: &Cell) -> bool {
        let mut read = self.cells.iter();
        read.any(|(qualifier, at_ms)| *qualifier == cell.qualifier && *at_ms == cell.timestamp_ms)
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let qualifiers = self.cells.iter().map(|(qualifier, _)| qualifier.len()).sum::<usize>();
        size_of::<Self>()
            + self.key.len()
            + self.points.capacity() * size_of::<(u32, u64)>()
            + self.cells.capacity() * size_of::<(Bytes, i64)>()
            + qualifiers
    }
}
