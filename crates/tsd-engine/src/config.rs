//! Settings of the engine.
//!
//! Defaults are OpenTSDB's for the settings that it has. The command maps the keys of the configuration file to these
//! fields.

use std::{sync::Arc, time::Duration};

use tsd_model::{HistogramCodecs, MergeRule, TableSchema};
use tsd_runtime::{Clock, ProcessMemory, SystemClock, settings};
use tsd_storage::{ByteBudget, Retention, Table};

use crate::{
    client_stats::ClientStats, file_problems::FileProblems, point_plugins::PointPlugins,
    query::LimitOverrides, uid::NamePeers,
};

pub(crate) mod rollups;

pub use rollups::Rollups;

settings! {
    /// All settings of an engine.
    #[derive(Clone, Debug)]
    pub struct EngineConfig {
        /// UID widths and salting.
        pub schema: TableSchema = TableSchema::opentsdb_default(),
        /// Names of the tables.
        pub tables: Tables = Tables::default(),
        /// Names and their UIDs.
        pub uids: UidConfig = UidConfig::default(),
        /// Write path.
        pub ingest: IngestConfig = IngestConfig::default(),
        /// Row compaction.
        pub compaction: CompactionConfig = CompactionConfig::default(),
        /// How cells of a row are merged.
        pub rows: RowConfig = RowConfig::default(),
        /// Read path.
        pub query: QueryConfig = QueryConfig::default(),
        /// Rollups and pre-aggregates; `None` if disabled (`tsd.rollups.enable`).
        pub rollups: Option<Rollups> = None,
        /// Histogram codecs (`tsd.core.histograms.config`); without them no histograms are written
        /// or read.
        pub histograms: Option<HistogramCodecs> = None,
        /// Which series meta data is written.
        pub meta_tracking: MetaTracking = MetaTracking::Off,
        /// `tsdb uid metasync` writes a TSMeta for a series that has neither that nor a counter.
        pub realtime_series_meta: bool = false,
        /// Builds trees (`tsd.core.tree.enable_processing`): as series come in, if their meta objects are written, and
        /// in `tsdb uid treesync`.
        pub tree_processing: bool = false,
        /// Other daemons may write the same tables, as in HBase.
        pub multi_writer: bool = false,
        /// Checks at start-up that the tables exist. Off if that is checked elsewhere, or if the backend may be
        /// unavailable.
        pub check_tables: bool = true,
        /// Flushes the storage on shutdown. Off if closing the storage does that.
        pub flush_on_shutdown: bool = true,
        /// Statistics of the storage's client, for the `stats` command.
        pub client_stats: Option<ClientStats> = None,
        /// Threads that actors run on; 0 means the number of cores, at most 8.
        pub actor_threads: usize = 0,
        /// Memory budget of the process.
        pub memory: ProcessMemory = ProcessMemory::unlimited(),
        /// Problems of the files that are re-read while the engine runs.
        pub file_problems: FileProblems = FileProblems::default(),
        /// Source of the current time.
        pub clock: Arc<dyn Clock> = Arc::new(SystemClock),
        /// Retention of the points, if the store has one.
        pub retention: Option<Arc<Retention>> = None,
        /// Queues of the plug-ins that get points.
        pub plugins: PointPlugins = PointPlugins::default(),
        /// The other nodes of the cluster, if there is one.
        pub name_peers: Option<Arc<dyn NamePeers>> = None,
    }
}

impl EngineConfig {
    /// True if series are looked up in the meta table by default, because this daemon or another one records them
    /// there. Otherwise the table is empty or outdated.
    #[must_use]
    pub fn tracks_series(&self) -> bool {
        self.multi_writer || self.fills_meta_table()
    }

    /// True if this daemon records the series of its points in the meta table.
    #[must_use]
    pub(crate) fn fills_meta_table(&self) -> bool {
        self.meta_tracking != MetaTracking::Off
    }
}

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
    /// UID assignment and caching.
    #[derive(Clone, Debug)]
    pub struct UidConfig {
        /// Points may create metrics.
        pub auto_create_metrics: bool = false,
        /// Points may create tag keys.
        pub auto_create_tagks: bool = true,
        /// Points may create tag values.
        pub auto_create_tagvs: bool = true,
        /// Assigns random metric UIDs instead of using the counter.
        pub random_metrics: bool = false,
        /// Characters allowed in names in addition to the default ones.
        pub allow_specialchars: String = String::new(),
        /// Stores letters above U+00FF as `?`, as OpenTSDB does, so names that differ only in such letters are equal.
        /// Off: rejects points with such names.
        pub fold_unmappable_letters: bool = false,
        /// Writes a meta object with each new UID.
        pub realtime_meta: bool = false,
        /// White list of new names.
        pub filter: Option<WhiteList> = None,
        /// Most series of a metric, if the store has a complete series index; 0 means no limit. Points of further
        /// series are rejected.
        pub max_series_per_metric: u64 = 0,
        /// Most names that may wait for a UID; further names are rejected.
        pub max_pending: usize = 200_000,
        /// Most cached names of each kind; a full cache is cleared.
        pub max_cached_names: usize = 5_000_000,
        /// Most names per increment of a counter.
        pub max_batch: usize = 1_024,
        /// Most names that get a UID per second; further names wait. 0 means no limit.
        pub max_new_per_second: u32 = 0,
    }
}

/// Patterns of the built-in UID filter. A new name must match every pattern of its kind, at any position.
#[derive(Clone, Debug, Default)]
pub struct WhiteList {
    /// Patterns for metrics.
    pub metric_patterns: Vec<String>,
    /// Patterns for tag keys.
    pub tagk_patterns: Vec<String>,
    /// Patterns for tag values.
    pub tagv_patterns: Vec<String>,
}

settings! {
    /// The write path.
    #[derive(Clone, Debug)]
    pub struct IngestConfig {
        /// Most tags of a point.
        pub max_tags: usize = 8,
        /// Stores a row's points in one append column.
        pub enable_appends: bool = false,
        /// Most series in the series cache.
        pub series_cache_entries: usize = 1_000_000,
        /// Write actors; 0 means one per salt bucket, at most 64.
        pub write_actors: usize = 0,
        /// Bytes of cells that wait for the store or are being written. Senders wait if it is exhausted. The store
        /// shares it.
        pub budget: ByteBudget = ByteBudget::new(160 << 20),
        /// Most bytes of cells per storage call of a write actor.
        pub max_write_bytes: usize = 2 << 20,
        /// How long a sender waits for the budget before its points are rejected.
        pub queue_deadline: Duration = Duration::from_secs(10),
        /// How long a request waits for its points to be stored before its client gets a retryable error. The points
        /// may still be stored later.
        pub store_deadline: Duration = Duration::from_secs(10),
        /// Most chunks in flight per pipelined session, which also bounds its failures. It does not limit memory: a
        /// chunk has at most the bytes of one read, and the budget covers chunks in flight. A session that waits reads
        /// more at once, so chunks grow with the load.
        pub session_chunks_in_flight: usize = 8,
    }
}

settings! {
    /// When rows are compacted.
    #[derive(Clone, Debug)]
    pub struct CompactionConfig {
        /// Enables row compaction (`tsd.storage.enable_compaction`).
        pub enabled: bool = true,
        /// Time between rounds.
        pub flush_interval: Duration = Duration::from_secs(10),
        /// A round runs if more rows than this are queued.
        pub min_flush_threshold: usize = 100,
        /// Most rows compacted concurrently.
        pub max_concurrent_flushes: usize = 10_000,
        /// Most rows compacted, as a multiple of the rate at which rows are written.
        pub flush_speed: u32 = 2,
        /// Compacts fragmented old rows that queries read.
        pub on_read: bool = true,
        /// Most bytes of queued row keys, over all buckets.
        pub max_queue_bytes: usize = 256 << 20,
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

/// Meta data that is written for each series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaTracking {
    /// Nothing.
    #[default]
    Off,
    /// A counter that is always 1. Its timestamp is the time of the series' last point.
    Mark,
    /// A meta object for each series without one.
    Describe,
    /// A counter of points, and a meta object with the first point.
    Count,
}

impl MetaTracking {
    /// Combines OpenTSDB's three settings: tracking, real-time meta objects, counting.
    #[must_use]
    pub const fn from_settings(tracking: bool, realtime: bool, incrementing: bool) -> Self {
        match (tracking, realtime, incrementing) {
            (false, _, _) => Self::Off,
            (true, false, _) => Self::Mark,
            (true, true, false) => Self::Describe,
            (true, true, true) => Self::Count,
        }
    }
}

impl RowConfig {
    /// The rule for two values at one instant.
    #[must_use]
    pub(crate) const fn merge_rule(&self) -> MergeRule {
        MergeRule::from_settings(self.fix_duplicates, self.use_otsdb_timestamp, self.use_max_value)
    }
}
