//! Tables whose rows cannot be flushed, each with its last error.

use std::collections::BTreeMap;

use tsd_storage::{StorageError, Table};

/// Each table has a state of its own: the flush of one says nothing about another.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlushFailures(BTreeMap<Table, StorageError>);

impl FlushFailures {
    pub(crate) fn add(&mut self, table: &Table, error: StorageError) {
        self.0.insert(table.clone(), error);
    }

    /// Returns true if the table was one of them.
    pub(crate) fn remove(&mut self, table: &Table) -> bool {
        self.0.remove(table).is_some()
    }

    pub(crate) fn first(&self) -> Option<&StorageError> {
        self.0.values().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Table, &StorageError)> {
        self.0.iter()
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        self.0.values().any(|error| matches!(error, StorageError::DiskFull))
    }
}
