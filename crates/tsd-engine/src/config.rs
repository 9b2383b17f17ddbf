//! Settings of the engine.
//!
//! Defaults are OpenTSDB's for the settings that it has. The command maps the keys of the configuration file to these
//! fields. Settings of tables, rows and queries are those of `tsd-read`.

use std::{sync::Arc, time::Duration};

use tsd_model::{HistogramCodecs, TableSchema};
use tsd_read::{MetaTableWriter, QueryConfig, Rollups, RowConfig, Tables};
use tsd_runtime::{Clock, ProcessMemory, SystemClock, settings};
use tsd_storage::{ByteBudget, Retention};

use crate::{
    client_stats::ClientStats, file_problems::FileProblems, point_plugins::PointPlugins,
    uid::NamePeers,
};

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
        self.meta_table_writer() != MetaTableWriter::Nobody
    }

    /// Who records series in the meta table.
    pub(crate) fn meta_table_writer(&self) -> MetaTableWriter {
        match self.meta_tracking {
            MetaTracking::Off if self.multi_writer => MetaTableWriter::OtherDaemons,
            MetaTracking::Off => MetaTableWriter::Nobody,
            _ => MetaTableWriter::ThisDaemon,
        }
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
