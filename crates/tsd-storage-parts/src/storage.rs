//! The storage traits on top of parts: tables by name.
//!
//! Scans return rows in order of their keys, which is not the order of parts, so a scan costs a merge. The
//! write-ahead log flushes rows. Any other write becomes a small part of its own; only tools and tests use such
//! writes.

mod direct_table;
mod pin;
mod quarantine;
mod row_scan;
mod scan_job;
mod selected;
mod series_job;
mod table;
mod verifier;

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tsd_files::{DiskDir, DiskSpace, LockError, StoreDir, check_place};
use tsd_model::TableSchema;
use tsd_storage::{
    ClockMs, DirectBackend, DirectStore, DirectTable, HealthProblem, HeldRows, LogMark,
    PinnedFiles, Quarantine, Retention, StorageError, Table, Verifier, system_clock_ms,
};

pub use self::pin::verify_tables;
use self::quarantine::PartQuarantine;
#[cfg(test)]
pub(crate) use self::row_scan::{RowScan, ScanStep};
pub(crate) use self::{table::PartTable, verifier::PartVerifier};
use crate::{
    error::PartError,
    layout::PartLayout,
    manifest::{has_table, read_copies, stored_layout},
    merger::PartMerger,
    resources::PartResources,
    retention::{RetainedTable, RetentionKeeper, RetentionThread},
    series::{SeriesIndexPosition, TableSeries, build::Build},
    store::{PartConfig, PartStore},
};

/// Maximum number of reported problems. The metric of quarantined files counts all.
const MAX_PROBLEMS: usize = 32;
/// Directory of the files of series indexes.
pub(crate) const SERIES_DIRECTORY: &str = "series";

/// A table of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTableSpec {
    /// Name of the table.
    pub table: Table,
    /// Layout of the keys and spans, fixed when the table is created.
    pub layout: PartLayout,
    /// Widths of the row keys, if the table has a series index. Opening the table once without it discards the
    /// index; the next open with it rebuilds the index.
    pub series: Option<TableSchema>,
    /// True if merges compact rows that are old enough and that no log in front holds.
    pub compacts_rows: bool,
    /// Length of the longest row, seconds.
    pub row_secs: u32,
}

/// Configuration of a store.
#[derive(Clone, Debug)]
pub struct PartStorageConfig {
    /// Directory of the store; created if missing. One process may have it open.
    pub dir: PathBuf,
    /// All tables to open. Other tables in the directory are ignored.
    pub tables: Vec<PartTableSpec>,
    /// Capacity of the cache that all tables share, bytes.
    pub cache_bytes: u64,
    /// Maximum number of files that are kept open.
    pub open_files: usize,
    /// Number of read threads. Each scan and get uses one while it reads from disk.
    pub read_threads: usize,
    /// Disk of the store. A write that would use its reserve fails as on a full disk.
    pub space: Arc<DiskSpace>,
    /// Clock that dates cells without a timestamp.
    pub clock: ClockMs,
    /// How long points are kept; `None` keeps them for ever.
    pub retention: Option<Arc<Retention>>,
}

impl PartTableSpec {
    /// A table without a series index and without row compaction, whose rows are at most as long as a span.
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

/// A store that has only tables of points.
pub type PartStorage = DirectStore<PartTables>;

/// Tables of points, each with its own parts. Damaged parts are quarantined, also at the start.
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

/// The tables of the store in a directory and their layouts; empty without a store.
///
/// # Errors
///
/// An error of the disk, or of a manifest that cannot be read.
pub fn existing_tables(dir: &Path) -> Result<Vec<(Table, PartLayout)>, StorageError> {
    let failed = |source| StorageError::io(format!("reading {}", dir.display()), source);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut tables = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let Some(table) = name.to_str().and_then(Table::of_file_name) else {
            continue;
        };
        let path = dir.join(&name);
        let opened = DiskDir::unlocked(&path).map_err(failed)?;
        tables.extend(stored_layout(&opened)?.map(|layout| (table, layout)));
    }
    tables.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(tables)
}

/// The directory of a table in the directory of a store.
#[must_use]
pub fn table_path(dir: &Path, table: &Table) -> PathBuf {
    dir.join(table.file_name())
}

/// True if the directory of a store has a manifest or a part of the table. Changes nothing.
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

/// Number of the manifest of a table in the directory of a store. The number grows with each change of the table.
/// `None` without a readable manifest; the start names one that cannot be read.
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

/// Position of the series index of a table in the directory of a store; `None` without a readable index.
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

/// Removes the series index of a table in the directory of a store that no process has open. The next start
/// rebuilds the index.
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
    /// Durable positions of the series indexes of all tables.
    pub fn series_index_positions(&self) -> impl Iterator<Item = (&Table, SeriesIndexPosition)> {
        let position = |table: &PartTable| table.series()?.position();
        self.tables.iter().filter_map(move |(name, table)| Some((name, position(table)?)))
    }

    /// Durable manifest numbers of all tables.
    pub fn manifest_numbers(&self) -> impl Iterator<Item = (&Table, u64)> {
        self.tables.iter().map(|(name, table)| (name, table.store().manifest_number()))
    }

    /// The parts of a table; `None` for an unknown table.
    #[must_use]
    pub fn parts(&self, table: &Table) -> Option<&Arc<PartStore>> {
        Some(self.tables.get(table)?.store())
    }

    /// Asks the merge thread to look for merges, for example because the log in front holds fewer rows.
    pub fn request_merges(&self) {
        self.tables.values().for_each(|table| table.store().request_merges());
    }

    /// The table whose manifest has the log mark.
    fn marked_table(&self) -> Option<&Arc<PartTable>> {
        self.tables.values().next()
    }
}

/// Locks the directory of a store.
fn lock_directory(path: &Path) -> Result<DiskDir, StorageError> {
    let shown = path.display();
    DiskDir::lock(path).map_err(|error| match error {
        LockError::InUse { text } => {
            let pid = text.trim().parse::<u32>().ok();
            let by = pid.map_or_else(String::new, |pid| format!(" by process {pid}"));
            StorageError::Unavailable(format!("store {shown} is in use{by}").into())
        }
        LockError::Io(source) => StorageError::io(format!("locking store {shown}"), source),
    })
}

/// Opens the series index of a table, if it has one.
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

/// Opens the recorded state of a store's retention.
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
            let dir = subdirectory(&spec.table.file_name())?;
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
        drop(self.retention.lock().take());
        drop(self.merger.lock().take());
        drop(std::mem::take(&mut *self.builds.lock()));
    }

    fn release(&self) -> Result<(), StorageError> {
        self.directory.release();
        Ok(())
    }

    fn health(&self) -> Vec<HealthProblem> {
        let mut problems: Vec<HealthProblem> =
            self.tables.values().flat_map(|table| table.store().health()).collect();
        if let Some(merger) = &*self.merger.lock() {
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

    fn check_files(&self) -> Result<(), StorageError> {
        check_place(&self.directory)?;
        self.tables.values().try_for_each(|table| table.store().check_files())
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
            | PartError::QuarantinedBlock { .. }
            | PartError::Unsupported { .. } => Self::Damaged(error.to_string().into()),
            PartError::UnknownVersion(unknown) => unknown.into(),
            PartError::Row(_) => Self::Backend(error.to_string().into()),
        }
    }
}
