//! Maps errors of the tree to errors of the store.

use std::sync::Arc;

use tsd_storage::{StorageError, Table};

/// Classifies an error of a tree; `doing` is the operation, such as "reading".
pub(crate) fn tree_error(doing: &str, table: &Table, error: lsm_tree::Error) -> StorageError {
    match error {
        lsm_tree::Error::Io(source) => StorageError::io(format!("{doing} table {table}"), source),
        error => {
            StorageError::Damaged(Arc::from(format!("{doing} table {table}: {}", describe(&error))))
        }
    }
}

/// An error of a tree in words.
pub(crate) fn describe(error: &lsm_tree::Error) -> String {
    match error {
        lsm_tree::Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "the file is missing".to_owned()
        }
        lsm_tree::Error::Io(error) => error.to_string(),
        lsm_tree::Error::ChecksumMismatch { .. } => "wrong checksum of a block".to_owned(),
        lsm_tree::Error::Decompress(_) => "a block that cannot be decompressed".to_owned(),
        lsm_tree::Error::InvalidHeader(_) => "invalid header of a block".to_owned(),
        error => format!("{error:?}"),
    }
}

/// The error of an entry that cannot be decoded.
pub(crate) fn damaged(table: &Table, what: impl std::fmt::Display) -> StorageError {
    StorageError::Damaged(Arc::from(format!("an entry of table {table}: {what}")))
}
