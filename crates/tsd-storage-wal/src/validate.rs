//! Limits of row keys and qualifiers, checked before a write is queued.

use bytes::Bytes;
use tsd_model::Family;
use tsd_storage::{BatchError, Column, MAX_KEY_BYTES, StorageError};

pub(crate) fn check_row(row: &[u8]) -> Result<(), StorageError> {
    if row.is_empty() || row.len() > MAX_KEY_BYTES {
        return Err(BatchError::RowKey(row.len()).into());
    }
    Ok(())
}

pub(crate) fn check_columns(columns: &[(Family, Bytes)]) -> Result<(), StorageError> {
    columns.iter().try_for_each(|(_, qualifier)| check_qualifier(qualifier))
}

pub(crate) fn check_column(column: &Column) -> Result<(), StorageError> {
    check_row(&column.row)?;
    check_qualifier(&column.qualifier)
}

pub(crate) fn check_qualifier(qualifier: &[u8]) -> Result<(), StorageError> {
    if qualifier.len() > MAX_KEY_BYTES {
        return Err(BatchError::CellSize { qualifier: qualifier.len(), value: 0 }.into());
    }
    Ok(())
}
