//! Finds files of tables that another release has written.
//!
//! This runs before any table is opened, because an open writes manifests, removes unlisted files and quarantines
//! damaged ones.

use std::{fs, io, path::Path, sync::Arc};

use tsd_files::{DiskDir, DiskSpace, StoreDir};
use tsd_storage::{StorageError, Table, UnknownVersion};

use crate::{
    error::PartError, manifest::read_copies, part::Part, resources::PartResources,
    retention::unknown_record, series::unknown_index, storage::SERIES_DIRECTORY,
};

/// Maximum number of open files.
const OPEN_FILES: usize = 4;

/// The first file of another release in the directory of a store: retention record, series index, manifest, or a
/// part that a manifest lists. `None` without such a file. Changes nothing.
///
/// # Errors
///
/// An error of the disk.
pub fn unknown_version(path: &Path) -> Result<Option<UnknownVersion>, StorageError> {
    let failed = |source| StorageError::io(format!("reading {}", path.display()), source);
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(failed)?,
    };
    let mut names: Vec<String> = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    names.sort();
    let open = |path: &Path| {
        let dir = DiskDir::unlocked(path).map_err(failed)?;
        Ok::<_, StorageError>(Arc::new(dir) as Arc<dyn StoreDir>)
    };
    if let Some(unknown) = unknown_record(&*open(path)?).map_err(failed)? {
        return Ok(Some(unknown));
    }
    // No space and no cache, because the search writes nothing and reads each block once.
    let space = Arc::new(DiskSpace::new(path, 0));
    let resources = Arc::new(PartResources::new(0, OPEN_FILES, space));
    for name in names {
        let unknown = if name == SERIES_DIRECTORY {
            unknown_index(&*open(&path.join(name))?).map_err(failed)?
        } else if Table::of_file_name(&name).is_some() {
            in_table(&open(&path.join(name))?, &resources)?
        } else {
            None
        };
        if unknown.is_some() {
            return Ok(unknown);
        }
    }
    Ok(None)
}

fn in_table(
    dir: &Arc<dyn StoreDir>,
    resources: &Arc<PartResources>,
) -> Result<Option<UnknownVersion>, PartError> {
    let state = match read_copies(&**dir) {
        Ok(Some(read)) => read.newest,
        Ok(None) => None,
        Err(PartError::UnknownVersion(unknown)) => return Ok(Some(unknown)),
        Err(error) => return Err(error),
    };
    // An unlisted file remains from an interrupted write.
    for file in state.iter().flat_map(|(_, state)| state.files.values()) {
        if let Err(PartError::UnknownVersion(unknown)) =
            Part::open(dir, resources, file.number, Some(file))
        {
            return Ok(Some(unknown));
        }
    }
    Ok(None)
}
