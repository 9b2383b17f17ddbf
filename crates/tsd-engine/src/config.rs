//! What an operator may choose about the engine.
//!
//! Defaults are OpenTSDB's where it has the setting. The keys of its configuration file are mapped
//! to these fields once, at the edge; nothing below knows them.

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
    /// The way in.
    pub ingest: IngestConfig,
    /// Row compaction.
    pub compaction: CompactionConfig,
    /// How rows are read: duplicates, times of cells.
    pub rows: RowConfig,
    /// The way out.
    pub query: QueryConfig,
    /// Rollups and pre-aggregates; `None` where they are off (`tsd.rollups.enable`).
    pub rollups: Option<Rollups>,
    /// Codecs of histograms (`tsd.core.histograms.config`); without them none are written or read.
    pub histograms: Option<HistogramCodecs>,
    /// What the meta table is told of series.
    pub meta_tracking: MetaTracking,
    /// Whether a start asks for the tables. Off where they were asked for already, or may be away.
    pub check_tables: bool,
    /// Whether the end of the engine waits until the store has everything where it stays. Off where
    /// closing the store does that, with a better idea of what may be left.
    pub flush_at_end: bool,
    /// What the store's client counts, for the `stats` command.
    pub client_stats: Option<ClientStats>,
    /// ActorThreads that actors are spread over; 0 takes the number of cores, at most 8.
    pub arbiters: usize,
    /// What time it is.
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

/// Which names get UIDs, and how.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct UidConfig {
    /// Whether points may bring new metrics.
    pub auto_create_metrics: bool,
    /// Whether points may bring new tag keys.
    pub auto_create_tagks: bool,
    /// Whether points may bring new tag values.
    pub auto_create_tagvs: bool,
    /// Draws metric UIDs at random instead of counting.
    pub random_metrics: bool,
    /// Characters that names may hold beside the usual ones.
    pub allow_specialchars: String,
    /// Stores letters above U+00FF as `?`, as OpenTSDB does, so that all such letters are one.
    /// Off: a point with such a name is refused.
    pub fold_unmappable_letters: bool,
    /// New names get a meta object with their UID.
    pub realtime_meta: bool,
    /// New names must satisfy this list.
    pub filter: Option<WhiteList>,
    /// Names that may wait for a UID at once; beyond it requests are throttled.
    pub max_pending: usize,
    /// Names of each kind held in memory; above it the cache starts afresh.
    pub max_cached_names: usize,
    /// Names assigned by one increment of a counter.
    pub max_batch: usize,
}

/// Patterns of the built-in UID filter. A new name must be *found* by every pattern of its kind.
#[derive(Clone, Debug, Default)]
pub struct WhiteList {
    /// Patterns for metrics.
    pub metric_patterns: Vec<String>,
    /// Patterns for tag keys.
    pub tagk_patterns: Vec<String>,
    /// Patterns for tag values.
    pub tagv_patterns: Vec<String>,
}

/// The way of a point in.
#[derive(Clone, Debug)]
pub struct IngestConfig {
    /// Most tags a point may have.
    pub max_tags: usize,
    /// Keeps a row's points in one append column.
    pub enable_appends: bool,
    /// Series held in the cache of names as sent.
    pub series_cache_entries: usize,
    /// Write actors; 0 takes one per salt bucket, at most 64.
    pub write_actors: usize,
    /// Bytes of cells a write actor holds before senders wait.
    pub bucket_queue_bytes: usize,
    /// Most bytes of cells in one call of the store.
    pub max_write_bytes: usize,
    /// Calls of the store one write actor has in flight. What comes meanwhile is gathered into one call,
    /// which waits for the slowest of its cells; a store that gathers by itself wants many. Chunks of a
    /// pipelined session keep their order: of those one call is in flight, whatever this says.
    pub max_writes_in_flight: usize,
    /// How long a sender waits for room before its points are throttled.
    pub queue_deadline: Duration,
    /// How long a request waits for its points to be stored before its client is told to send them
    /// again. They may still be stored then.
    pub store_deadline: Duration,
    /// Chunks one pipelined session has in flight.
    pub session_chunks_in_flight: usize,
}

/// When rows are compacted.
#[derive(Clone, Debug)]
pub struct CompactionConfig {
    /// Whether rows are compacted at all (`tsd.storage.enable_compaction`).
    pub enabled: bool,
    /// Time between two rounds.
    pub flush_interval: Duration,
    /// A round acts if more rows than this wait.
    pub min_flush_threshold: usize,
    /// Rows in work at once.
    pub max_concurrent_flushes: usize,
    /// How many times faster than rows arrive they may be compacted.
    pub flush_speed: u32,
    /// Whether a query that meets an old row in pieces has it compacted.
    pub on_read: bool,
    /// Bytes of row keys that may wait, over all buckets.
    pub max_queue_bytes: usize,
}

/// How cells of a row are understood.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct RowConfig {
    /// Two values at one instant: the newest cell wins; off: an error.
    pub fix_duplicates: bool,
    /// Cells carry the time of their point.
    pub use_otsdb_timestamp: bool,
    /// With `use_otsdb_timestamp`, the larger of two values at one instant wins, else the smaller.
    pub use_max_value: bool,
    /// Append columns of old rows that queries meet out of order are put in order.
    pub repair_appends: bool,
    /// With `use_otsdb_timestamp`: queries from this time on (epoch ms) limit the cell times.
    pub date_tiered_compaction_start_ms: i64,
}

/// The way of a query out.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct QueryConfig {
    /// Most time a query may take; `None` sets no limit.
    pub timeout: Option<Duration>,
    /// Bytes of cells a query may read; 0 sets no limit.
    pub max_bytes: u64,
    /// Cells a query may read; 0 sets no limit.
    pub max_data_points: u64,
    /// Whether a query may lift `max_bytes`.
    pub allow_bytes_override: bool,
    /// Whether a query may lift `max_data_points`.
    pub allow_data_points_override: bool,
    /// Limits of single metrics.
    pub overrides: LimitOverrides,
    /// Memory one query may take; 0 sets no limit.
    pub max_memory_bytes: u64,
    /// Memory all queries together may take; 0 sets no limit.
    pub max_total_memory_bytes: u64,
    /// Sub queries one query may have; 0 sets no limit.
    pub max_sub_queries: usize,
    /// Whether a client may ask what it is asking already.
    pub allow_duplicates: bool,
    /// Most literals of a filter that are looked up before the scan.
    pub filter_expansion_limit: usize,
    /// Leaves literals without a UID out instead of failing.
    pub skip_unresolved_tagvs: bool,
    /// Queries with explicit tags read as through HBase's fuzzy row filter.
    pub enable_fuzzy_filter: bool,
    /// A series has rows in its own salt bucket alone. Off where the number of buckets was changed
    /// while the table had data: then all buckets are read for every series.
    pub series_keep_bucket: bool,
    /// Rows per batch of a scan.
    pub scan_batch_rows: usize,
    /// Scans that one query has open at once. The store reads one batch ahead for each.
    pub max_scans: usize,
    /// Heavy queries that run at once; small ones run beside them.
    pub max_running: usize,
    /// Queries that wait to run.
    pub max_waiting: usize,
    /// ActorThreads that decode and compute; 0 takes the number of cores.
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
            flush_at_end: true,
            client_stats: None,
            arbiters: 0,
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
