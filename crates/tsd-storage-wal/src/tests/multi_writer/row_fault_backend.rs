//! A backend that rejects given rows, and records the ranges flushed to it.

use std::sync::Mutex;

use tsd_storage::{
    FaultyStorage, FlushCell, FlushRow, FlushRows, FlushTarget, MemoryStorage, RowScanner,
    StorageFuture,
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
            ranges: Mutex::default(),
        }
    }

    fn check(&self, rows: &[OwnedRow]) -> Result<(), StorageError> {
        let has = |keys: &Mutex<Vec<Bytes>>| {
            let keys = keys.lock().unwrap();
            rows.iter().any(|row| keys.contains(&row.key))
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
        self.ranges.lock().unwrap().push(rows.iter().map(|row| row.key.clone()).collect());
        Ok(())
    }
}

struct OwnedRow {
    key: Bytes,
    delete_row: Option<i64>,
    deletes: Vec<(Family, Bytes, i64)>,
    cells: Vec<(Family, Bytes, Bytes, i64)>,
}

struct OwnedRows(std::vec::IntoIter<OwnedRow>, Option<OwnedRow>);

impl FlushRows for OwnedRows {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.1 = self.0.next();
        let row = self.1.as_ref()?;
        Some(FlushRow {
            key: &row.key,
            delete_row: row.delete_row,
            deletes: row.deletes.iter().map(|(f, q, at)| (*f, q.as_ref(), *at)).collect(),
            cells: row
                .cells
                .iter()
                .map(|(family, qualifier, value, timestamp_ms)| FlushCell {
                    family: *family,
                    qualifier,
                    value,
                    timestamp_ms: *timestamp_ms,
                })
                .collect(),
        })
    }
}

fn owned(mut rows: Box<dyn FlushRows>) -> Vec<OwnedRow> {
    let copy = Bytes::copy_from_slice;
    let mut owned = Vec::new();
    while let Some(row) = rows.next_row() {
        owned.push(OwnedRow {
            key: copy(row.key),
            delete_row: row.delete_row,
            deletes: row.deletes.iter().map(|(f, q, at)| (*f, copy(q), *at)).collect(),
            cells: row
                .cells
                .iter()
                .map(|c| (c.family, copy(c.qualifier), copy(c.value), c.timestamp_ms))
                .collect(),
        });
    }
    owned
}

impl FlushTarget for RowFaultBackend {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let rows = owned(rows);
            self.check(&rows)?;
            self.inner.flush_rows(table, Box::new(OwnedRows(rows.into_iter(), None))).await
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
