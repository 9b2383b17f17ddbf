//! Running and completed queries, as operators see them.

use std::{sync::Arc, time::Duration};

use tsd_runtime::LogOrigin;

use super::admission::QueryClass;
use crate::query::{
    failure::QueryFailure,
    stats::{QueryStats, ScannerStats, SubQueryStats},
};

/// Number of a query, counted from 1 since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// The client and the request of a query, as the HTTP layer knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryClient {
    /// Address and port of the client.
    pub remote: String,
    /// Its request, for the log.
    pub origin: LogOrigin,
    /// User name, as claimed by the client.
    pub user: Option<String>,
    /// Headers of the request, with secrets masked.
    pub headers: Vec<(String, String)>,
    /// The query, as JSON.
    pub query: Arc<str>,
}

/// The present stage of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunningStage {
    /// It waits for admission.
    #[default]
    Queued,
    /// It resolves names to UIDs.
    Resolving,
    /// It scans rows or reads series.
    Scanning,
    /// It groups and aggregates series.
    Aggregating,
    /// It resolves UIDs to names.
    Naming,
    /// It evaluates expressions.
    Evaluating,
    /// Its response is being written.
    Sending,
}

/// A query that has no result yet, or whose response is being written.
#[derive(Clone, Debug)]
pub struct RunningQuery {
    /// Its number.
    pub id: QueryId,
    /// The client.
    pub client: Arc<QueryClient>,
    /// Start time in epoch milliseconds.
    pub started_ms: i64,
    /// Time since its start.
    pub elapsed: Duration,
    /// Its present stage.
    pub stage: RunningStage,
    /// Completed scans, and scans planned so far. Each sub query adds its scans when it begins to read.
    pub scans: (usize, usize),
    /// Rows read so far.
    pub rows: u64,
    /// Cells read so far.
    pub cells: u64,
    /// Bytes read so far.
    pub bytes: u64,
    /// Bytes of memory reserved.
    pub memory_bytes: u64,
    /// Bytes of memory granted.
    pub granted_bytes: u64,
    /// The class in which it was admitted.
    pub class: QueryClass,
    /// Number of restarts because it had outgrown its grant.
    pub restarts: u32,
    /// CPU time so far.
    pub cpu: Duration,
}

/// How a query ended.
#[derive(Clone, Debug, Default)]
pub enum QueryOutcome {
    /// The client disconnected before there was a result.
    #[default]
    Abandoned,
    /// The query failed.
    Failed(QueryFailure),
    /// There was a result, but the response was not written completely.
    NotSent,
    /// The response was written completely.
    Sent,
}

/// A query that has ended.
#[derive(Clone, Debug)]
pub struct CompletedQuery {
    /// Its number.
    pub id: QueryId,
    /// The client.
    pub client: Arc<QueryClient>,
    /// Start time in epoch milliseconds.
    pub started_ms: i64,
    /// When its response was written or dropped, in epoch milliseconds.
    pub completed_ms: i64,
    /// How it ended.
    pub outcome: QueryOutcome,
    /// Number of times that the same client sent the same query; only the last one is listed.
    pub executed: u64,
    /// Queries that ran when it was submitted, including itself.
    pub running: usize,
    /// Its statistics.
    pub stats: Arc<QueryStats>,
}

/// The queries of an engine.
#[derive(Clone, Debug, Default)]
pub struct QueryList {
    /// Running queries, oldest first.
    pub running: Vec<RunningQuery>,
    /// The last completed queries, oldest first.
    pub completed: Vec<CompletedQuery>,
}

impl CompletedQuery {
    /// Approximate memory in bytes.
    pub(crate) fn size(&self) -> usize {
        let client = &self.client;
        let headers: usize =
            client.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let subs = &self.stats.sub_queries;
        let scans: usize = subs.iter().map(|sub| sub.scanners.len()).sum();
        let text = client.remote.len() + client.query.len() + headers;
        let user = client.user.as_ref().map_or(0, String::len);
        let failure = match &self.outcome {
            QueryOutcome::Failed(failure) => failure.to_string().len(),
            _ => 0,
        };
        size_of::<Self>()
            + size_of::<QueryStats>()
            + text
            + user
            + failure
            + subs.len() * size_of::<SubQueryStats>()
            // Scan names are short.
            + scans * (size_of::<ScannerStats>() + 32)
    }
}
