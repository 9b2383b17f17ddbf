//! Executes calls of the storage traits on one table.

use parking_lot::MutexGuard;
use std::sync::Arc;

use bytes::Bytes;
use lsm_tree::AbstractTree;
use tsd_model::Row;
use tsd_storage::{
    BatchReader, Column, DirectTable, FlushRows, Get, ReadVersion, Scan, StorageError,
    direct_write::LockedTable,
};

use crate::{read::CellSelection, scanner::ScanJob, table::TableStore};

/// A table and its writer.
struct LockedTree<'a> {
    table: &'a TableStore,
    writer: MutexGuard<'a, ()>,
}

impl DirectTable for TableStore {
    fn read_rows(&self, gets: &[Get]) -> Result<Vec<Option<Row>>, StorageError> {
        gets.iter().map(|get| self.read_row(&get.row, &CellSelection::of_get(get))).collect()
    }

    fn scan(self: Arc<Self>, scan: Scan) -> Box<dyn BatchReader> {
        Box::new(ScanJob::new(self, scan))
    }

    // Runs before the writer's lock is taken, since a repair by the compactor needs that lock.
    fn before_write(&self) -> Result<(), StorageError> {
        let l0_runs = || self.tree().l0_run_count();
        let stalled = self.signal().stall_on_l0(&self.name, l0_runs, &self.metrics.stalls);
        stalled.inspect_err(|_| self.metrics.ingest_errors.increment(1))
    }

    fn lock(&self) -> Box<dyn LockedTable + '_> {
        Box::new(LockedTree { table: self, writer: self.writer() })
    }

    fn read_version(&self) -> ReadVersion {
        Self::read_version(self)
    }
}

impl LockedTable for LockedTree<'_> {
    fn value(&self, column: &Column) -> Result<Option<Bytes>, StorageError> {
        let get = Get::column(column.row.clone(), column.family, column.qualifier.clone());
        let row = self.table.read_row(&column.row, &CellSelection::of_get(&get))?;
        Ok(row.and_then(|row| row.cells.into_iter().next()).map(|cell| cell.value))
    }

    fn apply(&mut self, rows: &mut dyn FlushRows) -> Result<(), StorageError> {
        self.table.ingest(&self.writer, rows)
    }

    fn read_version(&self) -> ReadVersion {
        self.table.read_version()
    }
}
