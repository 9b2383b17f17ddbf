//! Rows that are acknowledged by a log and not in its backend yet, for readers in other processes.
//!
//! Such a reader lays them over the backend's rows: of two cells of a column the later one is visible, and a
//! delete hides what is at most as old as itself.

use std::fmt;

use bytes::Bytes;
use tsd_model::Family;

use crate::{RowFilter, table::Table};

/// Keys from `start` up to `stop` (empty: no bound).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// The key after the last one; empty: no bound.
    pub stop: Bytes,
}

impl KeyRange {
    /// True if it has the key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && (self.stop.is_empty() || *key < *self.stop)
    }
}

/// What is held of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeldRow {
    /// The key.
    pub key: Bytes,
    /// Time of a deletion of the row, epoch milliseconds: all cells up to then are deleted.
    pub delete_row_ms: Option<i64>,
    /// The last change of each column that has one, by family, then qualifier; later than the deletion.
    pub columns: Vec<HeldColumn>,
}

/// The last change of a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldColumn {
    /// Column family.
    pub family: Family,
    /// Column qualifier.
    pub qualifier: Bytes,
    /// The value; `None`: the column is deleted.
    pub value: Option<Bytes>,
    /// Time of the cell, or up to which cells are deleted, epoch milliseconds.
    pub timestamp_ms: i64,
}

impl HeldRow {
    /// Bytes of key, qualifiers and values, with something for what each column takes besides.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        const EACH: usize = 16;
        let of_column = |column: &HeldColumn| {
            EACH + column.qualifier.len() + column.value.as_ref().map_or(0, Bytes::len)
        };
        EACH + self.key.len() + self.columns.iter().map(of_column).sum::<usize>()
    }
}

/// Rows in the order of their ranges and keys, some hundred at a time, of about a megabyte at most or one row; none
/// after many that do not match. It reads memory, and blocks briefly.
pub type HeldRowBatches = Box<dyn Iterator<Item = Vec<HeldRow>> + Send>;

/// Reads held rows.
pub trait HeldRowReader: fmt::Debug + Send + Sync {
    /// The held rows of ranges of a table that match. What is held when this is called is in the batches, also if
    /// it is flushed meanwhile; later changes may be.
    fn held_rows(
        &self,
        table: &Table,
        ranges: Vec<KeyRange>,
        filter: Option<RowFilter>,
    ) -> HeldRowBatches;
}
