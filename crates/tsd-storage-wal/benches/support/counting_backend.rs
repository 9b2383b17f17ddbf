//! A backend that discards flushed rows, so that a bench measures only log, memtable and flush.

use std::sync::atomic::{AtomicU64, Ordering};

use tsd_storage::{
    FlushRows, FlushTarget, MemoryStorage, SeriesBlock, SeriesRead, SeriesReads, SeriesScanner,
    Storage, StorageFuture, Table, forward_storage,
};

/// An empty store that counts flushed cells.
#[derive(Debug)]
pub(crate) struct CountingBackend {
    empty: MemoryStorage,
    cells: AtomicU64,
}

impl CountingBackend {
    pub(crate) fn new(table: Table) -> Self {
        Self { empty: MemoryStorage::new([table]), cells: AtomicU64::new(0) }
    }

    /// Number of cells that were flushed so far.
    pub(crate) fn cells(&self) -> u64 {
        self.cells.load(Ordering::Relaxed)
    }
}

impl FlushTarget for CountingBackend {
    fn stored_bases(&self, _: &Table, _: &SeriesRead) -> Option<Vec<(u32, u32)>> {
        Some(Vec::new())
    }

    fn flush_rows<'a>(
        &'a self,
        _: &'a Table,
        mut rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        while let Some(row) = rows.next_row() {
            self.cells.fetch_add(row.cells.len() as u64, Ordering::Relaxed);
        }
        Box::pin(async { Ok(()) })
    }
}

impl Storage for CountingBackend {
    forward_storage!(
        empty: get, multi_get, scan, write, table_exists, flush, close,
    );

    fn series(&self) -> &dyn SeriesReads {
        self
    }
}

impl SeriesReads for CountingBackend {
    fn read_series(&self, _: &Table, _: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        Some(Box::new(NoBlocks))
    }
}

/// A read of series without rows.
struct NoBlocks;

impl SeriesScanner for NoBlocks {
    fn next_series(&mut self) -> StorageFuture<'_, Option<Vec<SeriesBlock>>> {
        Box::pin(async { Ok(None) })
    }
}
