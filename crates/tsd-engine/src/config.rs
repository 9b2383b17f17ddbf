//! Settings of the engine.
//!
//! Defaults are OpenTSDB's where it has the setting. The keys of its configuration file are mapped
//! to these fields by the command, not here.

use std::{sync::Arc, time::Duration};

use tsd_model::{HistogramCodecs, MergeRule, TableSchema};
use tsd_storage::Table;

use crate::{
    clock::{Clock, SystemClock},
    meta_tracking::MetaTracking,
    query::LimitOverrides,
    stats::ClientStats,
};

mod rollups;

pub use rollups::Rollups;

/// All settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// UID widths and salting.
    pub schema: TableSchema,
    /// Names of the tables.
    pub tables: Tables,
    /// Names and their UIDs.
    pub uids: UidConfig,
    /// Write path.
    pub ingest: IngestConfig,
    /// Row compaction.
    pub compaction: CompactionConfig,
    /// How cells of a row are merged.
    pub rows: RowConfig,
    /// Read path.
    pub query: QueryConfig,
    /// Rollups and pre-aggregates; `None` if disabled (`tsd.rollups.enable`).
    pub rollups: Option<Rollups>,
    /// Histogram codecs (`tsd.core.histograms.config`); without them no histograms are written or
    /// read.
    pub histograms: Option<HistogramCodecs>,
    /// Which series meta data is written.
    pub meta_tracking: MetaTracking,
    /// Checks at start-up that the tables exist. Off if that is checked elsewhere, or the backend
    /// may be unavailable.
    pub check_tables: bool,
    /// Flushes the storage on shutdown. Off if closing the storage does that.
    pub flush_on_shutdown: bool,
    /// Statistics of the storage's client, for the `stats` command.
    pub client_stats: Option<ClientStats>,
    /// Threads that actors run on; 0 means the number of cores, at most 8.
    pub actor_threads: usize,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
}

/// Names of the tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Points (`tsdb`).
    pub data: Table,
    /// UIDs (`tsdb-uid`).
    pub uid: Table,
    /// Series meta data (`tsdb-meta`).
    pub meta: Table,
    /// Trees (`tsdb-tree`).
    pub tree: Table,
}

/// UID assignment and caching.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct UidConfig {
    /// Points may create metrics.
    pub auto_create_metrics: bool,
    /// Points may create tag keys.
    pub auto_create_tagks: bool,
    /// Points may create tag values.
    pub auto_create_tagvs: bool,
    /// Assigns random metric UIDs instead of using the counter.
    pub random_metrics: bool,
    /// Characters allowed in names beside the default ones.
    pub allow_specialchars: String,
    /// Stores letters above U+00FF as `?`, as OpenTSDB does, so names that differ only in them are
    /// equal. Off: a point with such a name is rejected.
    pub fold_unmappable_letters: bool,
    /// Writes a meta object with each new UID.
    pub realtime_meta: bool,
    /// White list of new names.
    pub filter: Option<WhiteList>,
    /// Most names that may wait for a UID; further ones are throttled.
    pub max_pending: usize,
    /// Most cached names of each kind; a full cache is cleared.
    pub max_cached_names: usize,
    /// Most names per increment of a counter.
    pub max_batch: usize,
}

/// Patterns of the built-in UID filter. Every pattern of a kind must match somewhere in a new name.
#[derive(Clone, Debug, Default)]
pub struct WhiteList {
    /// Patterns for metrics.
    pub metric_patterns: Vec<String>,
    /// Patterns for tag keys.
    pub tagk_patterns: Vec<String>,
    /// Patterns for tag values.
    pub tagv_patterns: Vec<String>,
}

/// The write path.
#[derive(Clone, Debug)]
pub struct IngestConfig {
    /// Most tags of a point.
    pub max_tags: usize,
    /// Stores a row's points in one append column.
    pub enable_appends: bool,
    /// Most series in the series cache.
    pub series_cache_entries: usize,
    /// Write actors; 0 means one per salt bucket, at most 64.
    pub write_actors: usize,
    /// Most bytes of cells per write actor; senders wait beyond it.
    pub bucket_queue_bytes: usize,
    /// Most bytes of cells per storage call.
    pub max_write_bytes: usize,
    /// Most storage calls in flight per write actor. Requests that arrive meanwhile are merged into
    /// one call, which is as slow as its slowest cell; a storage that batches by itself works best
    /// with many calls. Chunks of pipelined sessions are ordered: always one call in flight.
    pub max_writes_in_flight: usize,
    /// How long a sender waits for a full write actor before its points are throttled.
    pub queue_deadline: Duration,
    /// How long a request waits for its points to be stored before its client gets a retryable
    /// error. They may still be stored later.
    pub store_deadline: Duration,
    /// Most chunks in flight per pipelined session.
    pub session_chunks_in_flight: usize,
}

/// When rows are compacted.
#[derive(Clone, Debug)]
pub struct CompactionConfig {
    /// Enables row compaction (`tsd.storage.enable_compaction`).
    pub enabled: bool,
    /// Time between rounds.
    pub flush_interval: Duration,
    /// A round runs if more rows than this are queued.
    pub min_flush_threshold: usize,
    /// Most rows compacted concurrently.
    pub max_concurrent_flushes: usize,
    /// Most rows compacted, as a multiple of the rate at which rows are written.
    pub flush_speed: u32,
    /// Compacts fragmented old rows that queries read.
    pub on_read: bool,
    /// Most bytes of queued row keys, over all buckets.
    pub max_queue_bytes: usize,
}

/// How cells of a row are merged.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct RowConfig {
    /// Of two values at one instant the newest cell wins; off: an error.
    pub fix_duplicates: bool,
    /// Cell timestamps are the times of their points.
    pub use_otsdb_timestamp: bool,
    /// With `use_otsdb_timestamp`, the larger of two values at one instant wins, else the smaller.
    pub use_max_value: bool,
    /// Rewrites out-of-order append columns of old rows that queries read.
    pub repair_appends: bool,
    /// With `use_otsdb_timestamp`: queries that start at this time or later (epoch milliseconds)
    /// limit the cell timestamps they read.
    pub date_tiered_compaction_start_ms: i64,
}

/// The read path.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct QueryConfig {
    /// Longest duration of a query; `None`: no limit.
    pub timeout: Option<Duration>,
    /// Most bytes of cells that a query may read; 0: no limit.
    pub max_bytes: u64,
    /// Most cells that a query may read; 0: no limit.
    pub max_data_points: u64,
    /// A query may lift `max_bytes`.
    pub allow_bytes_override: bool,
    /// A query may lift `max_data_points`.
    pub allow_data_points_override: bool,
    /// Limits of single metrics.
    pub overrides: LimitOverrides,
    /// Most bytes of memory per query; 0: no limit.
    pub max_memory_bytes: u64,
    /// Most bytes of memory of all queries; 0: no limit.
    pub max_total_memory_bytes: u64,
    /// Most sub queries per query; 0: no limit.
    pub max_sub_queries: usize,
    /// A client may repeat a query that is running.
    pub allow_duplicates: bool,
    /// Most literals of a filter that are resolved before the scan.
    pub filter_expansion_limit: usize,
    /// Ignores literals without a UID instead of failing.
    pub skip_unresolved_tagvs: bool,
    /// Queries with explicit tags return what HBase's fuzzy row filter would.
    pub enable_fuzzy_filter: bool,
    /// All rows of a series are in its salt bucket. Off if the number of buckets was changed while
    /// the table had data: every bucket is then read for every series.
    pub series_keep_bucket: bool,
    /// Rows per batch of a scan.
    pub scan_batch_rows: usize,
    /// Most open scans per query. The storage prefetches one batch for each.
    pub max_scans: usize,
    /// Most heavy queries that run concurrently, beside small ones.
    pub max_running: usize,
    /// Most queued queries.
    pub max_waiting: usize,
    /// Query threads; 0 means the number of cores.
    pub threads: usize,
}

impl RowConfig {
    /// The rule for two values at one instant.
    #[must_use]
    pub const fn merge_rule(&self) -> MergeRule {
        MergeRule::from_settings(self.fix_duplicates, self.use_otsdb_timestamp, self.use_max_value)
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            schema: TableSchema::opentsdb_default(),
            tables: Tables::default(),
            uids: UidConfig::default(),
            ingest: IngestConfig::default(),
            compaction: CompactionConfig::default(),
            rows: RowConfig::default(),
            query: QueryConfig::default(),
            rollups: None,
            histograms: None,
            meta_tracking: MetaTracking::Off,
            check_tables: true,
            flush_on_shutdown: true,
            client_stats: None,
            actor_threads: 0,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            data: Table::new("tsdb"),
            uid: Table::new("tsdb-uid"),
            meta: Table::new("tsdb-meta"),
            tree: Table::new("tsdb-tree"),
        }
    }
}

impl Default for UidConfig {
    fn default() -> Self {
        Self {
            auto_create_metrics: false,
            auto_create_tagks: true,
            auto_create_tagvs: true,
            random_metrics: false,
            allow_specialchars: String::new(),
            fold_unmappable_letters: false,
            realtime_meta: false,
            filter: None,
            max_pending: 200_000,
            max_cached_names: 5_000_000,
            max_batch: 1_024,
        }
    }
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            max_tags: 8,
            enable_appends: false,
            series_cache_entries: 1_000_000,
            write_actors: 0,
            bucket_queue_bytes: 8 << 20,
            max_write_bytes: 2 << 20,
            max_writes_in_flight: 1,
            queue_deadline: Duration::from_secs(10),
            store_deadline: Duration::from_secs(10),
            session_chunks_in_flight: 8,
        }
    }
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            flush_interval: Duration::from_secs(10),
            min_flush_threshold: 100,
            max_concurrent_flushes: 10_000,
            flush_speed: 2,
            on_read: true,
            max_queue_bytes: 256 << 20,
        }
    }
}

impl Default for RowConfig {
    fn default() -> Self {
        Self {
            fix_duplicates: false,
            use_otsdb_timestamp: false,
            use_max_value: true,
            repair_appends: false,
            date_tiered_compaction_start_ms: 0,
        }
    }
}

impl Default for QueryConfig {
    fn default() -> Self {
        Self {
            timeout: None,
            max_bytes: 0,
            max_data_points: 0,
            allow_bytes_override: false,
            allow_data_points_override: false,
            overrides: LimitOverrides::default(),
            max_memory_bytes: 1 << 30,
            max_total_memory_bytes: 2 << 30,
            max_sub_queries: 1_000,
            allow_duplicates: true,
            filter_expansion_limit: 4_096,
            skip_unresolved_tagvs: false,
            enable_fuzzy_filter: true,
            series_keep_bucket: true,
            scan_batch_rows: 128,
            max_scans: 8,
            max_running: 16,
            max_waiting: 256,
            threads: 0,
        }
    }
}
