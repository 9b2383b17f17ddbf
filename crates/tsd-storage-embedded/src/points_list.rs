//! Lists the tables of points, so that the next start notices a removed directory.
//!
//! Without the list, a missing table or directory of points would look like one that was not created yet. The
//! list is in the directory of the store; `tsd-storage-lsm` lists the small tables. Directories of earlier
//! releases and restored snapshots lack a list; the first start writes it.

use std::{fs::File, path::Path};

use tsd_storage::{RepairAction, StorageError, Table, VerifyFinding, VerifyRun};
use tsd_storage_lsm::TableListFile;

use crate::directories::{POINTS, POINTS_LIST};

const VERSION_LINE: &str = "saltern points 1";

/// The list of the store in a directory.
pub(crate) fn list_file(dir: &Path) -> TableListFile {
    TableListFile::new(dir.join(POINTS_LIST), VERSION_LINE)
}

/// Lists the tables of points of the store in a directory; empty for a missing store or a missing list.
///
/// # Errors
///
/// [`StorageError::UnknownVersion`] if another release wrote the list, or an error of the disk.
pub fn point_tables(dir: &Path) -> Result<Vec<Table>, StorageError> {
    Ok(list_file(dir).read()?.unwrap_or_default())
}

/// Lists the tables that were created and have lost all files.
fn missing_tables(dir: &Path) -> Result<Vec<Table>, StorageError> {
    let mut missing = list_file(dir).read()?.unwrap_or_default();
    let points = dir.join(POINTS);
    let mut failed = None;
    missing.retain(|table| match tsd_storage_parts::has_files(&points, table) {
        Ok(has_files) => !has_files,
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    failed.map_or(Ok(missing), Err)
}

/// Fails if a table is missing.
pub(crate) fn check(dir: &Path) -> Result<(), StorageError> {
    let Some(table) = missing_tables(dir)?.into_iter().next() else { return Ok(()) };
    let path = tsd_storage_parts::table_path(&dir.join(POINTS), &table);
    let text = format!(
        "table {table} was created, but nothing of it is in {}; restore it from a copy, or start without its \
         points after `tsdb verify --repair --yes`",
        path.display()
    );
    Err(StorageError::Damaged(text.into()))
}

/// Lists tables that were opened or created.
pub(crate) fn register(dir: &Path, tables: &[Table]) -> Result<(), StorageError> {
    let list = list_file(dir);
    let mut all = list.read_or_begin()?;
    let new: Vec<Table> = tables.iter().filter(|table| !all.contains(table)).cloned().collect();
    all.extend(new);
    // A listed table must survive a power cut.
    let points = dir.join(POINTS);
    let synced = File::open(&points).and_then(|points| points.sync_all());
    synced.map_err(|source| StorageError::io(format!("syncing {}", points.display()), source))?;
    list.write(&all)
}

/// Removes a missing table from the list, so that the next start creates it. Does nothing if the table
/// exists.
pub(crate) fn forget(dir: &Path, table: &Table) -> Result<(), StorageError> {
    if !missing_tables(dir)?.contains(table) {
        return Ok(());
    }
    let list = list_file(dir);
    let mut tables = list.read()?.unwrap_or_default();
    tables.retain(|listed| listed != table);
    list.write(&tables)
}

/// Reports missing tables and a damaged list.
pub(crate) fn verify(dir: &Path, run: &VerifyRun) -> Result<(), StorageError> {
    let list = list_file(dir);
    if list.read()?.is_none() {
        run.report(VerifyFinding {
            file: list.path().display().to_string(),
            what: "its checksum is wrong".to_owned(),
            cost: "nothing: the next start makes it again".to_owned(),
            action: Some(RepairAction::Reopen),
        });
    }
    for table in missing_tables(dir)? {
        let path = tsd_storage_parts::table_path(&dir.join(POINTS), &table);
        run.report(VerifyFinding {
            file: path.display().to_string(),
            what: "it is missing, or empty".to_owned(),
            cost: "all points of the table: the start is refused".to_owned(),
            action: Some(RepairAction::ForgetTable { table }),
        });
    }
    Ok(())
}
