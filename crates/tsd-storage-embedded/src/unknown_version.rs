//! Finds files and lists of tables that another release has written.

use std::path::Path;

use tsd_storage::{StorageError, UnknownVersion};

use crate::{
    directories::{CELLS, POINTS},
    points_list, store_progress,
};

/// Finds the first file of another release in the directory of a store. Read-only.
///
/// # Errors
///
/// An error of the disk.
pub fn unknown_version(dir: &Path) -> Result<Option<UnknownVersion>, StorageError> {
    let (list, progress) = (points_list::list_file(dir), store_progress::progress_file(dir));
    let failed =
        |path: &Path, source| StorageError::io(format!("reading {}", path.display()), source);
    let found = list.unknown_version().map_err(|source| failed(list.path(), source))?;
    if found.is_some() {
        return Ok(found);
    }
    let found = progress.unknown_version().map_err(|source| failed(progress.path(), source))?;
    if found.is_some() {
        return Ok(found);
    }
    match tsd_storage_lsm::unknown_version(&dir.join(CELLS))? {
        None => tsd_storage_parts::unknown_version(&dir.join(POINTS)),
        unknown => Ok(unknown),
    }
}
