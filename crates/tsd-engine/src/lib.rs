//! The engine: the write path, UID assignment, row compaction and queries, as actors and tasks.
//!
//! Front ends use an [`EngineHandle`] with async methods; actor addresses and messages are private. Correctness depends on the storage's compare-and-set, not on
//! mailboxes. The crate has no dependency on a backend or on HTTP. Annotations, meta objects and
//! trees are in `tsd-meta`; tools over whole tables are in `tsd-tools`; actors and threads are of `tsd-runtime`.
//!
//! | stage | modules |
//! |---|---|
//! | shared | `config`, `metrics` |
//! | names | `uid` |
//! | write | `ingest`, `series_cache`, `write_filter`, `writer`, `write_hold`, `put_error`, `point_plugins` |
//! | after a write | `compaction`, `meta_tracking`, `tree_processor` |
//! | read | `query`, `usable_index`, `series_names`, `series_lookup`, `last_point`, `meta_search`, `cardinality` |
//! | whole store | `meta_sync`, `meta_purge`, `snapshot`, `verification`, `quarantine`, `retention` |
//! | state | `health`, `stats`, `client_stats`, `file_problems` |
//! | wiring | `engine`, `engine_shared`, `handle` |

mod cardinality;
mod client_stats;
mod compaction;
mod config;
mod engine;
mod engine_shared;
mod file_problems;
mod handle;
mod health;
mod ingest;
mod last_point;
mod meta_purge;
mod meta_search;
mod meta_sync;
mod meta_tracking;
mod metrics;
mod point_plugins;
mod put_error;
mod quarantine;
mod query;
mod retention;
mod series_cache;
mod series_lookup;
mod series_names;
mod snapshot;
mod stats;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tree_processor;
mod uid;
mod usable_index;
mod verification;
mod write_filter;
mod write_hold;
mod writer;

pub use cardinality::{Cardinality, CardinalityRequest};
pub use client_stats::{ClientStats, RegionClientStats, Stat};
pub use config::{
    CompactionConfig, EngineConfig, IngestConfig, MetaTracking, QueryConfig, Rollups, RowConfig,
    SeriesIndexUse, Tables, UidConfig, WhiteList,
};
pub use engine::{Engine, StartError};
pub use file_problems::FileProblems;
pub use handle::{EngineHandle, WeakEngineHandle};
pub use health::{HealthComponent, Problem, UidSpace};
pub use ingest::{IngestSession, NameText, RolledUpValue, RollupPlace, Sample, SampleContent};
pub use last_point::{LastPoint, LastQuery, LastSeries};
pub use meta_purge::MetaPurgeProgress;
pub use meta_search::{MetaSearch, SearchPage, SearchResult, SearchTarget};
pub use meta_sync::MetaSyncProgress;
pub use metrics::describe_metrics;
pub use point_plugins::{
    OnFull, PluginBatch, PluginItem, PluginItems, PluginQueue, PointPlugins, PointRecord,
    RecordContent, plugin_queue,
};
pub use put_error::{CommitReport, PointFailure, PutError};
pub use quarantine::{LostPoints, QuarantinedPart};
pub use query::{
    CompletedQuery, DeletedPoints, ExplainedRange, ExplainedRead, ExplainedSubQuery,
    ExplainedSummaries, GexpResult, LimitOverride, LimitOverrideError, LimitOverrides, QueryClass,
    QueryClient, QueryControl, QueryFailure, QueryGuard, QueryId, QueryList, QueryOutcome,
    QueryResult, QueryStats, QueryTaskLost, QueryThreads, ResultSeries, RowScans, RunningQuery,
    RunningStage, ScannerStats, SubQueryResult, SubQueryStats, WorkSlices,
};
pub use series_lookup::{Lookup, LookupResult, LookupSeries, UnnamedSeries};
pub use stats::EngineStats;
pub use tsd_files::{SnapshotError, SnapshotProgress, SnapshotReport, SnapshotRequest};
pub use tsd_model::{
    Annotation, HistogramCodecs, NamedUidMeta, SeriesMeta, Tree, TreeEdit, TreeId, TreeRuleEdit,
    TsMetaEdit, Tsuid, TsuidError, UidKind, UidMetaEdit,
};
pub use tsd_runtime::{
    Clock, FixedShare, MEMORY_LIMIT_KEY, MemoryConsumer, MemoryPermit, ProcessMemory, SystemClock,
};
pub use tsd_storage::{HealthImpact, LogLimit, RetentionStatus, StorageError, StoreComponent};
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
    StoredMapping, Suggestions, UidAdmin, UidTable, UnconfirmedRemovalError,
};
pub use write_filter::{FilterRules, FilterRulesError, FilteredSeries, WriteFilter};

#[cfg(test)]
mod tests;
