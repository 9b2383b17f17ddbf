//! The read path: names to UIDs, a plan, one scan per salt bucket, groups, names.
//!
//! A query walks through these modules:
//!
//! 1. **run**: the runner limits the number of queries and starts an actor for each ([`run::query_actor`]), or one
//!    execution for identical queries ([`shared_executions`]). The actor waits for admission, starts the work, fans out
//!    the scans, counts them down and enforces the deadline. Tasks on the query threads decode rows and compute. The
//!    scheduler shares these threads in time slices, so that queries use all cores and do not delay writes. All limits
//!    of a query are in its [`run::context::QueryContext`]: deadline, cancellation, memory, time slices.
//! 2. [`execution`] takes all sub queries of a query through the stages; [`sub_query`] does so for one.
//! 3. **plan**: names to UIDs, the tables to read, key ranges, the filter that the store checks, and
//!    whether rows are scanned, fetched by key, or read by series ([`plan::row_access`]).
//! 4. **read**: divides the plan into scans ([`read::fan_out`]). Each scan builds the series of its rows
//!    ([`read::scan`]). If the read is repeated, the series of ended days come from a cache ([`read::cached_read`]). The
//!    series of all scans are merged and finished ([`read::series_merge`]).
//! 5. **aggregate**: series to groups, groups to results, with their annotations
//!    ([`aggregate::groups`]).
//! 6. **render**: UIDs to names, and the result as callers see it. The HTTP layer formats it.
//! 7. **delete**: deletes the points that were read and are in the query range, if the query asks for it.
//!
//! A stage depends only on earlier stages, on `run`, and on the shared modules ([`engine`], [`failure`], [`stats`]).
//! Its result includes its statistics. If a query ends early (a failed scan, a limit, the deadline, a disconnected
//! client), its actor stops, and with it every task and every open scan. There is no partial result.

mod aggregate;
mod delete;
mod engine;
mod execution;
mod explain;
mod expressions;
mod failure;
mod plan;
mod read;
mod render;
mod row_scans;
mod run;
mod shareable_request;
mod shared_executions;
mod stats;
mod sub_query;

#[cfg(test)]
mod tests;

pub use self::{
    delete::DeletedPoints,
    explain::{ExplainedRange, ExplainedRead, ExplainedSubQuery, ExplainedSummaries},
    failure::QueryFailure,
    render::result::{GexpResult, QueryResult, ResultSeries, SubQueryResult},
    row_scans::RowScans,
    run::{
        admission::QueryClass,
        limit_overrides::{LimitOverride, LimitOverrideError, LimitOverrides},
        query_control::{QueryBounds, QueryControl},
        query_guard::{QueryGuard, QueryTaskLost, QueryThreads, WorkSlices},
        query_list::{
            CompletedQuery, QueryClient, QueryId, QueryList, QueryOutcome, RunningQuery,
            RunningStage,
        },
    },
    stats::{QueryStats, ScannerStats, SubQueryStats},
};
pub(crate) use self::{
    engine::QueryEngine,
    render::result::GexpOutput,
    run::{context::QueryContext, runner::QueryRunner, scheduler::Scheduler},
    shareable_request::ShareableRequest,
    shared_executions::{ExecutionList, SharedExecutions},
};
#[cfg(feature = "testing")]
pub(crate) use self::{plan::row_content::RowContent, run::admission::Grant};
