//! Tracks tables whose rows cannot be flushed, each with its last error.

use std::collections::BTreeMap;

use tsd_storage::{StorageError, Table};

/// Last errors by table. A flush of one table does not change the state of another.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlushFailures(BTreeMap<Table, StorageError>);

impl FlushFailures {
    pub(crate) fn add(&mut self, table: &Table, error: StorageError) {
        self.0.insert(table.clone(), error);
    }

    /// Removes a table; returns true if it was present.
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
