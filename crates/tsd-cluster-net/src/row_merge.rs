//! Merges held rows of several nodes, and lays them over the rows of the store.
//!
//! The commit time decides: the newest cell of a column wins, and a delete hides all cells that are not
//! newer. On a tie the delete wins, then the greater value, so that every node reads the same.

use std::cmp::Ordering;

use bytes::Bytes;
use tsd_model::{Cell, Family, Row};
use tsd_storage::{HeldColumn, HeldRow, StorageError};

fn cmp_column(column: &HeldColumn, family: Family, qualifier: &[u8]) -> Ordering {
    column.family.cmp(&family).then_with(|| (*column.qualifier).cmp(qualifier))
}

/// Sort key of the changes of a column: a read returns the greatest.
fn precedence(column: &HeldColumn) -> (i64, bool, Option<&Bytes>) {
    (column.timestamp_ms, column.value.is_none(), column.value.as_ref())
}

/// Sorts rows of several nodes by key, and merges rows with the same key.
pub(crate) fn merge_rows(rows: &mut Vec<HeldRow>) {
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows.dedup_by(|later, kept| {
        let is_same = later.key == kept.key;
        if is_same {
            merge(kept, std::mem::take(later));
        }
        is_same
    });
}

/// Merges another node's held changes of the same row into `row`.
pub(crate) fn merge(row: &mut HeldRow, other: HeldRow) {
    row.delete_row_ms = row.delete_row_ms.max(other.delete_row_ms);
    row.columns.extend(other.columns);
    if let Some(deleted_ms) = row.delete_row_ms {
        row.columns.retain(|column| column.timestamp_ms > deleted_ms);
    }
    row.columns.sort_by(|a, b| {
        let by_column = cmp_column(a, b.family, &b.qualifier);
        by_column.then_with(|| precedence(b).cmp(&precedence(a)))
    });
    row.columns.dedup_by(|later, kept| {
        cmp_column(kept, later.family, &later.qualifier) == Ordering::Equal
    });
}

/// Lays a held row over the stored row. `is_requested` selects the cells of the result. A held column hides
/// an older stored cell even if it is not requested at its time.
pub(crate) fn overlay(
    held: &HeldRow,
    stored: Option<Row>,
    is_requested: impl Fn(Family, &[u8], i64) -> bool,
) -> Result<Option<Row>, StorageError> {
    let mut stored = stored.map_or_else(|| Ok(Vec::new()), Row::into_cells)?;
    if let Some(deleted_ms) = held.delete_row_ms {
        stored.retain(|cell| cell.timestamp_ms > deleted_ms);
    }
    let mut cells = Vec::with_capacity(stored.len() + held.columns.len());
    let mut stored = stored.into_iter().peekable();
    for column in &held.columns {
        let order = |cell: &Cell| cmp_column(column, cell.family, &cell.qualifier);
        while let Some(cell) = stored.next_if(|cell| order(cell) == Ordering::Greater) {
            cells.push(cell);
        }
        let same = stored.next_if(|cell| order(cell) == Ordering::Equal);
        if let Some(cell) = same.filter(|cell| cell.timestamp_ms > column.timestamp_ms) {
            cells.push(cell);
        } else if is_requested(column.family, &column.qualifier, column.timestamp_ms) {
            cells.extend(cell_of(column));
        }
    }
    cells.extend(stored);
    Ok((!cells.is_empty()).then(|| Row::from_cells(held.key.clone(), cells)))
}

fn cell_of(column: &HeldColumn) -> Option<Cell> {
    Some(Cell {
        family: column.family,
        qualifier: column.qualifier.clone(),
        value: column.value.clone()?,
        timestamp_ms: column.timestamp_ms,
    })
}
