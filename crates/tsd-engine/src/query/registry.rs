//! Which queries run and which ran: what an operator sees of them, and how one is cancelled.
//!
//! A query counts as running from the moment it is asked until its answer was written or dropped. The
//! last ones are remembered, few of them and of bounded size.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tsd_query::QueryError;

use super::{
    QueryFailure, QueryStages, ScannerStages, SubQueryStages,
    run::{NewRun, QueryRun, Step},
};
use crate::clock::Clock;

/// Queries that ended and are remembered.
const MAX_COMPLETED: usize = 256;
/// Memory that they may take.
const MAX_COMPLETED_BYTES: usize = 16 << 20;

/// Number of a query, counted from 1 since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// Who asked a query, and what was asked, as the front end knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryClient {
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
    pub asker: Arc<QueryClient>,
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
    pub asker: Arc<QueryClient>,
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

/// Keeps the list.
pub(crate) struct Registry {
    clock: Arc<dyn Clock>,
    allow_duplicates: bool,
    last_id: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<QueryId, Arc<QueryRun>>,
    completed: VecDeque<CompletedQuery>,
    completed_bytes: usize,
}

/// A query in the list of those that run. Dropping it moves it to those that ended.
#[derive(Debug)]
pub(crate) struct Registered {
    registry: Arc<Registry>,
    run: Arc<QueryRun>,
    outcome: Outcome,
}

/// How a query ended.
#[derive(Debug, Default)]
struct Outcome {
    failure: Option<String>,
    status: Option<u16>,
    sent: bool,
    processing: Duration,
    serialization: Duration,
    /// Whether there was an answer at all.
    answered: bool,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    pub(crate) fn new(clock: Arc<dyn Clock>, allow_duplicates: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            allow_duplicates,
            last_id: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// Enters a query. Where that is not allowed, a client may not ask again what it is asking.
    pub(crate) fn enter(self: &Arc<Self>, new: NewRun) -> Result<Registered, QueryFailure> {
        let id = QueryId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let mut state = self.lock();
        if !self.allow_duplicates && !new.asker.remote.is_empty() {
            let same = |run: &Arc<QueryRun>| asks_the_same(&run.asker, &new.asker);
            if state.running.values().any(same) {
                let endpoint = &new.asker.remote;
                let message = format!("Query is already executing for endpoint: {endpoint}");
                return Err(QueryError::internal(message).into());
            }
        }
        let run = Arc::new(QueryRun::new(id, state.running.len() + 1, new));
        state.running.insert(id, Arc::clone(&run));
        drop(state);
        Ok(Registered { registry: Arc::clone(self), run, outcome: Outcome::default() })
    }

    /// Cancels a query. Says whether it was running.
    pub(crate) fn cancel(&self, id: QueryId) -> bool {
        let run = self.lock().running.get(&id).cloned();
        run.inspect(|run| run.stop.cancel()).is_some()
    }

    /// The list.
    pub(crate) fn list(&self) -> QueryList {
        let (running, completed) = {
            let state = self.lock();
            let running: Vec<Arc<QueryRun>> = state.running.values().cloned().collect();
            (running, state.completed.iter().cloned().collect())
        };
        QueryList { running: running.iter().map(|run| run.show()).collect(), completed }
    }

    /// Queries that run, and those of them that wait to be let in.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running.len(), state.running.values().filter(|run| run.is_waiting()).count())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, run: &QueryRun, outcome: &mut Outcome) {
        let mut stages = run.stages();
        stages.processing_pre_write = outcome.processing;
        stages.serialization = outcome.serialization;
        let gone = || QueryFailure::Cancelled.to_string();
        let mut query = CompletedQuery {
            id: run.id,
            asker: Arc::clone(&run.asker),
            started_ms: run.started_ms,
            completed_ms: self.clock.now_ms(),
            failure: outcome.failure.take().or_else(|| (!outcome.answered).then(gone)),
            status: outcome.status,
            sent: outcome.sent,
            executed: 1,
            running: run.beside,
            stages: Arc::new(stages),
        };
        let mut state = self.lock();
        state.running.remove(&run.id);
        let same = |old: &CompletedQuery| asks_the_same(&old.asker, &query.asker);
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

fn asks_the_same(a: &QueryClient, b: &QueryClient) -> bool {
    a.remote == b.remote && a.query == b.query
}

impl CompletedQuery {
    /// About how much memory it takes.
    fn size(&self) -> usize {
        let asker = &self.asker;
        let headers: usize =
            asker.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let subs = &self.stages.sub_queries;
        let scans: usize = subs.iter().map(|sub| sub.scanners.len()).sum();
        let text = asker.remote.len() + asker.query.len() + headers;
        let user = asker.user.as_ref().map_or(0, String::len);
        let failure = self.failure.as_ref().map_or(0, String::len);
        size_of::<Self>()
            + size_of::<QueryStages>()
            + text
            + user
            + failure
            + subs.len() * size_of::<SubQueryStages>()
            // The name of a scan is short.
            + scans * (size_of::<ScannerStages>() + 32)
    }
}

impl Registered {
    pub(crate) const fn run(&self) -> &Arc<QueryRun> {
        &self.run
    }

    /// Its numbers as they are now.
    pub(crate) fn stages(&self) -> QueryStages {
        let mut stages = self.run.stages();
        stages.processing_pre_write = self.outcome.processing;
        stages
    }

    /// It has an answer, which is to be sent.
    pub(crate) fn answered(&mut self) {
        self.run.enter(Step::Sending);
        self.run.turns().answered();
        self.outcome.answered = true;
        self.outcome.processing = self.run.started.elapsed();
    }

    /// It has none.
    pub(crate) fn failed(mut self, failure: &QueryFailure) {
        self.outcome.failure = Some(failure.to_string());
        self.outcome.status = Some(failure.status());
    }

    /// The answer was written.
    pub(crate) fn sent(mut self, status: u16, serialization: Duration) {
        self.outcome.status = Some(status);
        self.outcome.serialization = serialization;
        self.outcome.sent = true;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.complete(&self.run, &mut self.outcome);
    }
}
