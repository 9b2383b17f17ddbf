//! Puts a store whose calls block on disk I/O behind the storage traits: tables by name, thread
//! pools, shutdown.
//!
//! The log in front flushes whole rows to it. Every other write is a single small write
//! ([`crate::direct_write`]), for tools and tests.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::Row;
use tsd_series_index::SeriesIndex;

use crate::{
    BatchReader, BlockingPool, BytePermit, ClockMs, FlushRows, FlushTarget, Get, HealthProblem,
    HeldRows, LogMark, Maintenance, PinnedFiles, PoolHandle, PooledScanner, Quarantine,
    ReadVersion, RowScanner, Scan, SeriesBlock, SeriesRead, SeriesReads, SeriesScanner,
    SeriesVersion, SplitGoal, Storage, StorageError, StorageFuture, Table, Verifier, Write,
    WriteResult,
    direct_write::{self, LockedTable},
};

/// Threads for writes: flushes of two tables may run concurrently.
const WRITE_THREADS: usize = 2;

/// A table. Its calls block on disk I/O.
pub trait DirectTable: fmt::Debug + Send + Sync + 'static {
    /// Reads rows, in the order of `gets`.
    fn read_rows(&self, gets: &[Get]) -> Result<Vec<Option<Row>>, StorageError>;

    /// A scan that has not begun.
    fn scan(self: Arc<Self>, scan: Scan) -> Box<dyn BatchReader>;

    /// A read of series that has not begun. `None` if the table does not store the points of a
    /// series together, or divides its keys or its time differently from the read.
    fn read_series(
        self: Arc<Self>,
        _read: &SeriesRead,
    ) -> Option<Box<dyn BatchReader<SeriesBlock>>> {
        None
    }

    /// [`SeriesReads::series_version`].
    fn series_version(&self, _read: &SeriesRead) -> Option<SeriesVersion> {
        None
    }

    /// [`FlushTarget::stored_bases`].
    fn stored_bases(&self, _read: &SeriesRead) -> Option<Vec<(u32, u32)>> {
        None
    }

    /// [`SeriesReads::series_splits`].
    fn series_splits(
        &self,
        _read: &SeriesRead,
        _goal: SplitGoal,
    ) -> Result<Vec<Bytes>, StorageError> {
        Ok(Vec::new())
    }

    /// Waits until the table can take a write. Called without its lock.
    fn before_write(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Locks the table for a write.
    fn lock(&self) -> Box<dyn LockedTable + '_>;

    /// [`Storage::read_version`].
    fn read_version(&self) -> ReadVersion;

    /// [`SeriesReads::series_index`].
    fn series_index(&self) -> Option<Arc<SeriesIndex>> {
        None
    }

    /// [`Maintenance::compacts_rows`].
    fn compacts_rows(&self) -> bool {
        false
    }

    /// [`FlushTarget::base_time_at`].
    fn base_time_at(&self) -> Option<usize> {
        None
    }
}

/// The shared state of the tables of a store: directory, background threads, quarantine.
pub trait DirectBackend: fmt::Debug + Send + Sync + Sized + 'static {
    /// Configuration of the store.
    type Config;

    /// Opens the store and creates it if missing. Blocks on disk I/O.
    fn open(config: &Self::Config) -> Result<Self, StorageError>;

    /// Number of threads for reads, and the clock of cells without a timestamp.
    fn options(config: &Self::Config) -> (usize, ClockMs);

    /// The open tables.
    fn tables(&self) -> BTreeMap<Table, Arc<dyn DirectTable>>;

    /// Stops background work. Idempotent.
    fn stop(&self);

    /// Unlocks the directory, so that another process can open it even if this store is not dropped
    /// yet. Idempotent; nothing is written afterwards.
    fn release(&self) -> Result<(), StorageError>;

    /// [`Maintenance::health`].
    fn health(&self) -> Vec<HealthProblem>;

    /// [`Maintenance::quarantine`].
    fn quarantine(&self) -> Arc<dyn Quarantine>;

    /// [`Maintenance::verifier`].
    fn verifier(&self) -> Arc<dyn Verifier>;

    /// [`Maintenance::pin_files`], called while nothing is flushed. Blocks on disk I/O.
    fn pin_files(&self) -> Result<PinnedFiles, StorageError>;

    /// [`Maintenance::gauges`].
    fn gauges(&self) -> Vec<(&'static str, f64)>;

    /// [`FlushTarget::log_mark`].
    fn log_mark(&self) -> Result<LogMark, StorageError>;

    /// [`FlushTarget::set_log_mark`].
    fn set_log_mark(&self, mark: Bytes) -> Result<(), StorageError>;

    /// [`FlushTarget::check_files`].
    fn check_files(&self) -> Result<(), StorageError>;

    /// [`FlushTarget::set_held_rows`].
    fn set_held_rows(&self, _held: &Arc<dyn HeldRows>) {}
}

/// The store. Dropping it waits for running calls, ends its threads and unlocks the directory.
#[derive(Debug)]
pub struct DirectStore<B> {
    tables: BTreeMap<Table, Arc<dyn DirectTable>>,
    clock: ClockMs,
    closed: AtomicBool,
    reads: PoolHandle,
    writes: PoolHandle,
    // Dropped in this order.
    _pools: [BlockingPool; 2],
    backend: Arc<B>,
}

impl<B: DirectBackend> DirectStore<B> {
    /// Opens the store and creates it if missing. Blocks on disk I/O.
    ///
    /// # Errors
    ///
    /// Errors of [`DirectBackend::open`], or of starting threads.
    pub fn open(config: &B::Config) -> Result<Self, StorageError> {
        let backend = Arc::new(B::open(config)?);
        let (read_threads, clock) = B::options(config);
        let no_thread = |source| StorageError::io("starting the store's threads", source);
        let pools = [
            BlockingPool::new("store-read", read_threads).map_err(no_thread)?,
            BlockingPool::new("store-write", WRITE_THREADS).map_err(no_thread)?,
        ];
        let [reads, writes] = pools.each_ref().map(BlockingPool::handle);
        let tables = backend.tables();
        let closed = AtomicBool::new(false);
        Ok(Self { tables, clock, closed, reads, writes, _pools: pools, backend })
    }

    /// The shared state of the tables.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    fn table(&self, table: &Table) -> Result<Arc<dyn DirectTable>, StorageError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        self.tables.get(table).cloned().ok_or_else(|| StorageError::NoSuchTable(table.clone()))
    }

    /// Runs a write on the thread pool.
    fn run_write<'a, T: Send + 'static>(
        &'a self,
        table: &'a Table,
        write: impl FnOnce(&mut dyn LockedTable, i64) -> Result<T, StorageError> + Send + 'static,
    ) -> StorageFuture<'a, T> {
        Box::pin(async move {
            let table = self.table(table)?;
            let clock = self.clock;
            self.writes
                .call(move || {
                    table.before_write()?;
                    write(&mut *table.lock(), clock())
                })
                .await
        })
    }
}

impl<B: DirectBackend> Storage for DirectStore<B> {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>> {
        Box::pin(async move {
            let rows = self.multi_get(table, vec![get]).await?;
            Ok(rows.into_iter().next().flatten())
        })
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<Row>>> {
        Box::pin(async move {
            let table = self.table(table)?;
            self.reads.call(move || table.read_rows(&gets)).await
        })
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        let pool = self.reads.clone();
        Box::new(match self.table(table) {
            Ok(table) => PooledScanner::new(table.scan(scan), pool),
            Err(error) => PooledScanner::failed(error, pool),
        })
    }

    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        _: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult> {
        self.run_write(table, move |table, now_ms| direct_write::write(table, write, now_ms))
    }

    fn read_version(&self, table: &Table) -> ReadVersion {
        self.table(table).map_or_else(|_| ReadVersion::default(), |table| table.read_version())
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, bool> {
        Box::pin(async move {
            match self.table(table) {
                Ok(_) => Ok(true),
                Err(StorageError::NoSuchTable(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// Only checks that the store is open: every write is in a file when it returns.
    fn flush(&self) -> StorageFuture<'_, ()> {
        let closed = self.closed.load(Ordering::Acquire);
        Box::pin(async move { if closed { Err(StorageError::Closed) } else { Ok(()) } })
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        Box::pin(async move {
            self.closed.store(true, Ordering::Release);
            let tables: Vec<_> = self.tables.values().cloned().collect();
            let backend = Arc::clone(&self.backend);
            // Queued after the pending writes, on a thread that may block.
            self.writes
                .call(move || {
                    backend.stop();
                    for table in tables {
                        drop(table.lock());
                    }
                    backend.release()
                })
                .await
        })
    }

    fn series(&self) -> &dyn SeriesReads {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

impl<B: DirectBackend> SeriesReads for DirectStore<B> {
    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        let pool = self.reads.clone();
        Some(Box::new(match self.table(table) {
            Ok(table) => PooledScanner::new(table.read_series(read)?, pool),
            Err(error) => PooledScanner::failed(error, pool),
        }))
    }

    fn series_version(&self, table: &Table, read: &SeriesRead) -> Option<SeriesVersion> {
        self.tables.get(table)?.series_version(read)
    }

    fn series_splits<'a>(
        &'a self,
        table: &'a Table,
        read: &'a SeriesRead,
        goal: SplitGoal,
    ) -> StorageFuture<'a, Vec<Bytes>> {
        Box::pin(async move {
            let (table, read) = (self.table(table)?, read.clone());
            self.reads.call(move || table.series_splits(&read, goal)).await
        })
    }

    fn series_index(&self, table: &Table) -> Option<Arc<SeriesIndex>> {
        self.tables.get(table)?.series_index()
    }
}

impl<B: DirectBackend> Maintenance for DirectStore<B> {
    fn health(&self) -> Vec<HealthProblem> {
        self.backend.health()
    }

    fn quarantine(&self) -> Option<Arc<dyn Quarantine>> {
        Some(self.backend.quarantine())
    }

    fn verifier(&self) -> Option<Arc<dyn Verifier>> {
        Some(self.backend.verifier())
    }

    fn pin_files(&self) -> StorageFuture<'_, PinnedFiles> {
        let backend = Arc::clone(&self.backend);
        Box::pin(self.reads.call(move || backend.pin_files()))
    }

    fn compacts_rows(&self, table: &Table) -> bool {
        self.tables.get(table).is_some_and(|table| table.compacts_rows())
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        self.backend.gauges()
    }
}

impl<B: DirectBackend> FlushTarget for DirectStore<B> {
    fn log_mark(&self) -> StorageFuture<'_, LogMark> {
        let backend = Arc::clone(&self.backend);
        Box::pin(self.writes.call(move || backend.log_mark()))
    }

    fn set_log_mark(&self, mark: Bytes) -> StorageFuture<'_, ()> {
        let backend = Arc::clone(&self.backend);
        Box::pin(self.writes.call(move || {
            backend.check_files()?;
            backend.set_log_mark(mark)
        }))
    }

    fn check_files(&self) -> Result<(), StorageError> {
        self.backend.check_files()
    }

    fn base_time_at(&self, table: &Table) -> Option<usize> {
        self.tables.get(table)?.base_time_at()
    }

    fn stored_bases(&self, table: &Table, read: &SeriesRead) -> Option<Vec<(u32, u32)>> {
        self.tables.get(table)?.stored_bases(read)
    }

    fn set_held_rows(&self, held: Arc<dyn HeldRows>) {
        self.backend.set_held_rows(&held);
    }

    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        mut rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        let backend = Arc::clone(&self.backend);
        self.run_write(table, move |table, _| {
            backend.check_files()?;
            table.apply(&mut *rows)
        })
    }
}
