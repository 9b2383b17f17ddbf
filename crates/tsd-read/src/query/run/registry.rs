//! The list of running and recently completed queries, as operators see and cancel them.
//!
//! A query counts as running from its submission until its response is written or dropped. The number and the size of
//! completed queries kept are limited.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tsd_query::QueryError;
use tsd_runtime::Clock;

use super::{
    context::{NewQuery, QueryContext},
    query_list::{
        CompletedQuery, QueryClient, QueryId, QueryList, QueryOutcome, RunningQuery, RunningStage,
    },
    query_message::QueryMessage,
    slow_log,
};
use crate::{
    QueryConfig,
    query::{failure::QueryFailure, stats::QueryStats},
};

/// Most completed queries kept.
const MAX_COMPLETED: usize = 256;
/// Most memory of the completed queries kept, in bytes.
const MAX_COMPLETED_BYTES: usize = 16 << 20;

/// Keeps the lists of running and completed queries.
pub(crate) struct QueryRegistry {
    clock: Arc<dyn Clock>,
    allow_duplicates: bool,
    slow_log: Option<Duration>,
    last_id: AtomicU64,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    running: BTreeMap<QueryId, Arc<QueryContext>>,
    completed: VecDeque<CompletedQuery>,
    completed_bytes: usize,
}

/// An entry in the list of running queries. Dropping it moves the query to the completed queries.
#[derive(Debug)]
pub(crate) struct RegisteredQuery {
    registry: Arc<QueryRegistry>,
    pub(crate) context: Arc<QueryContext>,
    outcome: QueryOutcome,
    processing: Duration,
    serialization: Duration,
}

impl fmt::Debug for QueryRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRegistry").finish_non_exhaustive()
    }
}

impl QueryRegistry {
    pub(crate) fn new(clock: Arc<dyn Clock>, config: &QueryConfig) -> Arc<Self> {
        Arc::new(Self {
            clock,
            allow_duplicates: config.allow_duplicates,
            slow_log: config.slow_log,
            last_id: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// Registers a query. Fails if the same client already runs the same query, unless duplicates are allowed.
    pub(crate) fn register(
        self: &Arc<Self>,
        new: NewQuery,
    ) -> Result<RegisteredQuery, QueryFailure> {
        let id = QueryId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let mut state = self.state.lock();
        if !self.allow_duplicates && !new.client.remote.is_empty() {
            let same =
                |context: &Arc<QueryContext>| is_same_request(&context.query.client, &new.client);
            if state.running.values().any(same) {
                let endpoint = new.client.remote.clone();
                return Err(QueryError::Duplicate { endpoint }.into());
            }
        }
        let context = Arc::new(QueryContext::new(id, state.running.len() + 1, new));
        state.running.insert(id, Arc::clone(&context));
        drop(state);
        Ok(RegisteredQuery {
            registry: Arc::clone(self),
            context,
            outcome: QueryOutcome::default(),
            processing: Duration::ZERO,
            serialization: Duration::ZERO,
        })
    }

    /// Cancels a query. Returns whether it was running.
    pub(crate) fn cancel(&self, id: QueryId) -> bool {
        let context = self.state.lock().running.get(&id).cloned();
        let Some(context) = context else { return false };
        context.operator_cancel.cancel();
        // Others may share the execution: only this query leaves it, because of the token.
        if let Some(actor) = context.actor()
            && !context.query.is_shareable
        {
            // If the query has ended, the token aborts its response.
            let _ = actor.try_send(QueryMessage::Cancel(QueryFailure::CancelledByOperator));
        }
        true
    }

    /// All running queries, and the last completed ones.
    pub(crate) async fn list(&self) -> QueryList {
        let (running, completed) = {
            let state = self.state.lock();
            let running: Vec<Arc<QueryContext>> = state.running.values().cloned().collect();
            (running, state.completed.iter().cloned().collect())
        };
        let running = join_all(running.iter().map(|context| progress_of(context))).await;
        QueryList { running, completed }
    }

    /// Number of running queries, and of those that are queued.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.running.len(), state.running.values().filter(|context| context.is_queued()).count())
    }

    fn complete(&self, ended: &mut RegisteredQuery) {
        let context = &ended.context;
        let mut stats = ended.stats();
        stats.serialization = ended.serialization;
        let mut query = CompletedQuery {
            id: context.id,
            client: Arc::clone(&context.query.client),
            started_ms: context.query.started_ms,
            completed_ms: self.clock.now_ms(),
            outcome: std::mem::take(&mut ended.outcome),
            executed: 1,
            running: context.running_at_start,
            stats: Arc::new(stats),
        };
        let took = match query.outcome {
            QueryOutcome::NotSent | QueryOutcome::Sent => ended.processing + ended.serialization,
            QueryOutcome::Abandoned | QueryOutcome::Failed(_) => context.started.elapsed(),
        };
        if self.slow_log.is_some_and(|limit| took >= limit) {
            let origin = query.client.origin.clone();
            origin.in_scope(|| slow_log::log(&query, took));
        }
        let mut state = self.state.lock();
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

/// Progress reported by the query's actor, or the last state of a query whose response is being written.
async fn progress_of(context: &QueryContext) -> RunningQuery {
    let Some(actor) = context.actor() else { return context.snapshot() };
    actor.ask(QueryMessage::Progress).await.unwrap_or_else(|_| context.snapshot())
}

fn is_same_request(a: &QueryClient, b: &QueryClient) -> bool {
    a.remote == b.remote && a.query == b.query
}

impl RegisteredQuery {
    /// Its current statistics.
    pub(crate) fn stats(&self) -> QueryStats {
        let mut stats = self.context.stats();
        stats.processing_pre_write = self.processing;
        stats
    }

    /// Records that execution succeeded and that the response is written next.
    pub(crate) fn begin_response(&mut self) {
        self.context.set_stage(RunningStage::Sending);
        self.outcome = QueryOutcome::NotSent;
        self.processing = self.context.started.elapsed();
    }

    /// Records that execution failed.
    pub(crate) fn fail(mut self, failure: &QueryFailure) {
        self.outcome = QueryOutcome::Failed(failure.clone());
    }

    /// Records that the response was written.
    pub(crate) fn mark_sent(mut self, serialization: Duration) {
        self.outcome = QueryOutcome::Sent;
        self.serialization = serialization;
    }
}

impl Drop for RegisteredQuery {
    fn drop(&mut self) {
        Arc::clone(&self.registry).complete(self);
    }
}
