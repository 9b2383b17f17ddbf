//! Pins the files of all tables at one moment, and verifies restored files.

use std::{fs, path::Path, sync::Arc};

use tsd_files::{DiskDir, DiskSpace, StoreDir};
use tsd_storage::{PinnedFiles, StorageError, Table};

use super::PartTables;
use crate::{error::PartError, resources::PartResources, store::verify_directory};

/// Small, because a check reads each block once.
const CACHE_BYTES: u64 = 1 << 20;

impl PartTables {
    /// Pins the files of all tables.
    pub(super) fn pin_tables(&self) -> PinnedFiles {
        let mut pinned = PinnedFiles::default();
        for (table, parts) in &self.tables {
            pinned.add(&table.file_name(), parts.store().pin_files());
        }
        // Pinned after the parts, because the floor is recorded before any older row is discarded.
        let record = self.keeper.as_ref().and_then(|keeper| keeper.pinned_record());
        pinned.files.extend(record);
        pinned
    }
}

/// Reads and decodes every live section of all tables in the directory of a store that is not open. `meter` gets
/// the number of bytes read since its last call, and ends the check with false.
///
/// # Errors
///
/// The error names the first file that is missing, damaged or of another version; [`StorageError::Closed`] if the
/// meter ended the check.
pub fn verify_tables(dir: &Path, meter: &mut dyn FnMut(u64) -> bool) -> Result<(), StorageError> {
    let failed = |source| StorageError::io(format!("reading {}", dir.display()), source);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    let space = Arc::new(DiskSpace::new(dir.to_owned(), 0));
    let resources = Arc::new(PartResources::new(CACHE_BYTES, 1, space));
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if name.to_str().and_then(Table::of_file_name).is_none() {
            continue;
        }
        let table: Arc<dyn StoreDir> =
            Arc::new(DiskDir::unlocked(&dir.join(&name)).map_err(failed)?);
        let mut checkpoint = |bytes| if meter(bytes) { Ok(()) } else { Err(PartError::Stopped) };
        verify_directory(&table, &resources, &mut checkpoint)?;
    }
    Ok(())
}
