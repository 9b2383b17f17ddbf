//! Reads: queries, last points, look-ups and searches of series, and their numbers.
//!
//! Callers use [`Reads`]. Each read is limited and scheduled like a query, on threads of its own. The crate does not
//! know who writes: it reaches names through a trait of `tsd-meta`, and reports fragmented rows through
//! [`FragmentedRows`].
//!
//! | stage | module |
//! |---|---|
//! | shared | `config`, `metrics`, `fragmented_rows`, `read_shared`: what every read needs; `usable_index` |
//! | queries | `query`: plan, scans, groups, results, and the scheduling of all reads |
//! | door | `query_pool`: the threads of reads; `reads`: what callers use; `metric_rights` and `read_subject`: what they may read |
//! | series | `series_names`, `series_lookup`, `last_point`, `meta_search`, `cardinality` |

mod cardinality;
mod config;
mod fragmented_rows;
mod last_point;
mod meta_search;
mod metric_rights;
mod metrics;
mod query;
mod query_pool;
mod read_shared;
mod read_subject;
mod reads;
mod series_lookup;
mod series_names;
#[cfg(feature = "testing")]
pub mod testing;
mod usable_index;

pub use cardinality::{Cardinality, CardinalityRequest};
pub use config::{QueryConfig, Rollups, RowConfig, SeriesIndexUse, Tables, WorkSizes};
pub use fragmented_rows::FragmentedRows;
pub use last_point::{LastPoint, LastQuery, LastSeries};
pub use meta_search::{MetaSearch, SearchPage, SearchResult, SearchTarget};
pub use metric_rights::{MetricAct, MetricForbidden, MetricRights, MetricRightsError};
pub use metrics::describe_metrics;
pub use query::{
    CompletedQuery, DeletedPoints, ExplainedRange, ExplainedRead, ExplainedSubQuery,
    ExplainedSummaries, GexpResult, LimitOverride, LimitOverrideError, LimitOverrides, QueryBounds,
    QueryClass, QueryClient, QueryControl, QueryFailure, QueryGuard, QueryId, QueryList,
    QueryOutcome, QueryResult, QueryStats, QueryTaskLost, QueryThreads, ResultSeries, RowScans,
    RunningQuery, RunningStage, ScannerStats, SubQueryResult, SubQueryStats, WorkSlices,
};
pub use query_pool::QueryPool;
pub use read_shared::{MetaTableWriter, ReadShared};
pub use reads::Reads;
pub use series_lookup::{Lookup, LookupResult, LookupSeries, UnnamedSeries};
