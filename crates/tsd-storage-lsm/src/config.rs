//! Configuration of the store and of its tables.

use std::{path::PathBuf, sync::Arc};

use tsd_files::DiskSpace;
use tsd_storage::{ClockMs, Table, system_clock_ms};

/// Configuration of a store.
#[derive(Clone, Debug)]
pub struct LsmConfig {
    /// Directory of the store; created if missing. One process may have it open.
    pub dir: PathBuf,
    /// All tables. Other tables in the directory are not opened.
    pub tables: Vec<Table>,
    /// Capacity of the block cache of all tables, in bytes.
    pub cache_bytes: u64,
    /// Number of threads for reads; each scan and get uses one while it reads from disk.
    pub read_threads: usize,
    /// Disk of the store. Writes that would use its reserve fail as on a full disk. A step of LSM
    /// compaction needs one GiB more, or the size of the table if that is less.
    pub space: Arc<DiskSpace>,
    /// Number of files that are kept open; reads of other files open them again.
    pub open_files: usize,
    /// Clock for cells without a timestamp.
    pub clock: ClockMs,
}

impl LsmConfig {
    /// Default of [`Self::cache_bytes`].
    pub const DEFAULT_CACHE_BYTES: u64 = 64 * 1024 * 1024;
    /// Default of [`Self::open_files`].
    pub const DEFAULT_OPEN_FILES: usize = 512;
    /// Default reserve of [`Self::space`], in bytes.
    pub const DEFAULT_RESERVE_BYTES: u64 = 64 * 1024 * 1024;

    /// Default configuration: 64 MiB of cache, one read thread per core, 64 MiB of reserve.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, tables: Vec<Table>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let dir = dir.into();
        Self {
            space: Arc::new(DiskSpace::new(dir.clone(), Self::DEFAULT_RESERVE_BYTES)),
            dir,
            tables,
            cache_bytes: Self::DEFAULT_CACHE_BYTES,
            read_threads: cores.max(2),
            open_files: Self::DEFAULT_OPEN_FILES,
            clock: system_clock_ms,
        }
    }
}
