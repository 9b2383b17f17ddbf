//! Turns on the processors: the query that has had least of them goes first.
//!
//! Work of a query is cut into slices of a few milliseconds: some rows, a group, a step of an
//! expression. Each slice needs a turn, and while there are more slices than turns the next one goes to
//! the query that spent least so far, so a small query overtakes large ones at every slice. One turn
//! in [`FAIR_EVERY`] goes to whoever waits longest, so that a stream of small queries delays a
//! large one and does not stop it.
//!
//! A query is heavy once it spent [`LIGHT`]. A slice that lasts longer than it should (a very large
//! group, say) must not hold small queries up either, so heavy queries get at most half of the turns: one
//! for each processor. In the other half light ones run beside them, and the operating system shares
//! the processors out.
//!
//! Work that cannot stop in the middle of a call (the points of one group, an expression) takes its next
//! turn from inside: [`Turns::renew`] holds its thread until the turn comes, and the runtime puts another
//! in its place. Few threads may be held so; work beyond them keeps its turn.
//!
//! Only so many heavy queries get turns at all; another pauses where it is, and if as many pause
//! already, the next one is turned away. Light ones never wait for heavy ones to end.

use std::{
    collections::VecDeque,
    marker::PhantomData,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::{runtime::Handle, sync::oneshot, task::block_in_place};

/// What a query may spend before it counts as heavy.
const LIGHT: Duration = Duration::from_millis(100);
/// How long a slice should last.
const SLICE: Duration = Duration::from_millis(2);
/// One turn in so many goes to whoever waits longest.
const FAIR_EVERY: u64 = 8;

/// Threads that may wait for a turn in the middle of a call.
const MAX_HELD_THREADS: usize = 64;
/// How often such a thread looks whether its query has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Gives turns to queries.
#[derive(Debug)]
pub(crate) struct Scheduler {
    processors: usize,
    max_heavy: usize,
    held_threads: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Turns taken.
    taken: usize,
    /// Those of them that heavy queries have.
    taken_by_heavy: usize,
    /// Heavy queries that get turns.
    heavy: usize,
    given: u64,
    asked: u64,
    /// Queries with slices that wait.
    lines: Vec<Line>,
}

/// Slices of one query that wait.
#[derive(Debug)]
struct Line {
    account: Arc<Account>,
    waiting: VecDeque<(u64, oneshot::Sender<Turn>)>,
}

/// What a query spent.
#[derive(Debug, Default)]
struct Account {
    spent_nanos: AtomicU64,
    waited_nanos: AtomicU64,
    /// Whether it is one of the heavy queries that get turns.
    placed: AtomicBool,
    /// Whether it has its answer. What is left is to write it, for which it needs no place.
    answered: AtomicBool,
}

/// The turns of one query. Dropping it gives its place among the heavy ones back.
#[derive(Debug)]
pub(crate) struct Turns {
    scheduler: Arc<Scheduler>,
    account: Arc<Account>,
}

/// There are too many heavy queries, and the one that asked is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyHeavy;

/// A turn. Dropping it lets the next one go.
#[derive(Debug)]
struct Turn {
    scheduler: Arc<Scheduler>,
    heavy: bool,
}

/// A piece of work that has its turn.
///
/// It stays on its thread and across no wait: nothing is waited for in a turn.
#[derive(Debug)]
pub(crate) struct Slice {
    began: Instant,
    began_cpu: Duration,
    account: Arc<Account>,
    _turn: Turn,
    _stays: PhantomData<*const ()>,
}

impl Scheduler {
    /// Gives turns for so many processors, and turns to `max_heavy` heavy queries.
    pub(crate) fn new(processors: usize, max_heavy: usize) -> Arc<Self> {
        let (processors, max_heavy) = (processors.max(1), max_heavy.max(1));
        Arc::new(Self {
            processors,
            max_heavy,
            held_threads: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Most turns that are taken at once.
    pub(crate) const fn max_turns(processors: usize) -> usize {
        2 * processors
    }

    /// The turns of a new query.
    pub(crate) fn admit(self: &Arc<Self>) -> Turns {
        Turns { scheduler: Arc::clone(self), account: Arc::default() }
    }

    /// Queries with slices that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().lines.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether that query may have a turn now.
    fn may_go(&self, state: &State, account: &Account) -> bool {
        if state.taken >= Self::max_turns(self.processors) {
            return false;
        }
        account.is_light()
            || (state.taken_by_heavy < self.processors
                && (!account.needs_place() || state.heavy < self.max_heavy))
    }

    /// Takes a turn; whoever calls made sure that there is one.
    fn take(self: &Arc<Self>, state: &mut State, account: &Account) -> Turn {
        let heavy = !account.is_light();
        if account.needs_place() {
            account.placed.store(true, Ordering::Relaxed);
            state.heavy += 1;
        }
        state.taken += 1;
        state.taken_by_heavy += usize::from(heavy);
        state.given += 1;
        Turn { scheduler: Arc::clone(self), heavy }
    }

    /// Asks for a turn: it comes at once, or through the channel. Work that is in the middle of
    /// something is not turned away.
    fn ask(
        self: &Arc<Self>,
        account: &Arc<Account>,
        in_the_middle: bool,
    ) -> Result<Result<Turn, oneshot::Receiver<Turn>>, TooManyHeavy> {
        let mut state = self.lock();
        let line = state.lines.iter().position(|line| Arc::ptr_eq(&line.account, account));
        // Whoever could go ahead of the others was let go when a turn was given back.
        if line.is_none() && self.may_go(&state, account) {
            return Ok(Ok(self.take(&mut state, account)));
        }
        let is_new = line.is_none() && !in_the_middle;
        if is_new && account.needs_place() && state.heavy >= self.max_heavy {
            let paused = state.lines.iter().filter(|line| line.account.needs_place()).count();
            if paused >= self.max_heavy {
                return Err(TooManyHeavy);
            }
        }
        state.asked += 1;
        let (send, turn) = oneshot::channel();
        let entry = (state.asked, send);
        match line.and_then(|at| state.lines.get_mut(at)) {
            Some(line) => line.waiting.push_back(entry),
            None => state
                .lines
                .push(Line { account: Arc::clone(account), waiting: VecDeque::from([entry]) }),
        }
        Ok(Err(turn))
    }

    /// Gives free turns to those that wait.
    fn give(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut given = Vec::new();
        while let Some(at) = self.next(&mut state) {
            let Some(line) = state.lines.get_mut(at) else { break };
            let account = Arc::clone(&line.account);
            let Some((_, waiter)) = line.waiting.pop_front() else { break };
            if line.waiting.is_empty() {
                state.lines.swap_remove(at);
            }
            given.push((waiter, self.take(&mut state, &account)));
        }
        drop(state);
        for (waiter, turn) in given {
            // If whoever waited has just gone, the turn comes back here and goes to another.
            let _ = waiter.send(turn);
        }
    }

    /// Whose turn is next, if there is one to give.
    fn next(&self, state: &mut State) -> Option<usize> {
        for line in &mut state.lines {
            line.waiting.retain(|(_, waiter)| !waiter.is_closed());
        }
        state.lines.retain(|line| !line.waiting.is_empty());
        let longest_waiting = state.given % FAIR_EVERY == FAIR_EVERY - 1;
        let rank = |line: &Line| {
            let since = line.waiting.front().map_or(0, |(since, _)| *since);
            if longest_waiting { (0, since) } else { (line.account.spent(), since) }
        };
        (0..state.lines.len())
            .filter_map(|at| Some((at, state.lines.get(at)?)))
            .filter(|(_, line)| self.may_go(state, &line.account))
            .min_by_key(|(_, line)| rank(line))
            .map(|(at, _)| at)
    }
}

impl Account {
    fn spent(&self) -> u64 {
        self.spent_nanos.load(Ordering::Relaxed)
    }

    fn is_light(&self) -> bool {
        u128::from(self.spent()) < LIGHT.as_nanos()
    }

    fn waited(&self, time: Duration) {
        self.waited_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Whether it is heavy and not yet one of those that get turns.
    fn needs_place(&self) -> bool {
        !self.is_light()
            && !self.placed.load(Ordering::Relaxed)
            && !self.answered.load(Ordering::Relaxed)
    }
}

impl Turns {
    /// Waits for a turn.
    pub(crate) async fn next(&self) -> Result<Slice, TooManyHeavy> {
        let answered = self.account.answered.load(Ordering::Relaxed);
        let turn = match self.scheduler.ask(&self.account, answered)? {
            Ok(turn) => turn,
            Err(turn) => {
                let asked = Instant::now();
                // The scheduler outlives its waiters, and drops none that still waits.
                let turn = turn.await.map_err(|_| TooManyHeavy)?;
                self.account.waited(asked.elapsed());
                turn
            }
        };
        Ok(Slice::begin(&self.account, turn))
    }

    /// If the slice is over and others wait, ends it and waits for the next turn, holding this
    /// thread. Returns nothing if `has_ended` said so meanwhile. Must be called on a runtime of several
    /// threads.
    pub(crate) fn renew(&self, mut slice: Slice, has_ended: impl Fn() -> bool) -> Option<Slice> {
        if !slice.is_over() {
            return Some(slice);
        }
        let held = &self.scheduler.held_threads;
        let is_held = self.scheduler.waiting() > 0
            && held
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |threads| {
                    (threads < MAX_HELD_THREADS).then_some(threads + 1)
                })
                .is_ok();
        if !is_held {
            slice.go_on();
            return Some(slice);
        }
        let asked = Instant::now();
        // Whoever gets the turn must not wait for this thread, so all of it is done outside of the
        // runtime.
        let turn = block_in_place(|| {
            slice.end();
            match self.scheduler.ask(&self.account, true).ok()? {
                Ok(turn) => Some(turn),
                Err(turn) => Handle::current().block_on(wait(turn, has_ended)),
            }
        });
        self.account.waited(asked.elapsed());
        held.fetch_sub(1, Ordering::Relaxed);
        turn.map(|turn| Slice::begin(&self.account, turn))
    }

    /// The query has its answer: others may have its place.
    pub(crate) fn answered(&self) {
        self.account.answered.store(true, Ordering::Relaxed);
        self.give_place_back();
    }

    fn give_place_back(&self) {
        if self.account.placed.swap(false, Ordering::Relaxed) {
            let mut state = self.scheduler.lock();
            state.heavy -= 1;
            self.scheduler.give(state);
        }
    }

    /// Time of the processors spent.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.account.spent())
    }

    /// Time spent waiting for turns, over all that waited.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.account.waited_nanos.load(Ordering::Relaxed))
    }

    /// Counts what was spent beside any slice.
    #[cfg(test)]
    pub(crate) fn charge(&self, spent: Duration) {
        self.account.spent_nanos.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.give_place_back();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.scheduler.lock();
        state.taken -= 1;
        state.taken_by_heavy -= usize::from(self.heavy);
        self.scheduler.give(state);
    }
}

impl Slice {
    fn begin(account: &Arc<Account>, turn: Turn) -> Self {
        Self {
            began: Instant::now(),
            began_cpu: thread_time(),
            account: Arc::clone(account),
            _turn: turn,
            _stays: PhantomData,
        }
    }

    /// Whether it is time to let others go.
    pub(crate) fn is_over(&self) -> bool {
        self.began.elapsed() >= SLICE
    }

    /// Keeps its turn for as long again.
    fn go_on(&mut self) {
        self.charge();
        (self.began, self.began_cpu) = (Instant::now(), thread_time());
    }

    fn charge(&self) {
        let spent = thread_time().saturating_sub(self.began_cpu).as_nanos() as u64;
        self.account.spent_nanos.fetch_add(spent, Ordering::Relaxed);
    }

    /// Ends it. Returns how long it lasted.
    pub(crate) fn end(self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.charge();
    }
}

/// Waits for a turn, and looks now and then whether it is still wanted.
async fn wait(mut turn: oneshot::Receiver<Turn>, has_ended: impl Fn() -> bool) -> Option<Turn> {
    while !has_ended() {
        if let Ok(turn) = tokio::time::timeout(LOOK, &mut turn).await {
            return turn.ok();
        }
    }
    None
}

/// Time of the processors that this thread had.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
