//! What an operator may choose about the store.

use std::path::PathBuf;

use tsd_storage::{ClockMs, Table, system_clock_ms};

/// How a table's rows lie in its tree. Fixed when the table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLayout {
    /// An entry is a run of a row's cells, points packed: data and rollup tables.
    Points,
    /// An entry is a cell: UID, meta and tree tables.
    Cells,
}

/// A table of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name.
    pub table: Table,
    /// How its rows lie.
    pub layout: TableLayout,
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct LsmConfig {
    /// Directory of the store; made where it is missing. One process may have it open.
    pub dir: PathBuf,
    /// All tables. Others of the directory are left alone and cannot be reached.
    pub tables: Vec<TableSpec>,
    /// Bytes of blocks kept in memory, over all tables.
    pub cache_bytes: u64,
    /// Threads that read. Each scan and get takes one while it touches the disk.
    pub read_threads: usize,
    /// Bytes of the disk that are left free: below, writes fail as on a full disk. LSM compaction
    /// wants another GiB (or the size of the table, if that is less) before it begins a step.
    pub reserve_bytes: u64,
    /// Cell timestamps where the writer fixed none.
    pub clock: ClockMs,
}

impl LsmConfig {
    /// Bytes of block cache where nothing else is configured.
    pub const DEFAULT_CACHE_BYTES: u64 = 64 * 1024 * 1024;
    /// Bytes left free where nothing else is configured.
    pub const DEFAULT_RESERVE_BYTES: u64 = 64 * 1024 * 1024;

    /// Ordinary settings: 64 MiB of cache, a reading thread a core, 64 MiB left free.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, tables: Vec<TableSpec>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            dir: dir.into(),
            tables,
            cache_bytes: Self::DEFAULT_CACHE_BYTES,
            read_threads: cores.max(2),
            reserve_bytes: Self::DEFAULT_RESERVE_BYTES,
            clock: system_clock_ms,
        }
    }
}

impl TableSpec {
    /// A table of points.
    #[must_use]
    pub const fn points(table: Table) -> Self {
        Self { table, layout: TableLayout::Points }
    }

    /// A table of single cells.
    #[must_use]
    pub const fn cells(table: Table) -> Self {
        Self { table, layout: TableLayout::Cells }
    }
}
