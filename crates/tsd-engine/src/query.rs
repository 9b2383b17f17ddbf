//! The read path: names to UIDs, a plan, one scan per salt bucket, groups, names.
//!
//! A query walks through these modules:
//!
//! 1. **run**: the runner limits the number of queries and starts an actor for each
//!    ([`run::query_actor`]), or for identical ones together ([`shared_executions`]). The actor
//!    coordinates: it waits for admission, starts the work, fans out the scans, counts them down, and
//!    keeps the deadline. It computes nothing. Rows and columns are worked on by tasks on the query
//!    threads, which the scheduler shares in time slices, so that decoding and arithmetic use all cores
//!    and do not delay writes. All that limits a query is in its [`run::context::QueryContext`]:
//!    deadline, cancellation, memory, time slices.
//! 2. [`execution`] takes each sub query through the stages; [`sub_query`] does so for one.
//! 3. **plan**: names to UIDs, the tables to read, key ranges, the filter that the store checks, and
//!    whether rows are scanned, fetched by key, or read by series ([`plan::row_access`]).
//! 4. **read**: the plan is divided into scans ([`read::fan_out`]); each builds the series of its rows
//!    ([`read::scan`]), those of ended days from a cache if the read is repeated
//!    ([`read::cached_read`]); the series of all scans are merged and finished ([`read::series_merge`]).
//! 5. **aggregate**: series to groups, groups to results, with their annotations
//!    ([`aggregate::groups`]).
//! 6. **render**: UIDs to names, and the result as callers see it. Formats are the HTTP layer's.
//!
//! A stage uses the stages before it, `run`, and what all share ([`engine`], [`failure`], [`stats`]); its
//! result has what it took. An early end (a failed scan, a limit, the deadline, a client that
//! disconnects) stops the actor, and with it every task and every open scan; there is no partial result.

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
mod run;
mod shareable_request;
mod shared_executions;
mod stats;
mod sub_query;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    engine::QueryEngine,
    plan::{filter_cache::FilterCache, row_filter::row_filter},
    read::day_cache::DayCache,
    run::{context::QueryContext, runner::QueryRunner, scheduler::Scheduler},
    shareable_request::ShareableRequest,
    shared_executions::{ExecutionList, SharedExecutions},
};
pub use self::{
    explain::{ExplainedRange, ExplainedRead, ExplainedSubQuery, ExplainedSummaries},
    failure::QueryFailure,
    render::result::{GexpResult, QueryResult, ResultSeries, SubQueryResult},
    run::{
        limit_overrides::{LimitOverride, LimitOverrideError, LimitOverrides},
        query_control::QueryControl,
        query_guard::{QueryGuard, QueryTaskLost, QueryThreads, WorkSlices},
        query_list::{
            CompletedQuery, QueryClient, QueryId, QueryList, QueryOutcome, RunningQuery,
            RunningStage,
        },
    },
    stats::{QueryStats, ScannerStats, SubQueryStats},
};
