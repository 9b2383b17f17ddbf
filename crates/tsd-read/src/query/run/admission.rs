//! Admits queries to the memory that they share, in two classes.
//!
//! A query claims memory and gets a [`Grant`]. Only a query that has not begun waits for a grant. A running query
//! grows its grant if memory is free; otherwise it begins again behind a larger claim ([`super::memory_budget`]). So
//! two half-finished queries never wait for each other.
//!
//! Small queries have an eighth of the memory for themselves. Wide queries share the rest and are admitted in the
//! order in which they came. No wide query overtakes the first in line, so each of them runs in the end, alone if it
//! must. A query that begins again keeps its place in that order.

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use tokio::sync::oneshot;
use tsd_runtime::{MEMORY_LIMIT_KEY, MemoryConsumer, ProcessMemory};

const MB: u64 = 1 << 20;
/// Most bytes of a small query. If memory is scarce, the limit is half of the share of small queries.
const SMALL_QUERY_BYTES: u64 = 8 * MB;
/// Divisor of the memory: this fraction is reserved for small queries.
const SMALL_QUERY_SHARE: u64 = 8;
/// Small queries that may run for each wide query that may run.
const SMALL_PER_WIDE: usize = 4;
/// Stands for memory without a limit. Small enough that sums do not overflow.
const UNLIMITED: u64 = u64::MAX >> 4;
/// How often a waiting query looks for memory that connections and bodies have released.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Configuration key of the memory limit of all queries.
const TOTAL_KEY: &str = "tsd.query.max_total_memory_bytes";

/// Class of a query, by its memory and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryClass {
    /// Little memory and little time.
    #[default]
    Small,
    /// More of either.
    Wide,
}

impl QueryClass {
    /// All classes.
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Wide];

    /// Its name, for clients and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Wide => "wide",
        }
    }
}

/// The memory that a query asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) class: QueryClass,
    pub(crate) bytes: u64,
}

/// Why a query does not get memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Other queries have the memory, or are first in line.
    Queries,
    /// Connections and bodies use the memory of the process. No other query has memory to wait for.
    Process,
    /// Too many queries wait.
    Full,
}

/// Admits queries to the memory that they share, which is a share of the memory of the process.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Limit in bytes; 0 means unlimited.
    limit: u64,
    /// Most bytes of all grants.
    capacity: u64,
    /// Configuration key of the limit.
    key: &'static str,
    /// Bytes reserved for small queries.
    small_share: u64,
    /// Most bytes of a small query.
    small_query: u64,
    /// Most wide queries that run.
    max_wide: usize,
    /// Most wide queries that wait.
    max_waiting: usize,
    process: ProcessMemory,
    state: Mutex<AdmissionState>,
}

#[derive(Debug, Default)]
struct AdmissionState {
    small: ClassState,
    wide: ClassState,
}

#[derive(Debug, Default)]
struct ClassState {
    /// Bytes of all grants, including those of queries whose responses are being sent.
    granted: u64,
    /// Number of running queries.
    running: usize,
    /// Waiting queries, in the order in which they came.
    waiting: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    outcome: oneshot::Sender<Result<Grant, Shortage>>,
}

/// Memory of one query, and its place among the running queries. Dropping it releases both.
#[derive(Debug)]
pub(crate) struct Grant {
    admission: Arc<Admission>,
    class: QueryClass,
    bytes: u64,
    /// True while the query counts as running.
    is_running: bool,
}

/// A wait for a grant. Dropping it leaves the line.
struct Wait<'a> {
    admission: &'a Arc<Admission>,
    class: QueryClass,
    order: u64,
    outcome: oneshot::Receiver<Result<Grant, Shortage>>,
}

impl Admission {
    /// Admits to `limit` bytes (0 means unlimited), or to the memory that `process` has for queries, if that is less.
    /// At most `max_wide` wide queries run, and at most `max_waiting` wide queries wait.
    pub(crate) fn new(
        limit: u64,
        process: ProcessMemory,
        (max_wide, max_waiting): (usize, usize),
    ) -> Arc<Self> {
        let most = process.most(MemoryConsumer::Queries);
        let (limit, key) = match limit {
            0 if process.is_unlimited() => (0, TOTAL_KEY),
            limit if limit > 0 && limit <= most => (limit, TOTAL_KEY),
            _ => (most, MEMORY_LIMIT_KEY),
        };
        let capacity = if limit == 0 { UNLIMITED } else { limit };
        let small_share = capacity / SMALL_QUERY_SHARE;
        Arc::new(Self {
            limit,
            capacity,
            key,
            small_share,
            small_query: SMALL_QUERY_BYTES.min(small_share / 2),
            max_wide: max_wide.max(1),
            max_waiting,
            process,
            state: Mutex::default(),
        })
    }

    /// Most bytes of all queries; 0 means unlimited.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Configuration key of the limit.
    pub(crate) const fn key(&self) -> &'static str {
        self.key
    }

    /// Most bytes of a small query.
    pub(crate) const fn small_query(&self) -> u64 {
        self.small_query
    }

    /// Most bytes that a wide query can be granted.
    pub(crate) const fn most(&self) -> u64 {
        self.capacity - self.small_share
    }

    /// The limit to report for a shortage, and its configuration key.
    pub(crate) fn limit_of(&self, shortage: Shortage) -> (u64, &'static str) {
        match shortage {
            Shortage::Process => (self.process.limit(), MEMORY_LIMIT_KEY),
            Shortage::Queries | Shortage::Full => (self.capacity, self.key),
        }
    }

    /// Counts a query that was rejected because of this limit.
    pub(crate) fn record_refusal(&self, key: &str) {
        if key == MEMORY_LIMIT_KEY {
            self.process.record_refusal(MemoryConsumer::Queries);
        }
    }

    /// Bytes granted to all queries.
    pub(crate) fn granted(&self) -> u64 {
        let state = self.state.lock();
        state.small.granted + state.wide.granted
    }

    /// Number of running and of waiting queries of a class.
    pub(crate) fn count(&self, class: QueryClass) -> (usize, usize) {
        let state = self.state.lock();
        let of_class = state.class(class);
        (of_class.running, of_class.waiting.len())
    }

    /// True if a query waits for memory, not for other queries to end.
    pub(crate) fn is_memory_awaited(&self) -> bool {
        let state = self.state.lock();
        QueryClass::ALL.into_iter().any(|class| {
            let of_class = state.class(class);
            !of_class.waiting.is_empty() && of_class.running < self.max_running(class)
        })
    }

    /// The claim of a query that needs this much memory.
    pub(crate) const fn claim(&self, bytes: u64) -> Claim {
        let is_small = bytes <= self.small_query;
        Claim { class: if is_small { QueryClass::Small } else { QueryClass::Wide }, bytes }
    }

    /// Waits until a query may run, behind earlier queries of its class. `order` must be unique.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        order: u64,
        claim: Claim,
    ) -> Result<Grant, Shortage> {
        let mut wait = {
            let mut state = self.state.lock();
            let of_class = state.class_mut(claim.class);
            let (sender, outcome) = oneshot::channel();
            match of_class.waiting.entry(order) {
                Entry::Vacant(entry) => {
                    entry.insert(Waiter { bytes: claim.bytes, outcome: sender });
                }
                Entry::Occupied(_) => return Err(Shortage::Full),
            }
            Wait { admission: self, class: claim.class, order, outcome }
        };
        self.dispatch();
        self.shed();
        loop {
            tokio::select! {
                // The sender is never dropped without sending an outcome.
                outcome = &mut wait.outcome => return outcome.unwrap_or(Err(Shortage::Full)),
                () = tokio::time::sleep(POLL_INTERVAL) => self.dispatch(),
            }
        }
    }

    /// Grows the grant of a running query to at least `bytes`. A small query that needs more becomes wide. `order` is
    /// its place in line; `margin` is extra memory to take if enough is free.
    pub(crate) fn grow(
        self: &Arc<Self>,
        grant: &mut Option<Grant>,
        order: u64,
        (claim, margin): (Claim, u64),
    ) -> Result<(), Shortage> {
        let mut state = self.state.lock();
        let (class, bytes, is_running) =
            grant.as_ref().map_or_else(Default::default, |it| (it.class, it.bytes, it.is_running));
        let is_promoted = class == QueryClass::Small && claim.class == QueryClass::Wide;
        if is_promoted && !state.may_promote(order, is_running, self.max_wide) {
            return Err(Shortage::Queries);
        }
        let to = if is_promoted { QueryClass::Wide } else { class };
        let least = claim.bytes.max(bytes);
        let mut outcome = Err(Shortage::Queries);
        for target in [least.saturating_add(margin), least] {
            if to == QueryClass::Small && target > self.small_query {
                continue;
            }
            outcome = self.try_change(&mut state, (class, bytes), (to, target));
            if outcome.is_ok() {
                if is_running && is_promoted {
                    state.small.running -= 1;
                    state.wide.running += 1;
                }
                drop(state);
                let grant = grant.get_or_insert_with(|| self.grant((to, 0), false));
                (grant.class, grant.bytes) = (to, target);
                if is_promoted {
                    self.dispatch();
                }
                return Ok(());
            }
        }
        outcome
    }

    /// Changes the size and class of a grant, if the memory is free.
    fn try_change(
        &self,
        state: &mut AdmissionState,
        (class, bytes): (QueryClass, u64),
        (to, target): (QueryClass, u64),
    ) -> Result<(), Shortage> {
        let (small, wide) = match class {
            QueryClass::Small => (state.small.granted - bytes, state.wide.granted),
            QueryClass::Wide => (state.small.granted, state.wide.granted - bytes),
        };
        let fits = match to {
            QueryClass::Small => {
                small + target <= self.small_share
                    || state.wide.waiting.is_empty() && small + wide + target <= self.capacity
            }
            QueryClass::Wide => small.max(self.small_share) + wide + target <= self.capacity,
        };
        if !fits {
            return Err(Shortage::Queries);
        }
        // Wide queries do not take the share of small queries in the memory of the process either.
        let kept = match to {
            QueryClass::Small => 0,
            QueryClass::Wide => self.small_share.saturating_sub(small),
        };
        if !self.process.try_add_beside(MemoryConsumer::Queries, target.saturating_sub(bytes), kept)
        {
            let is_alone = match to {
                QueryClass::Small => small + wide == 0,
                QueryClass::Wide => wide == 0,
            };
            return Err(if is_alone { Shortage::Process } else { Shortage::Queries });
        }
        state.class_mut(class).granted -= bytes;
        state.class_mut(to).granted += target;
        Ok(())
    }

    /// Admits waiting queries, each class in its order.
    fn dispatch(self: &Arc<Self>) {
        let mut outcomes = Vec::new();
        let mut state = self.state.lock();
        for class in QueryClass::ALL {
            while state.class(class).running < self.max_running(class) {
                let Some((_, first)) = state.class(class).waiting.first_key_value() else { break };
                let claimed = first.bytes;
                let outcome = self.try_admit(&mut state, class, claimed);
                if outcome == Err(Shortage::Queries) {
                    break;
                }
                let of_class = state.class_mut(class);
                let Some((_, waiter)) = of_class.waiting.pop_first() else { break };
                of_class.running += usize::from(outcome.is_ok());
                outcomes.push((waiter, outcome.map(|bytes| self.grant((class, bytes), true))));
            }
        }
        drop(state);
        for (waiter, outcome) in outcomes {
            // If the waiter was dropped meanwhile, dropping the grant admits the next query.
            let _ = waiter.outcome.send(outcome);
        }
    }

    /// Most queries of a class that run at once.
    const fn max_running(&self, class: QueryClass) -> usize {
        match class {
            QueryClass::Small => self.max_wide * SMALL_PER_WIDE,
            QueryClass::Wide => self.max_wide,
        }
    }

    /// Rejects the newest waiting wide query if too many wait.
    fn shed(&self) {
        let mut state = self.state.lock();
        let waiting = &mut state.wide.waiting;
        let newest = if waiting.len() > self.max_waiting { waiting.pop_last() } else { None };
        drop(state);
        if let Some((_, waiter)) = newest {
            // The client may have left.
            let _ = waiter.outcome.send(Err(Shortage::Full));
        }
    }

    /// Takes the memory for the first in line. If no other query has memory and the process has less than the claim,
    /// the query gets what is free.
    fn try_admit(
        &self,
        state: &mut AdmissionState,
        class: QueryClass,
        claimed: u64,
    ) -> Result<u64, Shortage> {
        let mut bytes = claimed;
        loop {
            match self.try_change(state, (class, 0), (class, bytes)) {
                Ok(()) => return Ok(bytes),
                Err(Shortage::Process) if bytes / 2 >= self.small_query => bytes /= 2,
                Err(Shortage::Process) if state.small.granted > 0 => return Err(Shortage::Queries),
                Err(shortage) => return Err(shortage),
            }
        }
    }

    fn grant(self: &Arc<Self>, (class, bytes): (QueryClass, u64), is_running: bool) -> Grant {
        Grant { admission: Arc::clone(self), class, bytes, is_running }
    }
}

impl AdmissionState {
    const fn class(&self, class: QueryClass) -> &ClassState {
        match class {
            QueryClass::Small => &self.small,
            QueryClass::Wide => &self.wide,
        }
    }

    const fn class_mut(&mut self, class: QueryClass) -> &mut ClassState {
        match class {
            QueryClass::Small => &mut self.small,
            QueryClass::Wide => &mut self.wide,
        }
    }

    /// True if a small query may become wide without waiting in line.
    fn may_promote(&self, order: u64, is_running: bool, max_wide: usize) -> bool {
        let is_first = self.wide.waiting.first_key_value().is_none_or(|(first, _)| order < *first);
        is_first && (!is_running || self.wide.running < max_wide)
    }
}

impl Grant {
    pub(crate) const fn class(&self) -> QueryClass {
        self.class
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if the query counts as running.
    pub(crate) const fn is_running(&self) -> bool {
        self.is_running
    }

    /// Ends the run of the query so that others may run. Keeps `keep` bytes for its response.
    pub(crate) fn end_run(&mut self, keep: u64) {
        let less = self.bytes.saturating_sub(keep);
        let was_running = std::mem::take(&mut self.is_running);
        if less == 0 && !was_running {
            return;
        }
        self.bytes -= less;
        let mut state = self.admission.state.lock();
        let of_class = state.class_mut(self.class);
        of_class.granted -= less;
        of_class.running -= usize::from(was_running);
        drop(state);
        self.admission.process.release(MemoryConsumer::Queries, less);
        self.admission.dispatch();
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.end_run(0);
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waits = self.admission.state.lock().class_mut(self.class).waiting.remove(&self.order);
        if waits.is_some() {
            // The queries behind it may fit now.
            self.admission.dispatch();
        }
    }
}
