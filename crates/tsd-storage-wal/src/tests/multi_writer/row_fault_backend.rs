//! A backend that rejects given rows and records the flushed ranges.

use parking_lot::Mutex;

use tsd_storage::{
    FaultyStorage, FlushRows, FlushTarget, MemoryStorage, OwnedFlushRow, StorageFuture,
    forward_storage,
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
    /// Tables whose flushes fail, each with its error.
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
            let keys = keys.lock();
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
        self.ranges.lock().push(rows.iter().map(|row| row.key.clone().into()).collect());
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
            let failing = self.failing.lock().clone();
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
    forward_storage!(
        inner: get, multi_get, scan, write, read_version, table_exists, flush, close,
    );
}
