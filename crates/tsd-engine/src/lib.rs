//! The engine: the write path, UID assignment and row compaction, as actors and tasks.
//!
//! Front ends use an [`EngineHandle`] with async methods; actor addresses and messages are private. Correctness depends
//! on the storage's compare-and-set, not on mailboxes. The crate has no dependency on a backend or on HTTP. Annotations,
//! meta objects and trees are in `tsd-meta`, queries and other reads in `tsd-read`, tools over whole tables in
//! `tsd-tools`. Actors run on the threads of `tsd-runtime`.
//!
//! | stage | modules |
//! |---|---|
//! | shared | `config`, `metrics`, `engine_start` |
//! | names | `uid`, `series_objects` |
//! | write | `ingest`, `series_cache`, `write_filter`, `writer`, `write_hold`, `put_error`, `point_plugins` |
//! | after a write | `compaction`, `series_tracking`: `meta_tracking` and `tree_processor` |
//! | whole store | `meta_sync`, `meta_purge`, `snapshot`, `verification`, `quarantine`, `retention` |
//! | state | `health`, `stats`, `client_stats`, `file_problems` |
//! | wiring | `engine`, `engine_shared`, `handle` |

mod client_stats;
mod compaction;
mod config;
mod engine;
mod engine_shared;
mod engine_start;
mod file_problems;
mod handle;
mod health;
mod ingest;
mod meta_purge;
mod meta_sync;
mod meta_tracking;
mod metrics;
mod point_plugins;
mod put_error;
mod quarantine;
mod retention;
mod series_cache;
mod series_objects;
mod series_tracking;
mod snapshot;
mod stats;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tree_processor;
mod uid;
mod verification;
mod write_filter;
mod write_hold;
mod writer;

pub use client_stats::{ClientStats, RegionClientStats, Stat};
pub use config::{
    CompactionConfig, EngineConfig, IngestConfig, MetaTracking, UidConfig, WhiteList,
};
pub use engine::{Engine, StartError};
pub use file_problems::FileProblems;
pub use handle::{EngineHandle, WeakEngineHandle};
pub use health::{HealthComponent, Problem, UidSpace};
pub use ingest::{IngestSession, NameText, RolledUpValue, RollupTarget, Sample, SampleContent};
pub use meta_purge::MetaPurgeProgress;
pub use meta_sync::MetaSyncProgress;
pub use metrics::describe_metrics;
pub use point_plugins::{
    OnFull, PluginBatch, PluginItem, PluginItems, PluginQueue, PointPlugins, PointRecord,
    RecordContent, plugin_queue,
};
pub use put_error::{CommitReport, PointFailure, PutError};
pub use quarantine::{LostPoints, QuarantinedPart};
pub use stats::EngineStats;
pub use tsd_files::{SnapshotError, SnapshotProgress, SnapshotReport, SnapshotRequest};
pub use tsd_model::{
    Annotation, HistogramCodecs, NamedUidMeta, SeriesMeta, Tree, TreeEdit, TreeId, TreeRuleEdit,
    TsMetaEdit, Tsuid, TsuidError, UidKind, UidMetaEdit,
};
pub use tsd_read::{
    Cardinality, CardinalityRequest, CompletedQuery, DeletedPoints, ExplainedRange, ExplainedRead,
    ExplainedSubQuery, ExplainedSummaries, GexpResult, LastPoint, LastQuery, LastSeries,
    LimitOverride, LimitOverrideError, LimitOverrides, Lookup, LookupResult, LookupSeries,
    MetaSearch, MetricAct, MetricForbidden, MetricRights, MetricRightsError, QueryBounds,
    QueryClass, QueryClient, QueryConfig, QueryControl, QueryFailure, QueryGuard, QueryId,
    QueryList, QueryOutcome, QueryResult, QueryStats, QueryTaskLost, QueryThreads, Reads,
    ResultSeries, Rollups, RowConfig, RowScans, RunningQuery, RunningStage, ScannerStats,
    SearchPage, SearchResult, SearchTarget, SeriesIndexUse, SubQueryResult, SubQueryStats, Tables,
    UnnamedSeries, WorkSizes, WorkSlices,
};
pub use tsd_runtime::{
    Clock, Epoch, FixedShare, LogOrigin, MEMORY_LIMIT_KEY, MemoryConsumer, MemoryPermit,
    ProcessMemory, Receipt, Requester, Standstills, SystemClock, ThreadProbe, boot_ms,
    stood_still_since,
};
pub use tsd_storage::{
    HealthImpact, LogLimit, RetentionStatus, StorageError, StoreComponent, metrics_table,
};
pub use verification::{
    RepairOutcome, Verification, VerificationError, VerificationFinding, VerificationStage,
    VerificationStatus,
};
// Types of queries, re-exported for crates that depend only on this one.
pub use tsd_query::{
    Clock as QueryClock, ExpColumn, ExpOutput, ExpQuery, ExpResult, FillPolicy, GexpQuery,
    GexpSeries, NamedSeries, Query, RawExpQuery, RawQuery, SearchText, SearchTextError,
    SeriesSource, SubQuery, compile_pattern, find_zone,
};
pub use uid::{
    CreatableNames, FilterError, Finished, Intent, Intents, MappingPage, NameChange, NamePeers,
    NameSearch, SeriesAllowance, ShownNames, StoredMapping, Suggestions, UidAdmin, UidTable,
    UnconfirmedRemovalError,
};
pub use write_filter::{FilterRules, FilterRulesError, FilteredSeries, WriteFilter};

#[cfg(test)]
mod tests;
