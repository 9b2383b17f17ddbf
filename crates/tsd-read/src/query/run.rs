//! Runs queries: admission, the coordinating actor, limits, time slices, and the list of queries.

pub(crate) mod admission;
pub(crate) mod context;
pub(crate) mod limit_overrides;
pub(crate) mod memory_budget;
pub(crate) mod metrics;
pub(crate) mod query_actor;
pub(crate) mod query_control;
pub(crate) mod query_guard;
pub(crate) mod query_list;
pub(crate) mod query_message;
pub(crate) mod read_budget;
pub(crate) mod registry;
pub(crate) mod runner;
pub(crate) mod scheduler;
mod slow_log;
pub(crate) mod task_limits;
