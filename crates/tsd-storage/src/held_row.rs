//! Rows that a log has acknowledged and not flushed yet, for readers in other processes.
//!
//! Such a reader merges them with the backend's rows: of two cells of a column the later cell is visible, and a
//! delete hides cells up to its own time.

use std::fmt;

use bytes::Bytes;
use tsd_model::Family;

use crate::{RowFilter, table::Table};

/// Keys from `start` up to `stop` (empty: no bound).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// The key after the last key; empty: no bound.
    pub stop: Bytes,
}

impl KeyRange {
    /// True if the range contains the key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && (self.stop.is_empty() || *key < *self.stop)
    }
}

/// The held changes of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeldRow {
    /// The key.
    pub key: Bytes,
    /// Time of a deletion of the row, epoch milliseconds: all cells up to then are deleted.
    pub delete_row_ms: Option<i64>,
    /// The last change of each changed column, by family, then qualifier; later than the deletion.
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
    /// Approximate bytes of key, qualifiers and values, with an overhead for each column.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        const EACH: usize = 16;
        let of_column = |column: &HeldColumn| {
            EACH + column.qualifier.len() + column.value.as_ref().map_or(0, Bytes::len)
        };
        EACH + self.key.len() + self.columns.iter().map(of_column).sum::<usize>()
    }
}

/// Rows in the order of their ranges and keys, in batches of some hundred rows or about a megabyte. A batch may be
/// empty after many rows that do not match. Reads memory, and blocks briefly.
pub type HeldRowBatches = Box<dyn Iterator<Item = Vec<HeldRow>> + Send>;

/// Reads held rows.
pub trait HeldRowReader: fmt::Debug + Send + Sync {
    /// The matching held rows of ranges of a table. The batches have all rows that are held at the call, also if
    /// they are flushed meanwhile, and possibly later changes.
    fn held_rows(
        &self,
        table: &Table,
        ranges: Vec<KeyRange>,
        filter: Option<RowFilter>,
    ) -> HeldRowBatches;
}
