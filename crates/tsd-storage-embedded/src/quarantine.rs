//! Combines the quarantines of both kinds of tables.

use std::sync::Arc;

use tsd_storage::{Quarantine, QuarantinedFile, StorageError, Table};

/// The quarantines of the parts and of the trees, with their directories.
#[derive(Debug)]
pub(crate) struct BothQuarantines {
    pub(crate) points: Arc<dyn Quarantine>,
    pub(crate) cells: Arc<dyn Quarantine>,
}

impl Quarantine for BothQuarantines {
    fn files(&self) -> Vec<QuarantinedFile> {
        let mut files = self.points.files();
        files.extend(self.cells.files());
        files
    }

    fn accept(&self, name: &str) -> Result<bool, StorageError> {
        // Names begin with the name of the table, which is of one kind.
        Ok(self.points.accept(name)? || self.cells.accept(name)?)
    }

    fn has_unchecked_loss(&self, table: &Table) -> bool {
        self.points.has_unchecked_loss(table) || self.cells.has_unchecked_loss(table)
    }

    fn loss_checked(&self, table: &Table) -> Result<(), StorageError> {
        self.points.loss_checked(table)?;
        self.cells.loss_checked(table)
    }

    fn note_loss(&self) -> Result<(), StorageError> {
        self.points.note_loss()?;
        self.cells.note_loss()
    }
}
