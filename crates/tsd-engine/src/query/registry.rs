//! The list of running and recently completed queries, as operators see and cancel them.
//!
//! A query counts as running from its submission until its response was written or dropped. The
//! number and the size of the completed queries kept is limited.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tsd_query::QueryError;

use super::{
    QueryFailure, QueryStats, ScannerStats, SubQueryStats,
    context::{NewQuery, QueryContext},
    query_actor::QueryMessage,
};
use crate::clock::Clock;

/// Most completed queries kept.
const MAX_COMPLETED: usize = 256;
/// Most memory of the completed queries kept, in bytes.
const MAX_COMPLETED_BYTES: usize = 16 << 20;

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
    /// Why it has no result; `None` if it had one.
    pub failure: Option<String>,
    /// HTTP status of the response, if the HTTP layer reported one.
    pub status: Option<u16>,
    /// True if the response was written completely.
    pub sent: bool,
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

/// Keeps the lists of running and completed queries.
pub(crate) struct QueryRegistry {
    clock: Arc<dyn Clock>,
    allow_duplicates: bool,
    last_id: AtomicU64,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    running: BTreeMap<QueryId, Arc<QueryContext>>,
    completed: VecDeque<CompletedQuery>,
    completed_bytes: usize,
}

/// An entry in the list of running queries. Dropping it moves the query to the completed ones.
#[derive(Debug)]
pub(crate) struct RegisteredQuery {
    registry: Arc<QueryRegistry>,
    pub(crate) context: Arc<QueryContext>,
    outcome: QueryOutcome,
}

/// How a query ended.
#[derive(Debug, Default)]
struct QueryOutcome {
    failure: Option<String>,
    status: Option<u16>,
    sent: bool,
    processing: Duration,
    serialization: Duration,
    /// True if execution succeeded, so that there is a response.
    executed: bool,
}

impl fmt::Debug for QueryRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRegistry").finish_non_exhaustive()
    }
}

impl QueryRegistry {
    pub(crate) fn new(clock: Arc<dyn Clock>, allow_duplicates: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            allow_duplicates,
            last_id: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// Registers a query. Fails if the same client already runs the same query and duplicates are
    /// not allowed.
    pub(crate) fn register(
        self: &Arc<Self>,
        new: NewQuery,
    ) -> Result<RegisteredQuery, QueryFailure> {
        let id = QueryId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let mut state = self.lock();
        if !self.allow_duplicates && !new.client.remote.is_empty() {
            let same =
                |context: &Arc<QueryContext>| is_same_request(&context.query.client, &new.client);
            if state.running.values().any(same) {
                let endpoint = &new.client.remote;
                let message = format!("Query is already executing for endpoint: {endpoint}");
                return Err(QueryError::internal(message).into());
            }
        }
        let context = Arc::new(QueryContext::new(id, state.running.len() + 1, new));
        state.running.insert(id, Arc::clone(&context));
        drop(state);
        Ok(RegisteredQuery {
            registry: Arc::clone(self),
            context,
            outcome: QueryOutcome::default(),
        })
    }

    /// Cancels a query. Returns whether it was running.
    pub(crate) fn cancel(&self, id: QueryId) -> bool {
        let context = self.lock().running.get(&id).cloned();
        let Some(context) = context else { return false };
        context.operator_cancel.cancel();
        if let Some(actor) = context.actor() {
            // One that has ended writes its response, which ends because of the token.
            let _ = actor.try_send(QueryMessage::Cancel(QueryFailure::CancelledByOperator));
        }
        true
    }

    /// All running and the last completed queries.
    pub(crate) async fn list(&self) -> QueryList {
        let (running, completed) = {
            let state = self.lock();
            let running: Vec<Arc<QueryContext>> = state.running.values().cloned().collect();
            (running, state.completed.iter().cloned().collect())
        };
        let running = join_all(running.iter().map(|context| progress_of(context))).await;
        QueryList { running, completed }
    }

    /// Number of running queries, and how many of them are queued.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running.len(), state.running.values().filter(|context| context.is_queued()).count())
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, context: &QueryContext, outcome: &mut QueryOutcome) {
        let mut stats = context.stats();
        stats.processing_pre_write = outcome.processing;
        stats.serialization = outcome.serialization;
        let cancelled = || QueryFailure::Cancelled.to_string();
        let mut query = CompletedQuery {
            id: context.id,
            client: Arc::clone(&context.query.client),
            started_ms: context.query.started_ms,
            completed_ms: self.clock.now_ms(),
            failure: outcome.failure.take().or_else(|| (!outcome.executed).then(cancelled)),
            status: outcome.status,
            sent: outcome.sent,
            executed: 1,
            running: context.running_at_start,
            stats: Arc::new(stats),
        };
        let mut state = self.lock();
        state.running.remove(&context.id);
        let same = |old: &CompletedQuery| is_same_request(&old.client, &query.client);
        if let Some(at) = state.completed.iter().position(same)
            && let Some(old) = state.completed.remove(at)
        {
            state.completed_bytes -= old.size();
            query.executed += old.executed;
        }
        state.completed_bytes += query.size();
        state.completed.push_back(query);
        while state.completed.len() > MAX_COMPLETED || state.completed_bytes > MAX_COMPLETED_BYTES {
            let Some(old) = state.completed.pop_front() else { break };
            state.completed_bytes -= old.size();
        }
    }
}

/// What the actor of a query tells, or the last state of a query whose response is being written.
async fn progress_of(context: &QueryContext) -> RunningQuery {
    let Some(actor) = context.actor() else { return context.snapshot() };
    actor.ask(QueryMessage::Progress).await.unwrap_or_else(|_| context.snapshot())
}

fn is_same_request(a: &QueryClient, b: &QueryClient) -> bool {
    a.remote == b.remote && a.query == b.query
}

impl CompletedQuery {
    /// Approximate memory in bytes.
    fn size(&self) -> usize {
        let client = &self.client;
        let headers: usize =
            client.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let subs = &self.stats.sub_queries;
        let scans: usize = subs.iter().map(|sub| sub.scanners.len()).sum();
        let text = client.remote.len() + client.query.len() + headers;
        let user = client.user.as_ref().map_or(0, String::len);
        let failure = self.failure.as_ref().map_or(0, String::len);
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

impl RegisteredQuery {
    /// Its current statistics.
    pub(crate) fn stats(&self) -> QueryStats {
        let mut stats = self.context.stats();
        stats.processing_pre_write = self.outcome.processing;
        stats
    }

    /// Records that execution succeeded; the response is written next.
    pub(crate) fn begin_response(&mut self) {
        self.context.set_stage(RunningStage::Sending);
        self.context.query.scheduler.finish_execution();
        self.outcome.executed = true;
        self.outcome.processing = self.context.started.elapsed();
    }

    /// Records that execution failed.
    pub(crate) fn fail(mut self, failure: &QueryFailure) {
        self.outcome.failure = Some(failure.to_string());
        self.outcome.status = Some(failure.status());
    }

    /// Records that the response was written.
    pub(crate) fn mark_sent(mut self, status: u16, serialization: Duration) {
        self.outcome.status = Some(status);
        self.outcome.serialization = serialization;
        self.outcome.sent = true;
    }
}

impl Drop for RegisteredQuery {
    fn drop(&mut self) {
        self.registry.complete(&self.context, &mut self.outcome);
    }
}
