//! The way of a query out: names to UIDs, a plan, one scan per salt bucket, groups.
//!
//! The runner bounds how many queries run and shares the processors out among them. A query itself is a
//! tree of tasks on threads for queries, so that decoding and arithmetic use every core and delay no
//! write. Whatever ends it early (a
//! failed scan, a limit, the deadline, an asker that went away) drops the tree, and with it every
//! open scan; there is no partial answer.

mod aggregation;
mod answer;
mod budget;
mod content;
mod delete;
mod explain;
mod expressions;
mod fan_out;
mod filters;
mod guard;
mod halt;
mod joining;
mod keys;
mod limits;
mod memory;
mod metrics;
mod naming;
mod notes;
mod reads;
mod registry;
mod run;
mod runner;
mod scan;
mod scheduler;
mod source;
mod stages;
mod sub_query;

#[cfg(test)]
mod tests;

pub use self::{
    answer::{AnswerSeries, GexpAnswer, QueryAnswer, QueryControl, QueryFailure, SubAnswer},
    explain::{ExplainedRange, ExplainedRead, ExplainedSubQuery},
    guard::{QueryGuard, QueryTaskLost, QueryThreads},
    limits::{LimitOverride, LimitOverrideError, LimitOverrides},
    registry::{CompletedQuery, QueryClient, QueryId, QueryList, RunningQuery, RunningStage},
    stages::{QueryStages, ScannerStages, SubQueryStages},
};
pub(crate) use self::{
    run::{QueryRun, Step},
    runner::QueryRunner,
    scheduler::Scheduler,
    sub_query::QueryContext,
};
