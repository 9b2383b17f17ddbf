//! A backend that rejects given rows, and records the ranges flushed to it.

use std::sync::Mutex;

use tsd_storage::{
    FaultyStorage, FlushRows, FlushTarget, MemoryStorage, OwnedFlushRow, RowScanner, StorageFuture,
};

use super::*;

/// The memory store with faults per operation and per row.
#[derive(Debug)]
pub(crate) struct RowFaultBackend {
    pub(crate) inner: FaultyStorage<MemoryStorage>,
    /// Rows that are rejected until they are removed from this list.
    pub(crate) rejected: Mutex<Vec<Bytes>>,
    /// Rows that are rejected permanently.
    pub(crate) too_large: Mutex<Vec<Bytes>>,
    /// Rows of an unavailable region.
    pub(crate) unreachable: Mutex<Vec<Bytes>>,
    /// Tables whose flushes fail, with the error.
    pub(crate) failing: Mutex<Vec<(Table, StorageError)>>,
    /// Keys of each flushed range.
    pub(crate) ranges: Mutex<Vec<Vec<Bytes>>>,
}

impl RowFaultBackend {
    pub(crate) fn new() -> Self {
        Self {
            inner: FaultyStorage::new(memory_backend()),
            rejected: Mutex::default(),
            too_large: Mutex::default(),
            unreachable: Mutex::default(),
            failing: Mutex::default(),
            ranges: Mutex::default(),
        }
    }

    fn check(&self, rows: &[OwnedFlushRow]) -> Result<(), StorageError> {
        let has = |keys: &Mutex<Vec<Bytes>>| {
            let keys = keys.lock().unwrap();
            rows.iter().any(|row| keys.iter().any(|key| *key == row.key))
        };
        if has(&self.unreachable) {
            return Err(StorageError::Unavailable("region".into()));
        }
        if has(&self.too_large) {
            return Err(StorageError::Rejected("too large".into()));
        }
        if has(&self.rejected) {
            return Err(StorageError::Backend("rejected".into()));
        }
        self.ranges.lock().unwrap().push(rows.iter().map(|row| row.key.clone().into()).collect());
        Ok(())
    }
}

impl FlushTarget for RowFaultBackend {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let failing = self.failing.lock().unwrap().clone();
            if let Some((_, error)) = failing.into_iter().find(|(failing, _)| failing == table) {
                return Err(error);
            }
            let rows = OwnedFlushRow::collect(rows);
            self.check(&rows)?;
            self.inner.flush_rows(table, OwnedFlushRow::flush_rows(rows)).await
        })
    }
}

impl Storage for RowFaultBackend {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<tsd_model::Row>> {
        self.inner.get(table, get)
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<tsd_model::Row>>> {
        self.inner.multi_get(table, gets)
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        self.inner.scan(table, scan)
    }

    fn put<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        self.inner.put(table, batch)
    }

    fn append<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        self.inner.append(table, batch)
    }

    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        by: i64,
    ) -> StorageFuture<'a, i64> {
        self.inner.increment(table, column, by)
    }

    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> StorageFuture<'a, bool> {
        self.inner.compare_and_set(table, column, expected, value)
    }

    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> StorageFuture<'a, bool> {
        self.inner.compare_and_delete(table, column, expected)
    }

    fn delete<'a>(&'a self, table: &'a Table, delete: Delete) -> StorageFuture<'a, ()> {
        self.inner.delete(table, delete)
    }

    fn read_version(&self, table: &Table) -> ReadVersion {
        self.inner.read_version(table)
    }

    fn rewrite_row<'a>(&'a self, table: &'a Table, rewrite: RowRewrite) -> StorageFuture<'a, ()> {
        self.inner.rewrite_row(table, rewrite)
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, bool> {
        self.inner.table_exists(table)
    }

    fn flush(&self) -> StorageFuture<'_, ()> {
        self.inner.flush()
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        self.inner.close()
    }
}
