//! Files of both kinds of tables, and lists of them, that another release has written.

use std::path::Path;

use tsd_storage::{StorageError, UnknownVersion};

use crate::{
    directories::{CELLS, POINTS},
    points_list,
};

/// The first file of another release in the directory of a store; `None` if there is none. Changes nothing.
///
/// # Errors
///
/// An error of the disk.
pub fn unknown_version(dir: &Path) -> Result<Option<UnknownVersion>, StorageError> {
    let list = points_list::list_file(dir);
    let failed = |source| StorageError::io(format!("reading {}", list.path().display()), source);
    if let Some(unknown) = list.unknown_version().map_err(failed)? {
        return Ok(Some(unknown));
    }
    match tsd_storage_lsm::unknown_version(&dir.join(CELLS))? {
        None => tsd_storage_parts::unknown_version(&dir.join(POINTS)),
        unknown => Ok(unknown),
    }
}
