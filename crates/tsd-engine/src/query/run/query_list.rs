//! Running and completed queries, as operators see them.

use std::{sync::Arc, time::Duration};

use crate::query::{
    failure::QueryFailure,
    stats::{QueryStats, ScannerStats, SubQueryStats},
};

/// Number of a query; they count up from 1 when the engine starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// The client of a query and the request, as the HTTP layer knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryClient {
    /// Address and port of the client.
    pub remote: String,
    /// User name that the client claims.
    pub user: Option<String>,
    /// Headers of the request, secrets masked.
    pub headers: Vec<(String, String)>,
    /// The query, as JSON.
    pub query: Arc<str>,
}

/// What a query is doing now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunningStage {
    /// It waits to be admitted.
    #[default]
    Queued,
    /// It resolves names to UIDs.
    Resolving,
    /// It scans.
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

/// A query without a result yet, or whose response is being written.
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
    /// What it is doing.
    pub stage: RunningStage,
    /// Scans that are done, and those planned so far; each sub query adds its own when it starts to
    /// scan.
    pub scans: (usize, usize),
    /// Rows read so far.
    pub rows: u64,
    /// Cells read so far.
    pub cells: u64,
    /// Bytes read so far.
    pub bytes: u64,
    /// Bytes of memory reserved.
    pub memory_bytes: u64,
    /// CPU time so far.
    pub cpu: Duration,
}

/// How a query ended.
#[derive(Clone, Debug, Default)]
pub enum QueryOutcome {
    /// Its client went away before there was a result.
    #[default]
    Abandoned,
    /// It has no result.
    Failed(QueryFailure),
    /// It had a result, and the response was not written completely.
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
    /// Times the same client sent the same query; only the last one is listed.
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
