//! Cooperative scheduling of query work: the runnable query with the least CPU time runs next.
//!
//! Query work is divided into time slices of a few milliseconds: some rows, a group, a step of an
//! expression. Each slice needs a run permit. While more slices are runnable than there are
//! permits, the next permit is granted to the query that has used the least CPU time, so a small
//! query overtakes large ones at every slice. One grant in [`FAIRNESS_INTERVAL`] goes to the
//! longest-waiting slice instead, so that a stream of small queries slows a large one without
//! starving it.
//!
//! A query is heavy once it has used [`HEAVY_CPU_TIME`]. A slice that overruns (a very large group,
//! for instance) must not delay small queries, so heavy queries get at most half of the permits:
//! one for each processor. Light queries run beside them in the other half, and the operating
//! system shares out the processors.
//!
//! The number of heavy queries that run is limited. A further one pauses at its next slice; once as
//! many are paused as may run, the next is rejected. Light queries never wait for heavy ones to
//! complete.

mod handle;
mod time_slice;

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

pub(crate) use self::{handle::SchedulerHandle, time_slice::TimeSlice};

/// CPU time after which a query counts as heavy.
const HEAVY_CPU_TIME: Duration = Duration::from_millis(100);
/// One grant in this many goes to the slice that has waited longest.
const FAIRNESS_INTERVAL: u64 = 8;

/// Grants run permits to queries.
#[derive(Debug)]
pub(crate) struct Scheduler {
    processors: usize,
    max_heavy: usize,
    /// Threads blocked in [`SchedulerHandle::renew`].
    blocked_threads: AtomicUsize,
    state: Mutex<SchedulerState>,
}

#[derive(Debug, Default)]
struct SchedulerState {
    /// Permits granted and not returned.
    running: usize,
    /// Those of them that heavy queries have.
    running_heavy: usize,
    /// Heavy queries that may run.
    heavy_queries: usize,
    /// Permits granted so far.
    granted: u64,
    /// Slices queued so far.
    queued: u64,
    /// Queries with queued slices.
    run_queues: Vec<RunQueue>,
}

/// Queued slices of one query, oldest first, each with its sequence number.
#[derive(Debug)]
struct RunQueue {
    account: Arc<CpuAccount>,
    waiters: VecDeque<(u64, oneshot::Sender<RunPermit>)>,
}

/// CPU usage of one query.
#[derive(Debug, Default)]
struct CpuAccount {
    cpu_nanos: AtomicU64,
    wait_nanos: AtomicU64,
    /// True if it counts towards [`SchedulerState::heavy_queries`].
    has_heavy_slot: AtomicBool,
    /// True once its result is complete. Writing the response needs no heavy slot.
    is_executed: AtomicBool,
}

/// The limit on heavy queries is reached, and the caller is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyHeavyQueries;

/// Permission to run one slice. Dropping it grants the next one.
#[derive(Debug)]
struct RunPermit {
    scheduler: Arc<Scheduler>,
    heavy: bool,
}

/// A permit, or the channel it will arrive on.
enum PermitRequest {
    Granted(RunPermit),
    Queued(oneshot::Receiver<RunPermit>),
}

impl Scheduler {
    /// Schedules onto `processors`, with at most `max_heavy` heavy queries running; both at least
    /// 1.
    pub(crate) fn new(processors: usize, max_heavy: usize) -> Arc<Self> {
        let (processors, max_heavy) = (processors.max(1), max_heavy.max(1));
        Arc::new(Self {
            processors,
            max_heavy,
            blocked_threads: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Most slices that run at once.
    pub(crate) const fn max_slices(processors: usize) -> usize {
        2 * processors
    }

    /// Most threads that may block on a permit. Each is replaced by another one, which keeps memory of its own.
    const fn max_blocked(&self) -> usize {
        Self::max_slices(self.processors)
    }

    /// Number of queries with queued slices.
    pub(crate) fn runnable(&self) -> usize {
        self.lock().run_queues.len()
    }

    /// True if a query other than that of `account` has queued slices.
    fn has_others(&self, account: &Arc<CpuAccount>) -> bool {
        self.lock().run_queues.iter().any(|queue| !Arc::ptr_eq(&queue.account, account))
    }

    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn can_run(&self, state: &SchedulerState, account: &CpuAccount) -> bool {
        if state.running >= Self::max_slices(self.processors) {
            return false;
        }
        account.is_light()
            || (state.running_heavy < self.processors
                && (!account.needs_heavy_slot() || state.heavy_queries < self.max_heavy))
    }

    /// Grants a permit. Requires [`Self::can_run`].
    fn grant(self: &Arc<Self>, state: &mut SchedulerState, account: &CpuAccount) -> RunPermit {
        let heavy = !account.is_light();
        if account.needs_heavy_slot() {
            account.has_heavy_slot.store(true, Ordering::Relaxed);
            state.heavy_queries += 1;
        }
        state.running += 1;
        state.running_heavy += usize::from(heavy);
        state.granted += 1;
        RunPermit { scheduler: Arc::clone(self), heavy }
    }

    /// Requests a permit. Fails only if `may_reject`: work that is half done must not be rejected.
    fn request(
        self: &Arc<Self>,
        account: &Arc<CpuAccount>,
        may_reject: bool,
    ) -> Result<PermitRequest, TooManyHeavyQueries> {
        let mut state = self.lock();
        let queue = state.run_queues.iter().position(|queue| Arc::ptr_eq(&queue.account, account));
        // Queued slices that could run were granted a permit when the last one was returned.
        if queue.is_none() && self.can_run(&state, account) {
            return Ok(PermitRequest::Granted(self.grant(&mut state, account)));
        }
        let is_new = queue.is_none() && may_reject;
        if is_new && account.needs_heavy_slot() && state.heavy_queries >= self.max_heavy {
            let needs_slot = |queue: &&RunQueue| queue.account.needs_heavy_slot();
            if state.run_queues.iter().filter(needs_slot).count() >= self.max_heavy {
                return Err(TooManyHeavyQueries);
            }
        }
        state.queued += 1;
        let (sender, permit) = oneshot::channel();
        let waiter = (state.queued, sender);
        match queue.and_then(|at| state.run_queues.get_mut(at)) {
            Some(queue) => queue.waiters.push_back(waiter),
            None => state
                .run_queues
                .push(RunQueue { account: Arc::clone(account), waiters: VecDeque::from([waiter]) }),
        }
        Ok(PermitRequest::Queued(permit))
    }

    /// Grants free permits to queued slices.
    fn dispatch(self: &Arc<Self>, mut state: MutexGuard<'_, SchedulerState>) {
        let mut granted = Vec::new();
        while let Some(at) = self.select_next(&mut state) {
            let Some(queue) = state.run_queues.get_mut(at) else { break };
            let account = Arc::clone(&queue.account);
            let Some((_, waiter)) = queue.waiters.pop_front() else { break };
            if queue.waiters.is_empty() {
                state.run_queues.swap_remove(at);
            }
            granted.push((waiter, self.grant(&mut state, &account)));
        }
        drop(state);
        for (waiter, permit) in granted {
            // If the waiter was dropped meanwhile, dropping the permit dispatches the next one.
            let _ = waiter.send(permit);
        }
    }

    /// Index of the run queue to serve next, if a permit is free.
    fn select_next(&self, state: &mut SchedulerState) -> Option<usize> {
        for queue in &mut state.run_queues {
            queue.waiters.retain(|(_, waiter)| !waiter.is_closed());
        }
        state.run_queues.retain(|queue| !queue.waiters.is_empty());
        let by_wait_time = state.granted % FAIRNESS_INTERVAL == FAIRNESS_INTERVAL - 1;
        let rank = |queue: &RunQueue| {
            let sequence = queue.waiters.front().map_or(0, |(sequence, _)| *sequence);
            if by_wait_time { (0, sequence) } else { (queue.account.cpu_nanos(), sequence) }
        };
        (0..state.run_queues.len())
            .filter_map(|at| Some((at, state.run_queues.get(at)?)))
            .filter(|(_, queue)| self.can_run(state, &queue.account))
            .min_by_key(|(_, queue)| rank(queue))
            .map(|(at, _)| at)
    }
}

impl CpuAccount {
    fn cpu_nanos(&self) -> u64 {
        self.cpu_nanos.load(Ordering::Relaxed)
    }

    fn is_light(&self) -> bool {
        u128::from(self.cpu_nanos()) < HEAVY_CPU_TIME.as_nanos()
    }

    fn add_wait(&self, time: Duration) {
        self.wait_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn add_cpu(&self, time: Duration) {
        self.cpu_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// True for a heavy query that executes without a heavy slot.
    fn needs_heavy_slot(&self) -> bool {
        !self.is_light()
            && !self.has_heavy_slot.load(Ordering::Relaxed)
            && !self.is_executed.load(Ordering::Relaxed)
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let mut state = self.scheduler.lock();
        state.running -= 1;
        state.running_heavy -= usize::from(self.heavy);
        self.scheduler.dispatch(state);
    }
}
