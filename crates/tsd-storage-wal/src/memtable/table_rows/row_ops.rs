//! Encodes the cells of a row as operations, and compacts operations.

use tsd_storage::{CellRef, RowRef};

use crate::memtable::{
    row_op::{RowOp, RowOpIter, encode_op},
    row_state::{ColumnState, RowState},
};

/// Encodes the cells of a row as operations at the end of `out`.
#[inline]
pub(super) fn encode_cells(row: RowRef<'_>, base_ms: i64, now_ms: i64, out: &mut Vec<u8>) {
    for cell in row.cells() {
        let CellRef { family, qualifier, value, timestamp_ms } = cell;
        let is_given = timestamp_ms.is_some();
        let timestamp_ms = timestamp_ms.unwrap_or(now_ms);
        encode_op(RowOp::Put { family, qualifier, value, timestamp_ms, is_given }, base_ms, out);
    }
}

/// The shortest operations with the same result, if they take at most half of the bytes.
pub(super) fn compact(ops: &[u8], base_ms: i64) -> Option<Vec<u8>> {
    // Most rows have their points in order, each once. This check needs no allocation.
    let column = |op| match op {
        RowOp::Put { family, qualifier, .. } | RowOp::DeleteColumn { family, qualifier, .. } => {
            Some((family, qualifier))
        }
        RowOp::DeleteRow { .. } => None,
    };
    if RowOpIter::new(ops, base_ms).map(column).is_sorted_by(|a, b| a < b) {
        return None;
    }
    let mut state = RowState::as_committed([(ops, base_ms)]);
    // Of two points of one instant, the last committed is the newest.
    state.columns.sort_unstable_by_key(|column| column.order);
    let mut out = Vec::with_capacity(ops.len() / 2);
    if let Some(timestamp_ms) = state.delete_row {
        encode_op(RowOp::DeleteRow { timestamp_ms }, base_ms, &mut out);
    }
    for column in &state.columns {
        let ColumnState { family, qualifier, value, timestamp_ms, is_given, .. } = *column;
        let op = match value {
            Some(value) => RowOp::Put { family, qualifier, value, timestamp_ms, is_given },
            None => RowOp::DeleteColumn { family, qualifier, timestamp_ms },
        };
        encode_op(op, base_ms, &mut out);
    }
    (out.len() <= ops.len() / 2).then_some(out)
}
