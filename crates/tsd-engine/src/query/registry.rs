//! Which queries run and which ran: what an operator sees of them, and how one is cancelled.
//!
//! A query counts as running from the moment it is asked until its answer was written or dropped. The
//! last ones are remembered, few of them and of bounded size.

use std::{sync::Arc, time::Duration};

use super::QueryStages;

/// Number of a query, counted from 1 since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// Who asked a query, and what was asked, as the front end knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryAsker {
    /// Address and port of the client.
    pub remote: String,
    /// Who it says it is.
    pub user: Option<String>,
    /// Headers of the request, with what is secret masked.
    pub headers: Vec<(String, String)>,
    /// The query, as JSON.
    pub query: Arc<str>,
}

/// What a query is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunningStage {
    /// It waits to be let in.
    #[default]
    Waiting,
    /// Names to UIDs.
    Resolving,
    /// It reads.
    Scanning {
        /// Scans that are done.
        done: usize,
        /// Scans known so far; each sub query adds its own when it begins to read.
        total: usize,
    },
    /// It groups and aggregates series.
    Aggregating,
    /// UIDs to names.
    Naming,
    /// It evaluates expressions.
    Evaluating,
    /// Its answer is being written.
    Sending,
}

/// A query that has no answer yet, or whose answer is being written.
#[derive(Clone, Debug)]
pub struct RunningQuery {
    /// Its number.
    pub id: QueryId,
    /// Who asked.
    pub asker: Arc<QueryAsker>,
    /// When, in epoch milliseconds.
    pub started_ms: i64,
    /// Time since.
    pub elapsed: Duration,
    /// What it is doing.
    pub stage: RunningStage,
    /// Rows read so far.
    pub rows: u64,
    /// Cells read so far.
    pub cells: u64,
    /// Bytes read so far.
    pub bytes: u64,
    /// Memory it holds.
    pub memory_bytes: u64,
    /// Time of the processors so far.
    pub cpu: Duration,
}

/// A query that is over.
#[derive(Clone, Debug)]
pub struct CompletedQuery {
    /// Its number.
    pub id: QueryId,
    /// Who asked.
    pub asker: Arc<QueryAsker>,
    /// When, in epoch milliseconds.
    pub started_ms: i64,
    /// When its answer was written or dropped.
    pub completed_ms: i64,
    /// Why it has no answer; `None` if it had one.
    pub failure: Option<String>,
    /// HTTP status of the answer, if the front end said.
    pub status: Option<u16>,
    /// Whether the answer was written to its end.
    pub sent: bool,
    /// Times the same client asked the same; older ones are not listed again.
    pub executed: u64,
    /// Queries that ran when it was asked, itself among them.
    pub running: usize,
    /// Where its time went.
    pub stages: Arc<QueryStages>,
}

/// The queries of an engine.
#[derive(Clone, Debug, Default)]
pub struct QueryList {
    /// Those that run, oldest first.
    pub running: Vec<RunningQuery>,
    /// The last ones that ended, oldest first.
    pub completed: Vec<CompletedQuery>,
}
