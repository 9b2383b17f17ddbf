//! The read path: names to UIDs, a plan, one scan per salt bucket, groups.
//!
//! The runner limits the number of queries, and starts an actor for each ([`query_actor`]). The actor
//! coordinates: it waits for admission, fans out the scans, counts them down, and keeps the deadline.
//! Rows and columns are worked on by tasks on the query threads, which the scheduler shares in time
//! slices, so that decoding and arithmetic use all cores and do not delay writes. An early end (a
//! failed scan, a limit, the deadline, a client that disconnects) stops the actor, and with it every task
//! and every open scan; there is no partial result.

mod aggregation;
mod annotations;
mod cancellation;
mod conflict;
mod context;
mod delete;
mod engine;
mod explain;
mod expressions;
mod fan_out;
mod limit_overrides;
mod memory_budget;
mod metrics;
mod naming;
mod query_actor;
mod query_guard;
mod read_budget;
mod reads;
mod registry;
mod result;
mod row_content;
mod row_filter;
mod row_keys;
mod row_source;
mod rows_of_series;
mod runner;
mod scan;
mod scheduler;
mod series_merge;
mod series_parts;
mod series_selection;
mod stats;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    context::QueryContext, engine::QueryEngine, runner::QueryRunner, scheduler::Scheduler,
};
pub use self::{
    explain::{ExplainedRange, ExplainedRead, ExplainedSubQuery},
    limit_overrides::{LimitOverride, LimitOverrideError, LimitOverrides},
    query_guard::{QueryGuard, QueryTaskLost, QueryThreads},
    registry::{CompletedQuery, QueryClient, QueryId, QueryList, RunningQuery, RunningStage},
    result::{GexpResult, QueryControl, QueryFailure, QueryResult, ResultSeries, SubQueryResult},
    stats::{QueryStats, ScannerStats, SubQueryStats},
};
