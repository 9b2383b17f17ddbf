//! The engine: the write path, UID assignment, row compaction and queries, as actors and tasks.
//!
//! Front ends use an [`EngineHandle`] with async methods; actor addresses and messages are private,
//! and only one module uses actix. Correctness depends on the storage's compare-and-set, not on
//! mailboxes. The crate has no dependency on a backend or on HTTP.

mod actor;
mod annotations;
mod cardinality;
mod client_stats;
mod clock;
mod compaction;
mod config;
mod copy;
#[cfg(test)]
mod corrections;
mod engine;
mod engine_shared;
mod fsck;
mod handle;
mod health;
mod ingest;
mod last_point;
mod meta_objects;
mod meta_purge;
mod meta_search;
mod meta_sync;
mod meta_tracking;
mod metrics;
mod point_plugins;
mod process_memory;
mod put_error;
mod quarantine;
mod query;
mod retention;
mod row_dump;
mod series_cache;
mod series_lookup;
mod series_names;
mod series_scan;
mod snapshot;
mod stats;
#[cfg(test)]
mod testing;
mod trees;
mod uid;
mod usable_index;
mod verification;
mod write_filter;
mod write_hold;
mod writer;

pub use annotations::{AnnotationEdit, AnnotationEditOutcome, AnnotationError, Annotations};
pub use cardinality::{Cardinality, CardinalityRequest};
pub use client_stats::{ClientStats, RegionClientStats, Stat};
pub use clock::{Clock, SystemClock};
pub use config::{
    CompactionConfig, EngineConfig, IngestConfig, MetaTracking, QueryConfig, Rollups, RowConfig,
    SeriesIndexUse, Tables, UidConfig, WhiteList,
};
pub use copy::{
    CopiedKind, CopiedPart, CopiedRows, CopyEnds, CopyError, CopyObserver, CopyRun, CopySelection,
    PartProgress, TableComparison, TableDigest,
};
pub use engine::{Engine, StartError};
pub use fsck::{
    FsckError, FsckLevel, FsckObserver, FsckOptions, FsckReport, FsckRun, FsckSelection,
};
pub use handle::{EngineHandle, WeakEngineHandle};
pub use health::{HealthPart, Problem, UidSpace};
pub use ingest::{IngestSession, NameText, RolledUpValue, RollupPlace, Sample, SampleContent};
pub use last_point::{LastPoint, LastQuery, LastSeries};
pub use meta_objects::{MetaEditOutcome, MetaError, MetaObjects};
pub use meta_purge::MetaPurgeProgress;
pub use meta_search::{MetaSearch, SearchPage, SearchResult, SearchTarget};
pub use meta_sync::MetaSyncProgress;
pub use metrics::describe_metrics;
pub use point_plugins::{
    OnFull, PluginBatch, PluginItem, PluginItems, PluginQueue, PointPlugins, PointRecord,
    RecordContent, plugin_queue,
};
pub use process_memory::{FixedShare, MEMORY_LIMIT_KEY, MemoryPart, MemoryPermit, ProcessMemory};
pub use put_error::{CommitReport, PointFailure, PutError};
pub use quarantine::{LostPoints, QuarantinedPart};
pub use query::{
    CompletedQuery, ExplainedRange, ExplainedRead, ExplainedSubQuery, ExplainedSummaries,
    GexpResult, LimitOverride, LimitOverrideError, LimitOverrides, QueryClient, QueryControl,
    QueryFailure, QueryGuard, QueryId, QueryList, QueryOutcome, QueryResult, QueryStats,
    QueryTaskLost, QueryThreads, ResultSeries, RunningQuery, RunningStage, ScannerStats,
    SubQueryResult, SubQueryStats, WorkSlices,
};
pub use row_dump::{DumpError, DumpOptions, DumpReport, DumpSink};
pub use series_lookup::{Lookup, LookupResult, LookupSeries, UnnamedSeries};
pub use stats::EngineStats;
pub use trees::{
    BranchContents, RuleEditOutcome, TestedSeries, TreeBuildError, TreeEditOutcome, TreeError,
    TreeFailureKind, TreeLeaf, TreePlacement, TreeSyncReport, TreeTester, Trees,
};
pub use tsd_model::{
    Annotation, HistogramCodecs, NamedUidMeta, SeriesMeta, Tree, TreeEdit, TreeId, TreeRuleEdit,
    TsMetaEdit, Tsuid, TsuidError, UidKind, UidMetaEdit,
};
pub use tsd_storage::{
    HealthImpact, LogLimit, RetentionStatus, SnapshotError, SnapshotProgress, SnapshotReport,
    SnapshotRequest, StorageError, StorePart,
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
    CreatableNames, FilterError, MappingPage, NamePeers, StoredMapping, UidAdmin, UidError,
    UidFsckObserver, UidFsckOptions, UidFsckReport,
};
pub use write_filter::{FilterRules, FilterRulesError, FilteredSeries, WriteFilter};
