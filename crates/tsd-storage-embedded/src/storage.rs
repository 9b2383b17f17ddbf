//! Implements the storage traits for the tables of both kinds.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use bytes::Bytes;
use tsd_files::removed_file;
use tsd_model::BaseTime;
use tsd_storage::{
    ClockMs, DirectBackend, DirectStore, DirectTable, HealthProblem, HeldRows, LogMark,
    PinnedFiles, Quarantine, StorageError, Table, Verifier,
};
use tsd_storage_lsm::{LsmConfig, LsmTables};
use tsd_storage_parts::{PartLayout, PartStorageConfig, PartTableSpec, PartTables};

use crate::{
    EmbeddedConfig, TableKind,
    directories::{CELLS, POINTS, STORE},
    points_list,
    quarantine::BothQuarantines,
    store_progress::{self, StoreProgress},
    unknown_version::unknown_version,
    verifier::BothVerifiers,
};

/// The embedded store. One log flushes the rows of all its tables.
pub type EmbeddedStorage = DirectStore<EmbeddedTables>;

/// Rows of rollups cover a year at most.
const MAX_SPAN_DAYS: u64 = 366;
/// The small tables get one in this many bytes of cache, and one in this many open files. They need
/// little: the engine caches UIDs itself, and the trees have a few dozen files.
const CELLS_CACHE_PART: u64 = 8;
const CELLS_FILES_PART: usize = 4;

/// Tables of points and small tables.
#[derive(Debug)]
pub struct EmbeddedTables {
    dir: PathBuf,
    /// See [`EmbeddedConfig::needed_files`].
    needed_files: Vec<PathBuf>,
    points: PartTables,
    cells: LsmTables,
}

/// The tables to open: the configured tables, and other tables in the directory.
struct Tables {
    points: Vec<PartTableSpec>,
    cells: Vec<Table>,
}

impl Tables {
    fn new(config: &EmbeddedConfig) -> Result<Self, StorageError> {
        let EmbeddedConfig { dir, schema, tables, .. } = config;
        let stored_points = tsd_storage_parts::existing_tables(&dir.join(POINTS))?;
        let stored_cells = tsd_storage_lsm::existing_tables(&dir.join(CELLS))?;
        let mut all = Self { points: Vec::new(), cells: Vec::new() };
        for spec in tables {
            let stored = stored_points.iter().find(|(table, _)| *table == spec.table);
            let is_points = spec.kind != TableKind::Cells;
            if (is_points && stored_cells.contains(&spec.table)) || (!is_points && stored.is_some())
            {
                let text = format!("table {} of {} has another layout", spec.table, dir.display());
                return Err(StorageError::Damaged(text.into()));
            }
            let table = spec.table.clone();
            if !is_points {
                all.cells.push(table);
                continue;
            }
            // Other row lengths may have been configured when the table was created.
            let layout = match stored {
                Some((_, layout)) => *layout,
                None => PartLayout::try_new(schema, span_secs(spec.kind))?,
            };
            let is_data = spec.kind == TableKind::Data;
            // Rollups may have been written with longer rows.
            let row_secs = if is_data { BaseTime::SPAN_SECONDS } else { layout.span_secs() };
            all.points.push(PartTableSpec {
                row_secs,
                series: is_data.then_some(*schema),
                compacts_rows: is_data && config.compacts_rows,
                ..PartTableSpec::new(table, layout)
            });
        }
        for (table, layout) in stored_points {
            if !all.points.iter().any(|spec| spec.table == table) {
                all.points.push(PartTableSpec::new(table, layout));
            }
        }
        for table in stored_cells {
            if !all.cells.contains(&table) {
                all.cells.push(table);
            }
        }
        Ok(all)
    }
}

/// Seconds of a span of a new table: a UTC day, or more for longer rows, so that each row is in one
/// span.
fn span_secs(kind: TableKind) -> u32 {
    let days = match kind {
        TableKind::Data | TableKind::Cells => 1,
        TableKind::Rollups { row_secs } => row_secs.div_ceil(u64::from(PartLayout::DAY_SECS)),
    };
    u32::try_from(days.clamp(1, MAX_SPAN_DAYS))
        .map_or(PartLayout::DAY_SECS, |days| days * PartLayout::DAY_SECS)
}

impl DirectBackend for EmbeddedTables {
    type Config = EmbeddedConfig;

    fn open(config: &EmbeddedConfig) -> Result<Self, StorageError> {
        // Checked before anything is changed, also in the other kind of tables.
        if let Some(unknown) = unknown_version(&config.dir)? {
            return Err(unknown.into());
        }
        points_list::check(&config.dir)?;
        store_progress::check(&config.dir)?;
        let tables = Tables::new(config)?;
        let listed: Vec<Table> = tables.points.iter().map(|spec| spec.table.clone()).collect();
        let (read_threads, clock) = Self::options(config);
        let cells_cache = config.cache_bytes / CELLS_CACHE_PART;
        let cells_files = config.open_files / CELLS_FILES_PART;
        let cells = LsmTables::open(&LsmConfig {
            dir: config.dir.join(CELLS),
            tables: tables.cells,
            cache_bytes: cells_cache,
            open_files: cells_files,
            read_threads,
            space: Arc::clone(&config.space),
            clock,
        })?;
        store_progress::discard_older_indexes(&config.dir)?;
        let points = PartTables::open(&PartStorageConfig {
            dir: config.dir.join(POINTS),
            tables: tables.points,
            cache_bytes: config.cache_bytes - cells_cache,
            open_files: config.open_files - cells_files,
            read_threads,
            space: Arc::clone(&config.space),
            clock,
            retention: config.retention.clone(),
        })?;
        points_list::register(&config.dir, &listed)?;
        StoreProgress::of(&points, &cells).renew(&config.dir);
        let needed_files = config.needed_files.clone();
        Ok(Self { dir: config.dir.clone(), needed_files, points, cells })
    }

    fn options(config: &EmbeddedConfig) -> (usize, ClockMs) {
        (config.read_threads, config.clock)
    }

    fn tables(&self) -> BTreeMap<Table, Arc<dyn DirectTable>> {
        let mut tables = self.points.tables();
        tables.extend(self.cells.tables());
        tables
    }

    fn stop(&self) {
        self.points.stop();
        self.cells.stop();
    }

    fn release(&self) -> Result<(), StorageError> {
        self.points.release()?;
        self.cells.release()
    }

    fn health(&self) -> Vec<HealthProblem> {
        let mut problems = self.points.health();
        problems.extend(self.cells.health());
        problems
    }

    fn quarantine(&self) -> Arc<dyn Quarantine> {
        let (points, cells) = (self.points.quarantine(), self.cells.quarantine());
        Arc::new(BothQuarantines { points, cells })
    }

    fn verifier(&self) -> Arc<dyn Verifier> {
        let (points, cells) = (self.points.verifier(), self.cells.verifier());
        Arc::new(BothVerifiers { points, cells })
    }

    fn pin_files(&self) -> Result<PinnedFiles, StorageError> {
        let mut pinned = PinnedFiles::default();
        self.dir.clone_into(&mut pinned.root);
        // Small tables first: then the pinned parts have no UID that these tables lack, even if
        // rows are flushed in between.
        let (cells, points) = (self.cells.pin_files()?, self.points.pin_files()?);
        pinned.add(&format!("{STORE}/{CELLS}"), cells);
        pinned.add(&format!("{STORE}/{POINTS}"), points);
        Ok(pinned)
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let mut gauges = self.points.gauges();
        gauges.extend(self.cells.gauges());
        gauges
    }

    fn log_mark(&self) -> Result<LogMark, StorageError> {
        self.cells.log_mark()
    }

    fn set_log_mark(&self, mark: Bytes) -> Result<(), StorageError> {
        // The log does not hold the flushed rows any more.
        self.points.request_merges();
        StoreProgress::of(&self.points, &self.cells).record(&self.dir)?;
        self.cells.set_log_mark(mark)
    }

    fn check_files(&self) -> Result<(), StorageError> {
        self.points.check_files()?;
        self.cells.check_files()?;
        match self.needed_files.iter().find(|file| matches!(file.try_exists(), Ok(false))) {
            Some(removed) => Err(removed_file(removed)),
            None => Ok(()),
        }
    }

    fn set_held_rows(&self, held: &Arc<dyn HeldRows>) {
        self.points.set_held_rows(held);
    }
}
