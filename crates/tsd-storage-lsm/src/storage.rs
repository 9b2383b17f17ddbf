//! The embedded store: tables by name, behind the storage traits.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use lsm_tree::{AbstractTree, Cache, DescriptorTable};
use tsd_model::Row;
use tsd_series_index::SeriesIndex;
use tsd_storage::{
    BlockingPool, CellBatch, ClockMs, Column, Delete, FlushRows, FlushTarget, Get, HealthImpact,
    HealthProblem, LogMark, PoolHandle, PooledScanner, QuarantinedFile, ReadVersion, RowRewrite,
    RowScanner, Scan, Storage, StorageError, StorageFuture, StorePart, Table, direct_write,
};

use crate::{
    LsmConfig, TableSpec,
    compactor::{CompactionSignal, Compactor},
    directory::{Directory, existing_tables},
    metrics::describe_metrics,
    quarantine::Quarantine,
    read::CellSelection,
    scanner::ScanJob,
    series::build::Build,
    table::{TableContext, TableStore},
};

/// Limit on reported problems; the metric of files in quarantine counts all.
const MAX_PROBLEMS: usize = 32;
/// Threads for writes: flushes of two tables may run concurrently.
const WRITE_THREADS: usize = 2;

/// The embedded store. Dropping it waits for running writes and unlocks the directory.
#[derive(Debug)]
pub struct LsmStorage {
    tables: BTreeMap<Table, Arc<TableStore>>,
    clock: ClockMs,
    closed: AtomicBool,
    signal: Arc<CompactionSignal>,
    cache: CacheHandle,
    quarantine: Arc<StoreQuarantine>,
    reads: PoolHandle,
    writes: PoolHandle,
    // Dropped in this order: builds, thread pools, compactor, directory lock.
    builds: Mutex<Vec<Build>>,
    _pools: [BlockingPool; 2],
    compactor: Mutex<Option<Compactor>>,
    directory: Arc<Directory>,
}

/// The quarantine with the trees of the open tables.
#[derive(Debug)]
struct StoreQuarantine {
    files: Arc<Quarantine>,
    trees: BTreeMap<Table, String>,
}

impl tsd_storage::Quarantine for StoreQuarantine {
    fn files(&self) -> Vec<QuarantinedFile> {
        self.files.files()
    }

    fn accept(&self, name: &str) -> Result<bool, StorageError> {
        self.files.accept(name)
    }

    fn has_unchecked_loss(&self, table: &Table) -> bool {
        self.trees.get(table).is_some_and(|tree| self.files.is_noted(tree))
    }

    fn loss_checked(&self, table: &Table) -> Result<(), StorageError> {
        let Some(tree) = self.trees.get(table) else { return Ok(()) };
        self.files.forget(tree).map_err(|source| StorageError::io("noting a check", source))
    }

    fn note_loss(&self) -> Result<(), StorageError> {
        let failed = |source| StorageError::io("noting an accepted loss", source);
        self.trees.values().try_for_each(|tree| self.files.note(tree)).map_err(failed)
    }
}

struct CacheHandle(Arc<Cache>);

impl std::fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("bytes", &self.0.size()).finish()
    }
}

impl LsmStorage {
    /// Returns the tables of the store in a directory, in the order of their creation; empty if
    /// there is no store. For tools that open a store with its existing tables.
    pub fn existing_tables(dir: &Path) -> Result<Vec<TableSpec>, StorageError> {
        existing_tables(dir)
    }

    /// Opens the store and creates it if missing. Blocks on disk I/O.
    ///
    /// Damaged files do not stop it: they are quarantined, as while it is open.
    pub fn open(config: &LsmConfig) -> Result<Self, StorageError> {
        describe_metrics();
        let directory = Directory::open(&config.dir, &config.tables)?;
        let cache = Arc::new(Cache::with_capacity_bytes(config.cache_bytes));
        let signal = Arc::new(CompactionSignal::default());
        let quarantine = Arc::new(Quarantine::open(directory.path())?);
        let context = TableContext {
            cache: Arc::clone(&cache),
            files: Arc::new(DescriptorTable::new(config.open_files)),
            space: Arc::clone(&config.space),
            signal: Arc::clone(&signal),
            quarantine: Arc::clone(&quarantine),
        };
        let mut tables = BTreeMap::new();
        for spec in &config.tables {
            let table = TableStore::open(directory.tree_path(spec), spec, context.clone())?;
            tables.insert(spec.table.clone(), Arc::new(table));
        }
        let trees = config.tables.iter().map(|spec| (spec.table.clone(), spec.tree_name()));
        let quarantine = Arc::new(StoreQuarantine { files: quarantine, trees: trees.collect() });
        let no_thread = |source| StorageError::io("starting the store's threads", source);
        let pools = [
            BlockingPool::new("lsm-read", config.read_threads).map_err(no_thread)?,
            BlockingPool::new("lsm-write", WRITE_THREADS).map_err(no_thread)?,
        ];
        let [reads, writes] = pools.each_ref().map(BlockingPool::handle);
        let compactor = Compactor::start(tables.values().cloned().collect(), Arc::clone(&signal))
            .map_err(no_thread)?;
        // The previous process may have stopped before a compaction.
        signal.request();
        let mut builds = Vec::new();
        for table in tables.values() {
            if let Some(series) = table.series.as_ref().filter(|s| !s.index.is_complete()) {
                let build = Build::start(Arc::clone(table), Arc::clone(series));
                builds.push(build.map_err(no_thread)?);
            }
        }
        tracing::debug!(dir = %directory.path().display(), "store opened");
        Ok(Self {
            tables,
            clock: config.clock,
            closed: AtomicBool::new(false),
            signal,
            cache: CacheHandle(cache),
            quarantine,
            reads,
            writes,
            builds: Mutex::new(builds),
            _pools: pools,
            compactor: Mutex::new(Some(compactor)),
            directory: Arc::new(directory),
        })
    }

    pub(crate) fn table(&self, table: &Table) -> Result<Arc<TableStore>, StorageError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        self.tables.get(table).cloned().ok_or_else(|| StorageError::NoSuchTable(table.clone()))
    }

    /// Runs a write on the thread pool.
    fn write<'a, T: Send + 'static>(
        &'a self,
        table: &'a Table,
        write: impl FnOnce(&TableStore, i64) -> Result<T, StorageError> + Send + 'static,
    ) -> StorageFuture<'a, T> {
        Box::pin(async move {
            let table = self.table(table)?;
            let clock = self.clock;
            self.writes
                .call(move || {
                    // Before the writer's lock, which a repair by the compactor needs.
                    table.signal().stall_on_l0(&table).inspect_err(|_| {
                        table.metrics.ingest_errors.increment(1);
                    })?;
                    write(&table, clock())
                })
                .await
        })
    }
}

impl Storage for LsmStorage {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>> {
        Box::pin(async move {
            let table = self.table(table)?;
            self.reads.call(move || table.read_row(&get.row, &CellSelection::of_get(&get))).await
        })
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<Row>>> {
        Box::pin(async move {
            let table = self.table(table)?;
            self.reads
                .call(move || {
                    gets.iter()
                        .map(|get| table.read_row(&get.row, &CellSelection::of_get(get)))
                        .collect()
                })
                .await
        })
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        let pool = self.reads.clone();
        Box::new(match self.table(table) {
            Ok(table) => PooledScanner::new(Box::new(ScanJob::new(table, scan)), pool),
            Err(error) => PooledScanner::failed(error, pool),
        })
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
            direct_write::compare_and_write(
                &mut table.locked(),
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
            direct_write::compare_and_write(
                &mut table.locked(),
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
            direct_write::compare_and_write(
                &mut table.locked(),
                &column,
                Some(&expected),
                None,
                now_ms,
            )
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

    /// Only checks that the store is open: every write is in a tree when it returns.
    fn flush(&self) -> StorageFuture<'_, ()> {
        let closed = self.closed.load(Ordering::Acquire);
        Box::pin(async move { if closed { Err(StorageError::Closed) } else { Ok(()) } })
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        Box::pin(async move {
            self.closed.store(true, Ordering::Release);
            let compactor = self.compactor.lock().unwrap_or_else(PoisonError::into_inner).take();
            let builds =
                std::mem::take(&mut *self.builds.lock().unwrap_or_else(PoisonError::into_inner));
            let tables: Vec<_> = self.tables.values().cloned().collect();
            let directory = Arc::clone(&self.directory);
            // Queued after the pending writes, on a thread that may block.
            self.writes
                .call(move || {
                    drop(compactor);
                    drop(builds);
                    for table in tables {
                        drop(table.writer());
                    }
                    // Another process can open the directory even if this store is not dropped yet.
                    directory.unlock()
                })
                .await
        })
    }

    fn health(&self) -> Vec<HealthProblem> {
        let mut problems = Vec::new();
        let quarantined = self.quarantine.files.records();
        for record in &quarantined {
            let impact =
                if record.is_loss() { HealthImpact::SomeReadsFail } else { HealthImpact::Degraded };
            problems.push(HealthProblem::new(StorePart::Data, impact, record.to_string()));
        }
        for table in self.tables.values() {
            for (file, what) in table.damaged_files() {
                if quarantined.iter().any(|record| record.file == file) {
                    continue;
                }
                let reason = format!("store file {file} is damaged ({what})");
                let impact = HealthImpact::SomeReadsFail;
                problems.push(HealthProblem::new(StorePart::Data, impact, reason));
            }
        }
        for (table, error) in self.signal.failures() {
            let reason = format!("LSM compaction of table {table}: {}", error_text(&error));
            let impact = HealthImpact::Degraded;
            problems.push(HealthProblem::new(StorePart::Compaction, impact, reason));
        }
        problems.truncate(MAX_PROBLEMS);
        problems
    }

    fn quarantine(&self) -> Option<Arc<dyn tsd_storage::Quarantine>> {
        Some(Arc::clone(&self.quarantine) as Arc<dyn tsd_storage::Quarantine>)
    }

    fn series_index(&self, table: &Table) -> Option<Arc<SeriesIndex>> {
        Some(Arc::clone(&self.tables.get(table)?.series.as_ref()?.index))
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let sum = |of: fn(&TableStore) -> u64| {
            self.tables.values().map(|table| of(table)).sum::<u64>() as f64
        };
        let quarantined = self.quarantine.files.records();
        let mut gauges = vec![
            ("tsd_lsm_disk_bytes", sum(|t| t.tree().disk_space())),
            ("tsd_lsm_entries", sum(|t| t.tree().approximate_len() as u64)),
            ("tsd_lsm_segments", sum(|t| t.tree().table_count() as u64)),
            ("tsd_lsm_l0_runs", sum(|t| t.tree().l0_run_count() as u64)),
            ("tsd_lsm_quarantined_files", quarantined.len() as f64),
            ("tsd_lsm_quarantined_bytes", quarantined.iter().map(|f| f.bytes).sum::<u64>() as f64),
            ("tsd_lsm_compaction_steps_total", self.signal.steps() as f64),
            ("tsd_lsm_cache_bytes", self.cache.0.size() as f64),
            ("tsd_lsm_cache_capacity_bytes", self.cache.0.capacity() as f64),
        ];
        for series in self.tables.values().filter_map(|table| table.series.as_ref()) {
            gauges.extend(series.gauges());
        }
        gauges
    }
}

/// An error with its source.
fn error_text(error: &StorageError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl FlushTarget for LsmStorage {
    fn log_mark(&self) -> StorageFuture<'_, LogMark> {
        let directory = Arc::clone(&self.directory);
        Box::pin(self.writes.call(move || directory.log_mark()))
    }

    fn set_log_mark(&self, mark: Bytes) -> StorageFuture<'_, ()> {
        let directory = Arc::clone(&self.directory);
        Box::pin(self.writes.call(move || directory.set_log_mark(&mark)))
    }

    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        mut rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        self.write(table, move |table, _| table.ingest(&mut table.writer(), &mut *rows))
    }
}
