//! Parts behind the storage traits: tables by name.
//!
//! Rows are read in order of their keys, which parts do not have: a scan costs a merge. The write-ahead log
//! flushes rows; every other write is a small part of its own, for tools and tests.

mod direct_table;
mod pin;
mod quarantine;
mod row_scan;
mod scan_job;
mod selected;
mod series_job;
mod table;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tsd_model::TableSchema;
use tsd_storage::{
    ClockMs, DirectBackend, DirectStore, DirectTable, DiskDir, DiskSpace, HealthProblem, HeldRows,
    LockError, LogMark, PinnedFiles, Quarantine, Retention, StorageError, StoreDir, Table,
    Verifier, system_clock_ms,
};

pub use self::pin::verify_tables;
use self::quarantine::PartQuarantine;
#[cfg(test)]
pub(crate) use self::row_scan::{RowScan, ScanStep};
pub(crate) use self::table::PartTable;
use crate::{
    error::PartError,
    layout::PartLayout,
    manifest::{has_table, read_copies, stored_layout},
    merger::PartMerger,
    resources::PartResources,
    retention::{RetainedTable, RetentionKeeper, RetentionThread},
    series::{SeriesIndexPosition, TableSeries, build::Build},
    store::{PartConfig, PartStore},
    verify::PartVerifier,
};

/// Limit on reported problems; the metric of files in quarantine counts all.
const MAX_PROBLEMS: usize = 32;
/// Directory of the files of series indexes.
pub(crate) const SERIES_DIRECTORY: &str = "series";
/// Begins the name of the directory of a table.
pub(crate) const TABLE_PREFIX: &str = "t.";

/// A table of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTableSpec {
    /// Name of the table.
    pub table: Table,
    /// Layout of its keys and spans. Fixed at the creation of the table.
    pub layout: PartLayout,
    /// Widths of its row keys, if there is an index of its series. A table that is opened once
    /// without it loses the index, which is built again the next time.
    pub series: Option<TableSchema>,
    /// True if merges compact its rows when they are old enough and no log in front holds them.
    pub compacts_rows: bool,
    /// Seconds of its longest row.
    pub row_secs: u32,
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
    /// How long points are kept; `None` for ever.
    pub retention: Option<Arc<Retention>>,
}

impl PartTableSpec {
    /// A table without an index of its series, whose rows are not compacted and as long as a span at most.
    #[must_use]
    pub const fn new(table: Table, layout: PartLayout) -> Self {
        let row_secs = layout.span_secs();
        Self { table, layout, series: None, compacts_rows: false, row_secs }
    }
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
            retention: None,
        }
    }
}

/// Tables of points as a store of its own.
pub type PartStorage = DirectStore<PartTables>;

/// Tables of points, each with its parts. Damaged parts are quarantined, also by the start.
#[derive(Debug)]
pub struct PartTables {
    tables: BTreeMap<Table, Arc<PartTable>>,
    resources: Arc<PartResources>,
    // Dropped in this order.
    builds: Mutex<Vec<Build>>,
    merger: Mutex<Option<PartMerger>>,
    retention: Mutex<Option<RetentionThread>>,
    keeper: Option<Arc<RetentionKeeper>>,
    directory: DiskDir,
}

/// The tables of the store in a directory, with their layouts; empty if there is no store.
///
/// # Errors
///
/// An error of the disk, or that of a manifest that cannot be read.
pub fn existing_tables(dir: &Path) -> Result<Vec<(Table, PartLayout)>, StorageError> {
    let failed = |source| StorageError::io(format!("reading {}", dir.display()), source);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut tables = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let Some(table) = name.to_str().and_then(|name| name.strip_prefix(TABLE_PREFIX)) else {
            continue;
        };
        let path = dir.join(&name);
        let opened = DiskDir::unlocked(&path).map_err(failed)?;
        tables.extend(stored_layout(&opened)?.map(|layout| (Table::new(table), layout)));
    }
    tables.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(tables)
}

/// The directory of a table of the store in a directory.
#[must_use]
pub fn table_path(dir: &Path, table: &Table) -> PathBuf {
    dir.join(format!("{TABLE_PREFIX}{table}"))
}

/// True if there is a manifest or a part of a table of the store in a directory. Changes nothing.
///
/// # Errors
///
/// An error of the disk.
pub fn has_files(dir: &Path, table: &Table) -> Result<bool, StorageError> {
    let path = table_path(dir, table);
    if !path.exists() {
        return Ok(false);
    }
    let failed = |source| StorageError::io(format!("reading {}", path.display()), source);
    let names = DiskDir::unlocked(&path).and_then(|opened| opened.list()).map_err(failed)?;
    Ok(has_table(&names))
}

/// Number of the manifest of a table of the store in a directory: it grows with each change of the table. `None` if
/// there is no manifest, or none can be read, which its start names.
///
/// # Errors
///
/// [`StorageError::UnknownVersion`] if another release wrote it, or an error of the disk.
pub fn stored_manifest_number(dir: &Path, table: &Table) -> Result<Option<u64>, StorageError> {
    if !has_files(dir, table)? {
        return Ok(None);
    }
    let path = table_path(dir, table);
    let opened = DiskDir::unlocked(&path)
        .map_err(|source| StorageError::io(format!("reading {}", path.display()), source))?;
    let read = read_copies(&opened)?;
    Ok(read.and_then(|read| read.copies.into_iter().filter_map(|(_, next)| next.ok()).max()))
}

/// How far the series index of a table of the store in a directory is; `None` without one that can be read.
///
/// # Errors
///
/// An error of the disk.
pub fn stored_series_index(
    dir: &Path,
    table: &Table,
) -> Result<Option<SeriesIndexPosition>, StorageError> {
    let path = dir.join(SERIES_DIRECTORY);
    if !path.exists() {
        return Ok(None);
    }
    let read = DiskDir::unlocked(&path).and_then(|dir| TableSeries::stored_position(&dir, table));
    read.map_err(|source| StorageError::io(format!("reading {}", path.display()), source))
}

/// Removes the series index of a table of the store in a directory that no process has open: the next start builds
/// it again.
///
/// # Errors
///
/// An error of the disk.
pub fn discard_series_index(dir: &Path, table: &Table) -> Result<(), StorageError> {
    let path = dir.join(SERIES_DIRECTORY);
    let opened = DiskDir::unlocked(&path)
        .map_err(|source| StorageError::io(format!("opening {}", path.display()), source))?;
    TableSeries::discard(&opened, table)
}

impl PartTables {
    /// How far the series indexes of all tables are, durably.
    pub fn series_index_positions(&self) -> impl Iterator<Item = (&Table, SeriesIndexPosition)> {
        let position = |table: &PartTable| table.series()?.position();
        self.tables.iter().filter_map(move |(name, table)| Some((name, position(table)?)))
    }

    /// Numbers of the manifests of all tables, which are durable.
    pub fn manifest_numbers(&self) -> impl Iterator<Item = (&Table, u64)> {
        self.tables.iter().map(|(name, table)| (name, table.store().manifest_number()))
    }

    /// The parts of a table; `None` if there is no such table.
    #[must_use]
    pub fn parts(&self, table: &Table) -> Option<&Arc<PartStore>> {
        Some(self.tables.get(table)?.store())
    }

    /// Has the thread look for merges, for example because the log in front holds fewer rows.
    pub fn request_merges(&self) {
        self.tables.values().for_each(|table| table.store().request_merges());
    }

    /// The table whose manifest has the mark of the log.
    fn marked_table(&self) -> Option<&Arc<PartTable>> {
        self.tables.values().next()
    }
}

/// Locks the directory of a store.
fn lock_directory(path: &Path) -> Result<DiskDir, StorageError> {
    let shown = path.display();
    DiskDir::lock(path).map_err(|error| match error {
        LockError::InUse { pid } => {
            let by = pid.map_or_else(String::new, |pid| format!(" by process {pid}"));
            StorageError::Unavailable(format!("store {shown} is in use{by}").into())
        }
        LockError::Io(source) => StorageError::io(format!("locking store {shown}"), source),
    })
}

/// Opens the index of a table's series, if it has one.
fn open_series(
    dir: &Arc<dyn StoreDir>,
    spec: &PartTableSpec,
    store: &PartStore,
) -> Result<Option<Arc<TableSeries>>, StorageError> {
    let Some(schema) = spec.series else {
        TableSeries::discard(&**dir, &spec.table)?;
        return Ok(None);
    };
    let snapshot = store.snapshot();
    let is_empty = snapshot.spans().is_empty() && snapshot.lost().is_empty();
    let series = TableSeries::open(Arc::clone(dir), &spec.table, schema, is_empty)?;
    Ok(Some(Arc::new(series)))
}

/// Opens what is recorded of the retention of a store.
fn open_keeper(
    config: &PartStorageConfig,
    retention: &Arc<Retention>,
    tables: Vec<RetainedTable>,
) -> Result<RetentionKeeper, StorageError> {
    let failed = |source| StorageError::io(format!("opening {}", config.dir.display()), source);
    let dir = Arc::new(DiskDir::unlocked(&config.dir).map_err(failed)?);
    RetentionKeeper::open(Arc::clone(retention), dir, config.clock, tables)
}

impl DirectBackend for PartTables {
    type Config = PartStorageConfig;

    fn open(config: &PartStorageConfig) -> Result<Self, StorageError> {
        let directory = lock_directory(&config.dir)?;
        let resources = Arc::new(PartResources::new(
            config.cache_bytes,
            config.open_files,
            Arc::clone(&config.space),
        ));
        let subdirectory = |name: &str| {
            let path = config.dir.join(name);
            let dir =
                DiskDir::unlocked(&path).and_then(|dir| directory.sync().map(|()| dir)).map_err(
                    |source| StorageError::io(format!("creating {}", path.display()), source),
                )?;
            Ok::<_, StorageError>(Arc::new(dir) as Arc<dyn StoreDir>)
        };
        let series_dir = subdirectory(SERIES_DIRECTORY)?;
        let mut tables = BTreeMap::new();
        let mut retained = Vec::new();
        let mut builds = Vec::new();
        let no_thread = |source| StorageError::io("starting the store's threads", source);
        for spec in &config.tables {
            let part_config = PartConfig {
                table: spec.table.clone(),
                layout: spec.layout,
                resources: Arc::clone(&resources),
                clock: config.clock,
                compacts_rows: spec.compacts_rows,
            };
            let dir = subdirectory(&format!("{TABLE_PREFIX}{}", spec.table))?;
            let store = Arc::new(PartStore::open(dir, part_config)?);
            let series = open_series(&series_dir, spec, &store)?;
            if let Some(series) = series.as_ref().filter(|series| !series.index.is_complete()) {
                let build = Build::start(Arc::clone(&store), Arc::clone(series));
                builds.push(build.map_err(no_thread)?);
            }
            retained.push(RetainedTable {
                store: Arc::clone(&store),
                series: series.clone(),
                row_secs: spec.row_secs,
            });
            if let Some(retention) = &config.retention {
                store.set_retention(Arc::clone(retention), spec.row_secs);
            }
            tables.insert(spec.table.clone(), Arc::new(PartTable::new(store, series)));
        }
        let keeper = match &config.retention {
            Some(retention) => Some(Arc::new(open_keeper(config, retention, retained)?)),
            None => None,
        };
        let stores = tables.values().map(|table| Arc::clone(table.store())).collect();
        let merger = Mutex::new(Some(PartMerger::start(stores).map_err(no_thread)?));
        let thread = keeper.clone().map(RetentionThread::start).transpose().map_err(no_thread)?;
        let (builds, retention) = (Mutex::new(builds), Mutex::new(thread));
        Ok(Self { tables, resources, builds, merger, retention, keeper, directory })
    }

    fn options(config: &PartStorageConfig) -> (usize, ClockMs) {
        (config.read_threads, config.clock)
    }

    fn tables(&self) -> BTreeMap<Table, Arc<dyn DirectTable>> {
        let shared = |table: &Arc<PartTable>| Arc::clone(table) as Arc<dyn DirectTable>;
        self.tables.iter().map(|(name, table)| (name.clone(), shared(table))).collect()
    }

    fn stop(&self) {
        drop(self.retention.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.merger.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(std::mem::take(&mut *self.builds.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    fn release(&self) -> Result<(), StorageError> {
        self.directory.release();
        Ok(())
    }

    fn health(&self) -> Vec<HealthProblem> {
        let mut problems: Vec<HealthProblem> =
            self.tables.values().flat_map(|table| table.store().health()).collect();
        if let Some(merger) = &*self.merger.lock().unwrap_or_else(PoisonError::into_inner) {
            problems.extend(merger.health());
        }
        problems.extend(self.keeper.iter().flat_map(|keeper| keeper.health()));
        problems.truncate(MAX_PROBLEMS);
        problems
    }

    fn quarantine(&self) -> Arc<dyn Quarantine> {
        Arc::new(PartQuarantine::new(self.tables.clone()))
    }

    fn verifier(&self) -> Arc<dyn Verifier> {
        Arc::new(PartVerifier::new(self.tables.clone(), self.keeper.clone()))
    }

    fn pin_files(&self) -> Result<PinnedFiles, StorageError> {
        let mut pinned = self.pin_tables();
        self.directory.path().clone_into(&mut pinned.root);
        Ok(pinned)
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let mut sums: BTreeMap<&'static str, f64> = BTreeMap::new();
        for table in self.tables.values() {
            for (name, value) in table.gauges() {
                *sums.entry(name).or_default() += value;
            }
        }
        let retention = self.keeper.iter().flat_map(|keeper| keeper.gauges());
        sums.into_iter().chain(self.resources.gauges()).chain(retention).collect()
    }

    fn log_mark(&self) -> Result<LogMark, StorageError> {
        let Some(table) = self.marked_table() else { return Ok(LogMark::Unsupported) };
        Ok(table.store().log_mark().map_or(LogMark::Absent, LogMark::Recorded))
    }

    fn set_log_mark(&self, mark: Bytes) -> Result<(), StorageError> {
        self.request_merges();
        let Some(table) = self.marked_table() else { return Ok(()) };
        Ok(table.store().set_log_mark(mark)?)
    }

    fn set_held_rows(&self, held: &Arc<dyn HeldRows>) {
        for table in self.tables.values() {
            table.store().set_held_rows(Arc::clone(held));
        }
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
                    _ => Self::Io { what: what.into(), error: source },
                }
            }
            PartError::DiskFull => Self::DiskFull,
            PartError::Behind => Self::Throttled("merges of parts are behind"),
            PartError::Stopped => Self::Closed,
            PartError::Damaged { .. }
            | PartError::Quarantined { .. }
            | PartError::Unsupported { .. } => Self::Damaged(error.to_string().into()),
            PartError::UnknownVersion(unknown) => unknown.into(),
            PartError::Row(_) => Self::Backend(error.to_string().into()),
        }
    }
}
