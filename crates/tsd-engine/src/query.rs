//! The way of a query out: names to UIDs, a plan, one scan per salt bucket, groups.
//!
//! The runner bounds how many queries run and shares the processors out among them. A query itself is a
//! tree of tasks on threads for queries, so that decoding and arithmetic use every core and delay no
//! write. Whatever ends it early (a
//! failed scan, a limit, the deadline, an client that went away) drops the tree, and with it every
//! open scan; there is no partial answer.

mod aggregation;
mod annotations;
mod cancellation;
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
mod query_guard;
mod read_budget;
mod reads;
mod registry;
mod result;
mod row_content;
mod row_filter;
mod row_keys;
mod row_source;
mod runner;
mod scan;
mod scheduler;
mod series_merge;
mod stats;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    context::{QueryContext, QueryStage},
    engine::QueryEngine,
    runner::QueryRunner,
    scheduler::Scheduler,
};
pub use self::{
    explain::{ExplainedRange, ExplainedRead, ExplainedSubQuery},
    limit_overrides::{LimitOverride, LimitOverrideError, LimitOverrides},
    query_guard::{QueryGuard, QueryTaskLost, QueryThreads},
    registry::{CompletedQuery, QueryClient, QueryId, QueryList, RunningQuery, RunningStage},
    result::{GexpResult, QueryControl, QueryFailure, QueryResult, ResultSeries, SubQueryResult},
    stats::{QueryStats, ScannerStats, SubQueryStats},
};
