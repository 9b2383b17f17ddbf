//! Row compaction in a backend that nobody else writes: what of it still holds when it is committed.
//!
//! A plan was made of a row as it was read. Points of the row may have been put again since, and
//! were acknowledged, or deleted: then the plan is void, and whoever made it has to read again. Only
//! the committer knows the order of all changes, so it decides; what is in the log was decided.

use bytes::Bytes;
use tsd_storage::{CellBatch, ReplacedColumn, StorageError};

use crate::{
    change::Change,
    memtable::{ColumnState, TableId, View},
    overlay::RowLogs,
    request::{Decision, Outcome},
};

/// A row compaction that waits for its decision.
#[derive(Debug)]
pub(crate) struct Rewrite {
    pub(crate) row: Bytes,
    /// The compacted cell, or nothing.
    pub(crate) put: CellBatch,
    pub(crate) replaced: Vec<Replaced>,
    /// Generations that had left when the backend was asked. What it said holds until the next one
    /// leaves.
    pub(crate) retired: u64,
}

/// A column that is to go, if it is as it was read.
#[derive(Debug)]
pub(crate) struct Replaced {
    pub(crate) column: ReplacedColumn,
    /// Time of the backend's cell; `None` where it has none, or was not asked.
    pub(crate) below: Option<Below>,
}

/// What the backend has of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    Absent,
    WrittenAt(i64),
}

impl Rewrite {
    pub(crate) fn byte_len(&self) -> usize {
        let columns = self.replaced.iter().map(|old| old.column.qualifier.len() + 16);
        self.row.len() + self.put.byte_len() + columns.sum::<usize>()
    }

    /// Whether the memtable knows all columns that are to go, so that the backend need not be asked.
    pub(crate) fn is_known(&self, view: &View, id: TableId) -> bool {
        let logs = RowLogs::new(view.logs(id, &self.row));
        let state = logs.state();
        state.delete_row.is_some()
            || self
                .replaced
                .iter()
                .all(|old| state.column(old.column.family, &old.column.qualifier).is_some())
    }

    /// Decides whether the plan holds. Nothing of the group that is being made touches the row.
    pub(crate) fn decide(self, view: &View, id: TableId, now_ms: i64) -> Decision {
        let Self { row, put, replaced, retired } = self;
        let logs = RowLogs::new(view.logs(id, &row));
        let state = logs.state();
        let is_current = retired == view.retired;
        let mut delete = Vec::new();
        for Replaced { column, below } in replaced {
            let held = state.column(column.family, &column.qualifier);
            let present = match held.map(ColumnState::cell) {
                Some(cell) => cell.map(|(_, at)| at),
                None if state.delete_row.is_some() => None,
                None => match below.filter(|_| is_current) {
                    Some(Below::WrittenAt(at)) => Some(at),
                    Some(Below::Absent) => None,
                    None => return Decision::Nothing(Outcome::ReadAgain),
                },
            };
            if present != Some(column.timestamp_ms) {
                return Decision::Refused(StorageError::Changed);
            }
            // Put first, then delete: a column that is put is as new as that.
            let put_ms = put_time(&put, &column, now_ms);
            if put_ms.is_none_or(|put_ms| put_ms <= column.timestamp_ms) {
                delete.push((column.family, column.qualifier));
            }
        }
        if put.is_empty() && delete.is_empty() {
            return Decision::Nothing(Outcome::Done);
        }
        Decision::Change(Change::Rewrite { row, put, delete }, Outcome::Done)
    }
}

/// Time of the cell that is put to that column, if it is.
fn put_time(put: &CellBatch, column: &ReplacedColumn, now_ms: i64) -> Option<i64> {
    let cell = put.rows().flat_map(|row| row.cells()).next()?;
    let is_it = cell.family == column.family && cell.qualifier == column.qualifier;
    is_it.then(|| cell.timestamp_ms.unwrap_or(now_ms))
}
