//! The verifications of both kinds of tables as one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tsd_model::TableSchema;
use tsd_storage::{LogMark, RepairAction, StorageError, Table, Verifier, VerifyRun};

use crate::{
    directories::{CELLS, POINTS},
    points_list, store_progress,
};

/// That of the parts and that of the trees.
#[derive(Debug)]
pub(crate) struct BothVerifiers {
    pub(crate) points: Arc<dyn Verifier>,
    pub(crate) cells: Arc<dyn Verifier>,
}

impl Verifier for BothVerifiers {
    fn verify(&self, run: &VerifyRun) -> Result<(), StorageError> {
        self.cells.verify(run)?;
        self.points.verify(run)
    }

    fn repair(&self, action: &RepairAction) -> Result<(), StorageError> {
        match action {
            // Names begin with that of the table, which is of one kind.
            RepairAction::AcceptLoss { .. } => {
                self.points.repair(action)?;
                self.cells.repair(action)
            }
            RepairAction::RewriteManifest { .. } => match self.points.repair(action) {
                Err(StorageError::NoSuchTable(_)) => self.cells.repair(action),
                done => done,
            },
            RepairAction::SalvageFile { .. } => self.cells.repair(action),
            _ => self.points.repair(action),
        }
    }
}

/// Verifies the store in a directory that no process has open, and changes nothing. `data` is the table of
/// the points of all series. Files of another release, which look damaged, must have been looked for
/// ([`unknown_version`](crate::unknown_version())).
///
/// # Errors
///
/// An error of the disk, files of another version, or [`StorageError::Closed`] if the run was stopped.
pub fn verify_directory(
    dir: &Path,
    data: &Table,
    schema: TableSchema,
    run: &VerifyRun,
) -> Result<(), StorageError> {
    points_list::verify(dir, run)?;
    store_progress::verify(dir, run)?;
    tsd_storage_lsm::verify_directory(&dir.join(CELLS), run)?;
    tsd_storage_parts::verify_directory(&dir.join(POINTS), data, schema, run)
}

/// Makes the manifest of a table of points, of which no copy can be read, from its files, in the directory of a
/// store that no process has open. Does nothing if a copy can be read.
///
/// # Errors
///
/// [`StorageError::Damaged`] says why the files leave a doubt; nothing was changed then. An error of the disk.
pub fn rebuild_manifest(dir: &Path, table: &Table) -> Result<(), StorageError> {
    tsd_storage_parts::rebuild_manifest(&dir.join(POINTS), table)?;
    // It has begun again with the first number.
    store_progress::forget(dir, table)
}

/// Accepts that a table of points is missing, in the directory of a store that no process has open: the next
/// start creates it. Does nothing if it is there.
///
/// # Errors
///
/// An error of the disk.
pub fn forget_table(dir: &Path, table: &Table) -> Result<(), StorageError> {
    points_list::forget(dir, table)
}

/// Path of the file with what the log in front of the store in a directory has recorded.
#[must_use]
pub fn log_mark_file(dir: &Path) -> PathBuf {
    tsd_storage_lsm::log_mark_file(&dir.join(CELLS))
}

/// What the log in front of the store in a directory has recorded.
///
/// # Errors
///
/// An error of the disk.
pub fn recorded_log_mark(dir: &Path) -> Result<LogMark, StorageError> {
    tsd_storage_lsm::recorded_log_mark(&dir.join(CELLS))
}
