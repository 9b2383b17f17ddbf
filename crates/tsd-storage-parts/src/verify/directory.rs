//! Verifies a directory that no process has open.

use std::{fs, path::Path, sync::Arc};

use tsd_files::{DiskDir, DiskSpace, StoreDir};
use tsd_model::TableSchema;
use tsd_series_index::SeriesIndex;
use tsd_storage::{StorageError, Table, VerifyRun};

use super::{TableCheck, planned_bytes};
use crate::{
    layout::PartLayout, manifest::read_copies, resources::PartResources, retention::verify_record,
    series::TableSeries, storage::SERIES_DIRECTORY,
};

/// Maximum number of open files.
const OPEN_FILES: usize = 4;

/// Verifies the tables in a directory without any change. The table `data` has a series index for keys of the
/// schema.
///
/// # Errors
///
/// An error of the disk, files of another version, or [`StorageError::Closed`] if the run was stopped.
pub fn verify_directory(
    path: &Path,
    data: &Table,
    schema: TableSchema,
    run: &VerifyRun,
) -> Result<(), StorageError> {
    let failed = |source| StorageError::io(format!("reading {}", path.display()), source);
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    let open = |name: &str| {
        let dir = DiskDir::unlocked(&path.join(name)).map_err(failed)?;
        Ok::<_, StorageError>(Arc::new(dir) as Arc<dyn StoreDir>)
    };
    // No space and no cache, because a verification writes nothing and reads each block once.
    let space = Arc::new(DiskSpace::new(path, 0));
    let resources = Arc::new(PartResources::new(0, OPEN_FILES, space));
    let mut names: Vec<String> = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    names.sort();
    let root = DiskDir::unlocked(path).map_err(failed)?;
    verify_record(&root, run).map_err(failed)?;
    let mut tables = Vec::new();
    for name in names {
        let Some(table) = Table::of_file_name(&name) else { continue };
        let dir = open(&name)?;
        let Some(read) = read_copies(&*dir)? else { continue };
        run.plan(read.newest.as_ref().map_or(0, |(_, state)| planned_bytes(state)));
        tables.push((table, dir, read));
    }
    for (table, dir, read) in &tables {
        let state = read.newest.as_ref();
        let layout = match state {
            Some((layout, _)) => *layout,
            None => PartLayout::try_new(&schema, PartLayout::DAY_SECS)?,
        };
        let mut check =
            TableCheck { table, dir, resources: &resources, layout, run, index: None, store: None };
        check.manifest(read, None);
        let Some((_, state)) = state else { continue };
        let has_rows = !state.sections.is_empty() || !state.quarantined.is_empty();
        let index: Option<(SeriesIndex, String)> = if table == data && has_rows {
            let directory = path.join(SERIES_DIRECTORY);
            // Opening the directory would create it.
            let read = if directory.exists() {
                TableSeries::read_file(&open(SERIES_DIRECTORY)?, table, schema)?
            } else {
                Err((directory.display().to_string(), "it is missing".to_owned()))
            };
            match read {
                Ok(found) => Some(found),
                Err((file, what)) => {
                    let cost = "queries scan until the next start has built it";
                    check.index_finding(file, what, cost);
                    None
                }
            }
        } else {
            None
        };
        check.index = index.as_ref().map(|(index, file)| (index, file.clone()));
        check.files(state)?;
    }
    Ok(())
}
