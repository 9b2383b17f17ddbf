//! Files of both kinds of tables that another release has written.

use std::path::Path;

use tsd_storage::{StorageError, UnknownVersion};

use crate::directories::{CELLS, POINTS};

/// The first file of another release in the directory of a store; `None` if there is none. Changes nothing.
///
/// # Errors
///
/// An error of the disk.
pub fn unknown_version(dir: &Path) -> Result<Option<UnknownVersion>, StorageError> {
    match tsd_storage_lsm::unknown_version(&dir.join(CELLS))? {
        None => tsd_storage_parts::unknown_version(&dir.join(POINTS)),
        unknown => Ok(unknown),
    }
}
