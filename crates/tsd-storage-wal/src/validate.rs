//! Checks limits of row keys, qualifiers and cells before a write is queued.

use tsd_storage::{BatchError, Delete, MAX_KEY_BYTES, StorageError, Swap, Write};

/// Bytes of a stored cell in addition to row key, qualifier and value (lengths, family, time and kind), rounded
/// up.
const CELL_OVERHEAD: usize = 32;

pub(crate) fn check_row(row: &[u8]) -> Result<(), StorageError> {
    if row.is_empty() || row.len() > MAX_KEY_BYTES {
        return Err(BatchError::RowKey(row.len()).into());
    }
    Ok(())
}

/// Checks the keys of a write, except of batches, which are valid, and of rewrites.
pub(crate) fn check_write(write: &Write) -> Result<(), StorageError> {
    match write {
        Write::Put(_) | Write::Append(_) | Write::Rewrite(_) => Ok(()),
        Write::Increment { column, .. } | Write::Swap(Swap { column, .. }) => {
            check_row(&column.row)?;
            check_qualifier(&column.qualifier)
        }
        Write::Delete(Delete::Row(row)) => check_row(row),
        Write::Delete(Delete::Columns { row, columns }) => {
            check_row(row)?;
            columns.iter().try_for_each(|(_, qualifier)| check_qualifier(qualifier))
        }
    }
}

pub(crate) fn check_qualifier(qualifier: &[u8]) -> Result<(), StorageError> {
    if qualifier.len() > MAX_KEY_BYTES {
        return Err(BatchError::CellSize { qualifier: qualifier.len(), value: 0 }.into());
    }
    Ok(())
}

/// Approximate length of a cell in the backend, rounded up.
pub(crate) const fn cell_len(row: &[u8], qualifier: &[u8], value: &[u8]) -> usize {
    CELL_OVERHEAD + row.len() + qualifier.len() + value.len()
}

/// Fails if a cell is longer than the backend's limit.
pub(crate) fn check_cell_len(length: usize, max: usize) -> Result<(), StorageError> {
    if length > max {
        let text = format!("a cell of {length} bytes is longer than the limit of {max} bytes");
        return Err(StorageError::Rejected(text.into()));
    }
    Ok(())
}
