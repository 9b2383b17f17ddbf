//! Settings of reads, and of the tables and rows that they read.

use std::time::Duration;

use tsd_model::MergeRule;
use tsd_runtime::settings;
use tsd_storage::Table;

use crate::query::LimitOverrides;

mod rollups;

pub use rollups::Rollups;

settings! {
    /// Names of the tables.
    #[derive(Clone, Debug)]
    pub struct Tables {
        /// Points (`tsdb`).
        pub data: Table = Table::new("tsdb"),
        /// UIDs (`tsdb-uid`).
        pub uid: Table = Table::new("tsdb-uid"),
        /// Series meta data (`tsdb-meta`).
        pub meta: Table = Table::new("tsdb-meta"),
        /// Trees (`tsdb-tree`).
        pub tree: Table = Table::new("tsdb-tree"),
    }
}

settings! {
    /// Rules for merging the cells of a row.
    #[derive(Clone, Debug)]
    pub struct RowConfig {
        /// Of two values at one instant, the newest cell wins. Off: they are an error.
        pub fix_duplicates: bool = true,
        /// Cell timestamps are the times of their points.
        pub use_otsdb_timestamp: bool = false,
        /// With `use_otsdb_timestamp`: of two values at one instant, the larger wins. Off: the smaller wins.
        pub use_max_value: bool = true,
        /// Rewrites out-of-order append columns of old rows that queries read.
        pub repair_appends: bool = false,
        /// With `use_otsdb_timestamp`: queries that start at this time (epoch milliseconds) or later limit the cell
        /// timestamps that they read.
        pub date_tiered_compaction_start_ms: i64 = 0,
    }
}

settings! {
    /// The read path.
    #[derive(Clone, Debug)]
    pub struct QueryConfig {
        /// Longest duration of a query; `None` means no limit.
        pub timeout: Option<Duration> = None,
        /// Queries that take at least this time are logged with their costs; `None` means none.
        pub slow_log: Option<Duration> = None,
        /// Most bytes of cells that a query may read; 0 means no limit.
        pub max_bytes: u64 = 0,
        /// Most cells that a query may read; 0 means no limit.
        pub max_data_points: u64 = 0,
        /// A query may lift `max_bytes`.
        pub allow_bytes_override: bool = false,
        /// A query may lift `max_data_points`.
        pub allow_data_points_override: bool = false,
        /// Limits of single metrics.
        pub overrides: LimitOverrides = LimitOverrides::default(),
        /// Most bytes of memory per query; 0 means no limit.
        pub max_memory_bytes: u64 = 1 << 30,
        /// Most bytes of memory of all queries; 0 means no limit.
        pub max_total_memory_bytes: u64 = 2 << 30,
        /// Most sub queries per query; 0 means no limit.
        pub max_sub_queries: usize = 1_000,
        /// A client may send a query again while it is running.
        pub allow_duplicates: bool = true,
        /// Most literals of a filter that are resolved before the scan.
        pub filter_expansion_limit: usize = 4_096,
        /// Queries return the intact data of damaged rows and name the quarantined files, instead of failing.
        pub allow_damaged: bool = false,
        /// A delete by query deletes whole rows of the data table, as in OpenTSDB. Off: it deletes only the points
        /// that were read and are in the query range.
        pub delete_whole_rows: bool = false,
        /// Ignores literals without a UID instead of failing.
        pub skip_unresolved_tagvs: bool = false,
        /// Queries with explicit tags return what HBase's fuzzy row filter would.
        pub enable_fuzzy_filter: bool = true,
        /// All rows of a series are in its salt bucket. Off if the number of buckets was changed after data was
        /// written: every bucket is then read for every series.
        pub series_keep_bucket: bool = true,
        /// When queries read rows by the series index of the store.
        pub series_index: SeriesIndexUse = SeriesIndexUse::Auto,
        /// Reads points by series instead of by rows, if the store can.
        pub series_reads: bool = true,
        /// If the series of a read are divided, each thread reads series with at least this many stored bytes.
        pub series_range_bytes: u64 = 256 << 10,
        /// Bytes of the query cache; 0 disables it.
        pub cache_bytes: u64 = 0,
        /// Identical queries that arrive at the same time share one execution.
        pub share_executions: bool = false,
        /// Reads summaries of hours and days if the store has them and the result is the same. Tests that compare both
        /// turn it off.
        pub summaries: bool = true,
        /// Rows per batch of a scan.
        pub scan_batch_rows: usize = 128,
        /// Most open scans per query. The storage prefetches one batch for each.
        pub max_scans: usize = 8,
        /// Most wide queries that run concurrently. Small queries do not count.
        pub max_running: usize = 16,
        /// Most queued queries; three quarters of them may be wide.
        pub max_waiting: usize = 256,
        /// Query threads; 0 means the number of cores.
        pub threads: usize = 0,
        /// Sizes of the steps in which queries work; tests make them small.
        pub sizes: WorkSizes = WorkSizes::default(),
    }
}

settings! {
    /// Sizes of the steps in which queries work and reserve memory. No result depends on them.
    #[derive(Clone, Copy, Debug)]
    pub struct WorkSizes {
        /// Most points of a group in one time chunk; larger groups are split.
        pub chunk_points: usize = 1 << 18,
        /// Most points that a query's own task aggregates, which takes about a time slice.
        pub inline_points: usize = 1 << 14,
        /// Bytes reserved for the first batch of a scan before it is read. Later batches reserve at least as much.
        pub first_batch_bytes: usize = 64 << 10,
        /// Most bytes granted beyond a reservation, so that not every reservation asks for memory.
        pub margin_bytes: u64 = 256 << 10,
        /// Memory of a response in addition to its result, in bytes: generated chunks that were not sent yet, and the
        /// state of their compression.
        pub response_bytes: usize = 256 << 10,
    }
}

/// When queries read rows by the series index of the store, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesIndexUse {
    /// If that is cheaper than a scan.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl RowConfig {
    /// The rule for two values at one instant.
    #[must_use]
    pub const fn merge_rule(&self) -> MergeRule {
        MergeRule::from_settings(self.fix_duplicates, self.use_otsdb_timestamp, self.use_max_value)
    }
}

impl WorkSizes {
    /// Sizes with which few points take many steps, for tests.
    #[must_use]
    pub const fn small() -> Self {
        Self {
            chunk_points: 16,
            inline_points: 16,
            first_batch_bytes: 1 << 10,
            margin_bytes: 1 << 10,
            response_bytes: 1 << 10,
        }
    }
}
