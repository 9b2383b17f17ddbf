//! The actors: write, UID assignment, row compaction, query.
//!
//! Front ends hold an [`EngineHandle`] with async methods; addresses and messages stay in here, and
//! only one module knows actix. Correctness rests on the store's compare-and-set, not on mailboxes.
//! The crate knows no backend and no HTTP.

mod actor;
mod annotations;
mod byte_budget;
mod clock;
mod compaction;
mod config;
mod engine;
mod handle;
mod ingest;
mod last;
mod lookup;
mod meta_tracking;
mod metrics;
mod put_error;
mod query;
mod series_cache;
mod series_names;
mod series_scan;
mod stats;
#[cfg(test)]
mod testing;
mod uid;
mod writer;

pub use annotations::{AnnotationEdit, AnnotationEditOutcome, AnnotationError};
pub use clock::{Clock, SystemClock};
pub use config::{
    CompactionConfig, EngineConfig, IngestConfig, QueryConfig, Rollups, RowConfig, Tables,
    UidConfig, WhiteList,
};
pub use engine::{Engine, StartError};
pub use handle::EngineHandle;
pub use ingest::{ExtraCell, IngestSession, NameText, PointInput, RollupPlace};
pub use last::{LastPoint, LastQuery, LastSeries};
pub use lookup::{Lookup, LookupResult, LookupSeries};
pub use meta_tracking::MetaTracking;
pub use metrics::describe_metrics;
pub use put_error::{CommitReport, PointFailure, PutError};
pub use query::{
    CompletedQuery, ExplainedRange, ExplainedRead, ExplainedSubQuery, GexpResult, LimitOverride,
    LimitOverrideError, LimitOverrides, QueryClient, QueryControl, QueryFailure, QueryGuard,
    QueryId, QueryList, QueryResult, QueryStats, QueryTaskLost, QueryThreads, ResultSeries,
    RunningQuery, RunningStage, ScannerStats, SubQueryResult, SubQueryStats,
};
pub use stats::{ClientStats, Stat};
pub use tsd_model::{Annotation, HistogramCodecs, Tsuid, TsuidError, UidKind};
// Words of a query, for those who hold the handle and know no other crate below it.
pub use tsd_query::{
    Clock as QueryClock, ExpColumn, ExpOutput, ExpQuery, ExpResult, FillPolicy, GexpQuery,
    GexpSeries, NamedSeries, Query, QueryErrorClass, RawExpQuery, RawQuery, SubQuery, find_zone,
};
pub use uid::{FilterError, UidError};
