//! Combines the verifications of both kinds of tables.

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

/// The verifiers of the parts and of the trees.
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
            // Names begin with the name of the table, which is of one kind.
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

/// Verifies the store in a directory that no process has open. Read-only. `data` is the table of the points of
/// all series. The caller has checked for files of another release, which look damaged
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

/// Rebuilds the manifest of a table of points from its files, in the directory of a store that no process has
/// open. Does nothing if a copy of the manifest is readable.
///
/// # Errors
///
/// [`StorageError::Damaged`] if the files are ambiguous, with the reason and without changes; or an error of
/// the disk.
pub fn rebuild_manifest(dir: &Path, table: &Table) -> Result<(), StorageError> {
    tsd_storage_parts::rebuild_manifest(&dir.join(POINTS), table)?;
    // The table begins again with the first number.
    store_progress::forget(dir, table)
}

/// Accepts that a table of points is missing, in the directory of a store that no process has open, so that the
/// next start creates it. Does nothing if the table exists.
///
/// # Errors
///
/// An error of the disk.
pub fn forget_table(dir: &Path, table: &Table) -> Result<(), StorageError> {
    points_list::forget(dir, table)
}

/// Path of the file with the mark of the log in front of the store in a directory.
#[must_use]
pub fn log_mark_file(dir: &Path) -> PathBuf {
    tsd_storage_lsm::log_mark_file(&dir.join(CELLS))
}

/// The mark of the log in front of the store in a directory.
///
/// # Errors
///
/// An error of the disk.
pub fn recorded_log_mark(dir: &Path) -> Result<LogMark, StorageError> {
    tsd_storage_lsm::recorded_log_mark(&dir.join(CELLS))
}
