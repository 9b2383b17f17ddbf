//! Parts behind the storage traits: tables by name.
//!
//! Rows are read in order of their keys, which parts do not have: a scan costs a merge. The write-ahead log
//! flushes rows; every other write is a small part of its own, for tools and tests.

mod row_scan;
mod scan_job;
mod selected;
mod series_job;
mod table;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::Row;
use tsd_storage::{
    BlockingPool, CellBatch, ClockMs, Column, Delete, DiskDir, DiskSpace, FlushRows, FlushTarget,
    Get, HealthProblem, LockError, LogMark, LostRows, PoolHandle, PooledScanner, Quarantine,
    QuarantinedFile, ReadVersion, RowRewrite, RowScanner, Scan, SeriesRead, SeriesScanner, Storage,
    StorageError, StorageFuture, StoreDir, Table, direct_write, system_clock_ms,
};

#[cfg(test)]
pub(crate) use self::row_scan::{RowScan, ScanStep};
pub(crate) use self::table::PartTable;
use self::{scan_job::ScanJob, series_job::SeriesJob};
use crate::{
    error::PartError,
    layout::PartLayout,
    merger::PartMerger,
    resources::PartResources,
    store::{PartConfig, PartStore},
};

/// Limit on reported problems; the metric of files in quarantine counts all.
const MAX_PROBLEMS: usize = 32;
/// Threads for writes: flushes of two tables may run concurrently.
const WRITE_THREADS: usize = 2;

/// A table of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTableSpec {
    /// Name of the table.
    pub table: Table,
    /// Layout of its keys and spans. Fixed at the creation of the table.
    pub layout: PartLayout,
}

/// Configuration of a store.
#[derive(Clone, Debug)]
pub struct PartStorageConfig {
    /// Directory of the store; created if missing. One process may have it open.
    pub dir: PathBuf,
    /// All tables. Other tables in the directory are not opened.
    pub tables: Vec<PartTableSpec>,
    /// Capacity of the cache of all tables, bytes.
    pub cache_bytes: u64,
    /// Number of files that are kept open.
    pub open_files: usize,
    /// Number of threads for reads; each scan and get uses one while it reads from disk.
    pub read_threads: usize,
    /// Disk of the store. Writes that would use its reserve fail as on a full disk.
    pub space: Arc<DiskSpace>,
    /// Clock for cells without a timestamp.
    pub clock: ClockMs,
}

impl PartStorageConfig {
    /// Default reserve of [`Self::space`], bytes.
    pub const DEFAULT_RESERVE_BYTES: u64 = 64 << 20;

    /// Default configuration: 64 MiB of cache, one read thread per core, 64 MiB of reserve.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, tables: Vec<PartTableSpec>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let dir = dir.into();
        Self {
            space: Arc::new(DiskSpace::new(dir.clone(), Self::DEFAULT_RESERVE_BYTES)),
            dir,
            tables,
            cache_bytes: PartResources::DEFAULT_CACHE_BYTES,
            open_files: PartResources::DEFAULT_OPEN_FILES,
            read_threads: cores.max(2),
            clock: system_clock_ms,
        }
    }
}

/// A store of parts. Dropping it waits for running writes and unlocks the directory.
#[derive(Debug)]
pub struct PartStorage {
    tables: BTreeMap<Table, Arc<PartTable>>,
    resources: Arc<PartResources>,
    clock: ClockMs,
    closed: AtomicBool,
    reads: PoolHandle,
    writes: PoolHandle,
    // Dropped in this order: thread pools, merge thread, directory lock.
    _pools: [BlockingPool; 2],
    merger: Mutex<Option<PartMerger>>,
    directory: Arc<DiskDir>,
}

impl PartStorage {
    /// Opens the store and creates it if missing. Blocks on disk I/O.
    ///
    /// # Errors
    ///
    /// [`StorageError::Unavailable`] if another process has the directory open, an error of the disk, or
    /// [`StorageError::Damaged`] if a manifest cannot be read. Damaged parts are quarantined.
    pub fn open(config: &PartStorageConfig) -> Result<Self, StorageError> {
        let shown = config.dir.display();
        let directory = DiskDir::lock(&config.dir).map_err(|error| match error {
            LockError::InUse { pid } => {
                let by = pid.map_or_else(String::new, |pid| format!(" by process {pid}"));
                StorageError::Unavailable(format!("store {shown} is in use{by}").into())
            }
            LockError::Io(source) => StorageError::io(format!("locking store {shown}"), source),
        })?;
        let resources = Arc::new(PartResources::new(
            config.cache_bytes,
            config.open_files,
            Arc::clone(&config.space),
        ));
        let mut tables = BTreeMap::new();
        for PartTableSpec { table, layout } in &config.tables {
            let path = config.dir.join(format!("t.{table}"));
            let dir =
                DiskDir::unlocked(&path).and_then(|dir| directory.sync().map(|()| dir)).map_err(
                    |source| StorageError::io(format!("creating {}", path.display()), source),
                )?;
            let config = PartConfig {
                table: table.as_str().into(),
                layout: *layout,
                resources: Arc::clone(&resources),
                clock: config.clock,
            };
            let store = Arc::new(PartStore::open(Arc::new(dir), config)?);
            tables.insert(table.clone(), Arc::new(PartTable::new(store)));
        }
        let no_thread = |source| StorageError::io("starting the store's threads", source);
        let pools = [
            BlockingPool::new("parts-read", config.read_threads).map_err(no_thread)?,
            BlockingPool::new("parts-write", WRITE_THREADS).map_err(no_thread)?,
        ];
        let [reads, writes] = pools.each_ref().map(BlockingPool::handle);
        let stores = tables.values().map(|table| Arc::clone(table.store())).collect();
        let merger = PartMerger::start(stores).map_err(no_thread)?;
        Ok(Self {
            tables,
            resources,
            clock: config.clock,
            closed: AtomicBool::new(false),
            reads,
            writes,
            _pools: pools,
            merger: Mutex::new(Some(merger)),
            directory: Arc::new(directory),
        })
    }

    /// The parts of a table.
    ///
    /// # Errors
    ///
    /// [`StorageError::Closed`] or [`StorageError::NoSuchTable`].
    pub fn parts(&self, table: &Table) -> Result<Arc<PartStore>, StorageError> {
        Ok(Arc::clone(self.table(table)?.store()))
    }

    fn table(&self, table: &Table) -> Result<Arc<PartTable>, StorageError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        self.tables.get(table).cloned().ok_or_else(|| StorageError::NoSuchTable(table.clone()))
    }

    /// The table whose manifest has the mark of the log.
    fn marked_table(&self) -> Option<Arc<PartTable>> {
        self.tables.values().next().cloned()
    }

    /// Runs a write on the thread pool.
    fn write<'a, T: Send + 'static>(
        &'a self,
        table: &'a Table,
        write: impl FnOnce(&PartTable, i64) -> Result<T, StorageError> + Send + 'static,
    ) -> StorageFuture<'a, T> {
        Box::pin(async move {
            let table = self.table(table)?;
            let clock = self.clock;
            self.writes.call(move || write(&table, clock())).await
        })
    }
}

impl Storage for PartStorage {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>> {
        Box::pin(async move {
            let table = self.table(table)?;
            self.reads.call(move || table.read_row(&get)).await
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
            Ok(table) => PooledScanner::new(Box::new(ScanJob::new(table, scan)), pool),
            Err(error) => PooledScanner::failed(error, pool),
        })
    }

    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        let pool = self.reads.clone();
        Some(Box::new(match self.table(table) {
            Ok(table) => PooledScanner::new(Box::new(SeriesJob::try_new(table, read)?), pool),
            Err(error) => PooledScanner::failed(error, pool),
        }))
    }

    fn put<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        self.write(table, move |table, now_ms| {
            direct_write::put(&mut table.locked(), &batch, now_ms)
        })
    }

    fn append<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        self.write(table, move |table, now_ms| {
            direct_write::append(&mut table.locked(), &batch, now_ms)
        })
    }

    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> StorageFuture<'a, i64> {
        self.write(table, move |table, now_ms| {
            direct_write::increment(&mut table.locked(), &column, amount, now_ms)
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> StorageFuture<'a, bool> {
        self.write(table, move |table, now_ms| {
            let mut table = table.locked();
            direct_write::compare_and_write(
                &mut table,
                &column,
                expected.as_ref(),
                Some(value),
                now_ms,
            )
        })
    }

    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        timestamp_ms: i64,
    ) -> StorageFuture<'a, bool> {
        self.write(table, move |table, _| {
            let mut table = table.locked();
            direct_write::compare_and_write(
                &mut table,
                &column,
                expected.as_ref(),
                Some(value),
                timestamp_ms,
            )
        })
    }

    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> StorageFuture<'a, bool> {
        self.write(table, move |table, now_ms| {
            let mut table = table.locked();
            direct_write::compare_and_write(&mut table, &column, Some(&expected), None, now_ms)
        })
    }

    fn delete<'a>(&'a self, table: &'a Table, delete: Delete) -> StorageFuture<'a, ()> {
        self.write(table, move |table, _| direct_write::delete(&mut table.locked(), delete))
    }

    fn rewrite_row<'a>(&'a self, table: &'a Table, rewrite: RowRewrite) -> StorageFuture<'a, ()> {
        self.write(table, move |table, _| direct_write::rewrite(&mut table.locked(), rewrite))
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

    /// Only checks that the store is open: every write is in a part when it returns.
    fn flush(&self) -> StorageFuture<'_, ()> {
        let closed = self.closed.load(Ordering::Acquire);
        Box::pin(async move { if closed { Err(StorageError::Closed) } else { Ok(()) } })
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        Box::pin(async move {
            self.closed.store(true, Ordering::Release);
            let merger = self.merger.lock().unwrap_or_else(PoisonError::into_inner).take();
            let tables: Vec<_> = self.tables.values().cloned().collect();
            let directory = Arc::clone(&self.directory);
            // Queued after the pending writes, on a thread that may block.
            self.writes
                .call(move || {
                    drop(merger);
                    for table in tables {
                        drop(table.locked());
                    }
                    // Another process can open the directory even if this store is not dropped yet.
                    directory.release();
                    Ok(())
                })
                .await
        })
    }

    fn health(&self) -> Vec<HealthProblem> {
        let mut problems: Vec<HealthProblem> =
            self.tables.values().flat_map(|table| table.store().health()).collect();
        if let Some(merger) = &*self.merger.lock().unwrap_or_else(PoisonError::into_inner) {
            problems.extend(merger.health());
        }
        problems.truncate(MAX_PROBLEMS);
        problems
    }

    fn quarantine(&self) -> Option<Arc<dyn Quarantine>> {
        Some(Arc::new(PartQuarantine { tables: self.tables.clone() }))
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let mut sums: BTreeMap<&'static str, f64> = BTreeMap::new();
        for table in self.tables.values() {
            for (name, value) in table.store().gauges() {
                *sums.entry(name).or_default() += value;
            }
        }
        sums.into_iter().chain(self.resources.gauges()).collect()
    }
}

impl FlushTarget for PartStorage {
    fn log_mark(&self) -> StorageFuture<'_, LogMark> {
        Box::pin(async move {
            let Some(table) = self.marked_table() else { return Ok(LogMark::Unsupported) };
            Ok(table.store().log_mark().map_or(LogMark::Absent, LogMark::Recorded))
        })
    }

    fn set_log_mark(&self, mark: Bytes) -> StorageFuture<'_, ()> {
        Box::pin(async move {
            let Some(table) = self.marked_table() else { return Ok(()) };
            self.writes.call(move || Ok(table.store().set_log_mark(mark)?)).await
        })
    }

    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        mut rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        self.write(table, move |table, _| {
            direct_write::LockedTable::apply(&mut table.locked(), &mut *rows)
        })
    }
}

/// The quarantined parts of all tables, named by table and file.
#[derive(Debug)]
struct PartQuarantine {
    tables: BTreeMap<Table, Arc<PartTable>>,
}

impl Quarantine for PartQuarantine {
    fn files(&self) -> Vec<QuarantinedFile> {
        let of_table = |(table, parts): (&Table, &Arc<PartTable>)| {
            let quarantined = parts.store().quarantined();
            let table = table.clone();
            quarantined.into_iter().map(move |part| {
                let file = format!("t.{table}/{}", part.name);
                QuarantinedFile {
                    name: file.clone(),
                    file,
                    table: table.clone(),
                    what: part.what,
                    bytes: part.bytes,
                    since_ms: part.since_ms,
                    // Rows of a span are not adjacent in the order of keys.
                    lost: vec![LostRows::default()],
                }
            })
        };
        self.tables.iter().flat_map(of_table).collect()
    }

    fn accept(&self, name: &str) -> Result<bool, StorageError> {
        for (table, parts) in &self.tables {
            if let Some(file) = name.strip_prefix(&format!("t.{table}/"))
                && parts.store().accept_loss(file)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Nothing is derived from the cells of tables of points.
    fn has_unchecked_loss(&self, _: &Table) -> bool {
        false
    }

    fn loss_checked(&self, _: &Table) -> Result<(), StorageError> {
        Ok(())
    }

    fn note_loss(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

impl From<PartError> for StorageError {
    fn from(error: PartError) -> Self {
        match error {
            PartError::Io { action, file, source } => {
                let what = format!("{action} {file}");
                let kind = std::io::Error::from(source.kind());
                match Self::io(what.as_str(), kind) {
                    Self::DiskFull => Self::DiskFull,
                    _ => Self::Io { what: what.into(), source },
                }
            }
            PartError::DiskFull => Self::DiskFull,
            PartError::Behind => Self::Throttled("merges of parts are behind"),
            PartError::Stopped => Self::Closed,
            PartError::Damaged { .. }
            | PartError::Quarantined { .. }
            | PartError::Unsupported { .. } => Self::Damaged(error.to_string().into()),
            PartError::Row(_) => Self::Backend(error.to_string().into()),
        }
    }
}
