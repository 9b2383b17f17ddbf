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
//! one for each processor. Light queries run at the same time in the other half, and the operating
//! system shares out the processors.
//!
//! Admission limits how many heavy queries run: a query that becomes heavy must be admitted as a wide query
//! ([`super::admission`]).

mod handle;
mod time_slice;

#[cfg(test)]
mod tests;

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
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
    /// Threads blocked in [`SchedulerHandle::renew`].
    blocked_threads: AtomicUsize,
    state: Mutex<SchedulerState>,
}

#[derive(Debug, Default)]
struct SchedulerState {
    /// Permits granted and not returned yet.
    running: usize,
    /// Permits that heavy queries have, of those above.
    running_heavy: usize,
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
}

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
    /// Schedules onto `processors`, at least 1.
    pub(crate) fn new(processors: usize) -> Arc<Self> {
        Arc::new(Self {
            processors: processors.max(1),
            blocked_threads: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Most slices that run at the same time.
    pub(crate) const fn max_slices(processors: usize) -> usize {
        2 * processors
    }

    /// Most threads that may block on a permit. The runtime replaces each by another thread, which needs memory of its
    /// own.
    const fn max_blocked(&self) -> usize {
        Self::max_slices(self.processors)
    }

    /// Number of queries with queued slices.
    pub(crate) fn runnable(&self) -> usize {
        self.state.lock().run_queues.len()
    }

    /// True if a query other than the one of `account` has queued slices.
    fn has_others(&self, account: &Arc<CpuAccount>) -> bool {
        self.state.lock().run_queues.iter().any(|queue| !Arc::ptr_eq(&queue.account, account))
    }

    fn can_run(&self, state: &SchedulerState, account: &CpuAccount) -> bool {
        if state.running >= Self::max_slices(self.processors) {
            return false;
        }
        account.is_light() || state.running_heavy < self.processors
    }

    /// Grants a permit. Requires [`Self::can_run`].
    fn grant(self: &Arc<Self>, state: &mut SchedulerState, account: &CpuAccount) -> RunPermit {
        let heavy = !account.is_light();
        state.running += 1;
        state.running_heavy += usize::from(heavy);
        state.granted += 1;
        RunPermit { scheduler: Arc::clone(self), heavy }
    }

    /// Requests a permit.
    fn request(self: &Arc<Self>, account: &Arc<CpuAccount>) -> PermitRequest {
        let mut state = self.state.lock();
        let queue = state.run_queues.iter().position(|queue| Arc::ptr_eq(&queue.account, account));
        // Permits were granted to all queued slices that can run when the last permit was returned.
        if queue.is_none() && self.can_run(&state, account) {
            return PermitRequest::Granted(self.grant(&mut state, account));
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
        PermitRequest::Queued(permit)
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
            // If the waiter was dropped meanwhile, dropping the permit grants the next one.
            let _ = waiter.send(permit);
        }
    }

    /// Index of the run queue to serve next; `None` if no permit is free.
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
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        state.running -= 1;
        state.running_heavy -= usize::from(self.heavy);
        self.scheduler.dispatch(state);
    }
}
