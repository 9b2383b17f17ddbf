//! Configuration of the store and of its tables.

use std::{path::PathBuf, sync::Arc};

use tsd_files::DiskSpace;
use tsd_model::TableSchema;
use tsd_storage::{ClockMs, Retention, Table, system_clock_ms};

/// Content of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// The points of all series, in rows of an hour, with an index of the series.
    Data,
    /// Rollups or pre-aggregates.
    Rollups {
        /// Seconds of the longest row.
        row_secs: u64,
    },
    /// Single cells: UID, meta and tree tables.
    Cells,
}

/// A table of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedTable {
    /// Name of the table.
    pub table: Table,
    /// Content of the table. Points or cells: fixed when the table is created.
    pub kind: TableKind,
}

/// Configuration of a store.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Directory of the store; created if missing. One process may have it open.
    pub dir: PathBuf,
    /// Widths of the row keys of tables of points.
    pub schema: TableSchema,
    /// The configured tables. Other tables in the directory are opened too, since the log may have
    /// rows of them.
    pub tables: Vec<EmbeddedTable>,
    /// Capacity of all caches, bytes.
    pub cache_bytes: u64,
    /// Number of files that are kept open; reads of other files open them again.
    pub open_files: usize,
    /// Number of threads for reads; each scan and get uses one while it reads from disk.
    pub read_threads: usize,
    /// Files outside the store that the next start needs. While one is missing, the store rejects
    /// writes.
    pub needed_files: Vec<PathBuf>,
    /// Disk of the store. Writes that would use its reserve fail as on a full disk.
    pub space: Arc<DiskSpace>,
    /// Clock for cells without a timestamp; it also decides which rows are old.
    pub clock: ClockMs,
    /// True if merges compact old rows of the data table.
    pub compacts_rows: bool,
    /// Retention of points; `None` keeps them for ever.
    pub retention: Option<Arc<Retention>>,
}

impl EmbeddedTable {
    /// The table of points of all series.
    #[must_use]
    pub const fn data(table: Table) -> Self {
        Self { table, kind: TableKind::Data }
    }

    /// A table of single cells.
    #[must_use]
    pub const fn cells(table: Table) -> Self {
        Self { table, kind: TableKind::Cells }
    }
}

impl EmbeddedConfig {
    /// Default of [`Self::open_files`].
    pub const DEFAULT_OPEN_FILES: usize = 512;
    /// Default of [`Self::cache_bytes`].
    pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;
    /// Default reserve of [`Self::space`], bytes.
    pub const DEFAULT_RESERVE_BYTES: u64 = 64 << 20;

    /// Default configuration: 64 MiB of cache, one read thread per core, 64 MiB of reserve.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, schema: TableSchema, tables: Vec<EmbeddedTable>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let dir = dir.into();
        Self {
            space: Arc::new(DiskSpace::new(dir.clone(), Self::DEFAULT_RESERVE_BYTES)),
            dir,
            schema,
            tables,
            cache_bytes: Self::DEFAULT_CACHE_BYTES,
            open_files: Self::DEFAULT_OPEN_FILES,
            read_threads: cores.max(2),
            needed_files: Vec::new(),
            clock: system_clock_ms,
            compacts_rows: true,
            retention: None,
        }
    }
}
