//! Writes without the write-ahead log: each is a small ingestion of its own.

use std::sync::MutexGuard;

use bytes::Bytes;
use tsd_storage::{Column, FlushRows, Get, ReadVersion, StorageError, direct_write::LockedTable};

use crate::{ingest::WriterState, read::CellSelection, table::TableStore};

/// A table and its writer.
pub(crate) struct LockedTree<'a> {
    table: &'a TableStore,
    writer: MutexGuard<'a, WriterState>,
}

impl TableStore {
    /// Locks the table for a single write.
    pub(crate) fn locked(&self) -> LockedTree<'_> {
        LockedTree { table: self, writer: self.writer() }
    }
}

impl LockedTable for LockedTree<'_> {
    fn value(&self, column: &Column) -> Result<Option<Bytes>, StorageError> {
        let get = Get::column(column.row.clone(), column.family, column.qualifier.clone());
        let row = self.table.read_row(&column.row, &CellSelection::of_get(&get))?;
        Ok(row.and_then(|row| row.cells.into_iter().next()).map(|cell| cell.value))
    }

    fn apply(&mut self, rows: &mut dyn FlushRows) -> Result<(), StorageError> {
        self.table.ingest(&mut self.writer, rows)
    }

    fn read_version(&self) -> ReadVersion {
        self.table.read_version()
    }
}
