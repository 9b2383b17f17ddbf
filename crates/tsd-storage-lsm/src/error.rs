//! Maps errors of the tree to errors of the store.

use std::sync::Arc;

use tsd_model::PackedRunError;
use tsd_storage::{StorageError, Table};

/// Classifies an error of a tree; `doing` is the operation, such as "reading".
pub(crate) fn tree_error(doing: &str, table: &Table, error: lsm_tree::Error) -> StorageError {
    match error {
        lsm_tree::Error::Io(source) => StorageError::io(format!("{doing} table {table}"), source),
        lsm_tree::Error::ChecksumMismatch { .. }
        | lsm_tree::Error::Decompress(_)
        | lsm_tree::Error::InvalidTag(_)
        | lsm_tree::Error::InvalidTrailer
        | lsm_tree::Error::InvalidHeader(_)
        | lsm_tree::Error::Unrecoverable => {
            StorageError::Damaged(Arc::from(format!("{doing} table {table}: {error:?}")))
        }
        other => StorageError::Backend(Arc::from(format!("{doing} table {table}: {other:?}"))),
    }
}

/// The error of an entry that cannot be decoded.
pub(crate) fn damaged(table: &Table, what: impl std::fmt::Display) -> StorageError {
    StorageError::Damaged(Arc::from(format!("an entry of table {table}: {what}")))
}

/// The error of a packed run that cannot be decoded.
pub(crate) fn damaged_run(table: &Table) -> impl Fn(PackedRunError) -> StorageError {
    move |error| damaged(table, error)
}
