//! Checks that the files of an open store are still in their place.

use std::{io, path::Path};

use tsd_storage::StorageError;

use crate::{directory_lock::OpenedDirectory, store_dir::StoreDir};

/// Fails if a directory of an open store was removed or replaced, or lacks a file of the store. If the system does
/// not tell, the next write finds out.
///
/// # Errors
///
/// [`StorageError::Unavailable`] with the path: writes are rejected until it is back.
pub fn check_file(dir: &dyn StoreDir, name: &str) -> Result<(), StorageError> {
    check_place(dir)?;
    if matches!(dir.contains(name), Ok(false)) {
        return Err(removed_file(&dir.path().join(name)));
    }
    Ok(())
}

/// As [`check_file`], of the directory alone.
///
/// # Errors
///
/// As [`check_file`].
pub fn check_place(dir: &dyn StoreDir) -> Result<(), StorageError> {
    dir.check_place().or_else(|error| missing(&error))
}

/// As [`check_file`], of an open directory alone.
///
/// # Errors
///
/// As [`check_file`].
pub fn check_directory(directory: &OpenedDirectory) -> Result<(), StorageError> {
    directory.check().or_else(|error| missing(&error))
}

/// The error of a store that lacks a file.
#[must_use]
pub fn removed_file(path: &Path) -> StorageError {
    let path = path.display();
    let text = format!(
        "{path} was removed or replaced while the store is open; put it back, or stop this process"
    );
    StorageError::Unavailable(text.into())
}

fn missing(error: &io::Error) -> Result<(), StorageError> {
    if error.kind() == io::ErrorKind::NotFound {
        return Err(StorageError::Unavailable(error.to_string().into()));
    }
    Ok(())
}
