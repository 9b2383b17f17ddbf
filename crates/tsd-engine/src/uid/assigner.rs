//! The UID actor: one flight per name, and many names in one flight.
//!
//! A name that is being looked up or assigned takes further askers on board. Names that come while a
//! batch of their kind is under way wait for it to end and then go together: one read, or one
//! increment, for all of them. A failure ends the flight and nothing remembers it.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::{Uid, UidKind};

use super::{
    PerKind, UidCaches, UidError, UidTable,
    assign::{Numbers, assign, describe},
};
use crate::{
    actor::{Desk, Doer, Reply},
    clock::Clock,
};

/// Result of a look-up: no UID is no error.
pub(crate) type Lookup = Result<Option<Uid>, UidError>;
/// Result of an assignment.
pub(crate) type Assignment = Result<Uid, UidError>;

/// Batches of look-ups of one kind under way at once.
const LOOKUP_BATCHES: usize = 2;

/// Orders to the UID actor.
pub(crate) enum UidOrder {
    /// Look names up.
    Lookup { kind: UidKind, names: Vec<Bytes>, reply: Reply<Vec<Lookup>> },
    /// Give names a UID that had none when they were looked up.
    Assign { kind: UidKind, names: Vec<Bytes>, reply: Reply<Vec<Assignment>> },
    /// Fail inside the handler.
    #[cfg(test)]
    Panic,
}

/// What is counted of assignments.
#[derive(Debug, Default)]
pub(crate) struct AssignerStats {
    /// UIDs assigned, by kind.
    pub(crate) assigned: PerKind<AtomicU64>,
    /// Random numbers that were taken.
    pub(crate) random_collisions: AtomicU64,
    /// Names the filter refused, by kind.
    pub(crate) rejected: PerKind<AtomicU64>,
    /// Names waiting now.
    pub(crate) pending: AtomicUsize,
    /// Names refused because too many waited.
    pub(crate) throttled: AtomicU64,
}

/// Settings of the UID actor.
#[derive(Clone, Debug)]
pub(crate) struct AssignerSettings {
    pub(crate) table: UidTable,
    pub(crate) caches: Arc<UidCaches>,
    pub(crate) random_metrics: bool,
    /// Where the time of new meta objects comes from; `None` writes none.
    pub(crate) realtime_meta: Option<Arc<dyn Clock>>,
    pub(crate) max_pending: usize,
    pub(crate) max_batch: usize,
    pub(crate) stats: Arc<AssignerStats>,
}

/// State of the UID actor.
pub(crate) struct UidAssigner {
    settings: AssignerSettings,
    lookups: PerKind<Flights<Lookup>>,
    assignments: PerKind<Flights<Assignment>>,
}

impl UidAssigner {
    pub(crate) fn new(settings: AssignerSettings) -> Self {
        settings.stats.pending.store(0, Ordering::Relaxed);
        Self { settings, lookups: PerKind::default(), assignments: PerKind::default() }
    }

    fn has_room(&self) -> bool {
        let stats = &self.settings.stats;
        if stats.pending.load(Ordering::Relaxed) < self.settings.max_pending {
            return true;
        }
        stats.throttled.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn look_up(
        &mut self,
        kind: UidKind,
        names: Vec<Bytes>,
        reply: Reply<Vec<Lookup>>,
        desk: &mut Desk<'_, Self>,
    ) {
        let answer = Answer::new(names.len(), reply);
        for (i, name) in names.into_iter().enumerate() {
            if let Some(uid) = self.settings.caches.uid(kind, &name) {
                answer.give(i, Ok(Some(uid)));
            } else if self.lookups[kind].holds(&name) || self.has_room() {
                self.board_lookup(kind, name, &answer, i);
            } else {
                answer.give(i, Err(UidError::Throttled));
            }
        }
        self.fly_lookups(kind, desk);
    }

    fn board_lookup(&mut self, kind: UidKind, name: Bytes, answer: &Rc<Answer<Lookup>>, i: usize) {
        let new = self.lookups[kind].board(name, answer, i);
        self.settings.stats.pending.fetch_add(usize::from(new), Ordering::Relaxed);
    }

    fn fly_lookups(&mut self, kind: UidKind, desk: &mut Desk<'_, Self>) {
        let max = self.settings.max_batch;
        while let Some(names) = self.lookups[kind].take_off(LOOKUP_BATCHES, max) {
            let table = self.settings.table.clone();
            let epoch = self.settings.caches.epoch();
            let work = async move {
                let results = table.uids(kind, &names).await;
                (names, results)
            };
            desk.spawn(work, move |assigner, (names, results), desk| {
                let caches = Arc::clone(&assigner.settings.caches);
                let flights = &mut assigner.lookups[kind];
                flights.running -= 1;
                if caches.epoch() == epoch {
                    let mut results = match results {
                        Ok(results) => results,
                        Err(error) => vec![Err(UidError::Storage(error)); names.len()],
                    }
                    .into_iter();
                    for name in &names {
                        let result = results.next().unwrap_or(Err(UidError::Lost));
                        if let Ok(Some(uid)) = result {
                            caches.insert_at(epoch, kind, name, uid);
                        }
                        flights.land(name, &result);
                    }
                    assigner.settings.stats.pending.fetch_sub(names.len(), Ordering::Relaxed);
                } else {
                    // A name was renamed or deleted meanwhile: what was read may be of before.
                    flights.queue.extend(names);
                }
                assigner.fly_lookups(kind, desk);
            });
        }
    }

    fn assign(
        &mut self,
        kind: UidKind,
        names: Vec<Bytes>,
        reply: Reply<Vec<Assignment>>,
        desk: &mut Desk<'_, Self>,
    ) {
        let answer = Answer::new(names.len(), reply);
        for (i, name) in names.into_iter().enumerate() {
            // Another asker's assignment may have ended since this one looked.
            if let Some(uid) = self.settings.caches.uid(kind, &name) {
                answer.give(i, Ok(uid));
            } else if self.assignments[kind].holds(&name) || self.has_room() {
                let new = self.assignments[kind].board(name, &answer, i);
                self.settings.stats.pending.fetch_add(usize::from(new), Ordering::Relaxed);
            } else {
                answer.give(i, Err(UidError::Throttled));
            }
        }
        self.fly_assignments(kind, desk);
    }

    fn fly_assignments(&mut self, kind: UidKind, desk: &mut Desk<'_, Self>) {
        let max = self.settings.max_batch;
        while let Some(names) = self.assignments[kind].take_off(1, max) {
            let table = self.settings.table.clone();
            let epoch = self.settings.caches.epoch();
            let random = self.settings.random_metrics && kind == UidKind::Metric;
            let numbers = if random { Numbers::Random } else { Numbers::Counted };
            let clock = self.settings.realtime_meta.clone();
            let work = async move {
                let assigned = assign(&table, kind, &names, numbers).await;
                if let Some(clock) = clock {
                    describe(&table, kind, &assigned, clock.now_secs()).await;
                }
                (names, assigned)
            };
            desk.spawn(work, move |assigner, (names, assigned), desk| {
                let AssignerSettings { caches, stats, .. } = &assigner.settings;
                stats.random_collisions.fetch_add(assigned.collisions, Ordering::Relaxed);
                let flights = &mut assigner.assignments[kind];
                flights.running -= 1;
                for (name, result) in names.iter().zip(&assigned.results) {
                    if let Ok(uid) = result {
                        caches.insert_at(epoch, kind, name, *uid);
                        stats.assigned[kind].fetch_add(1, Ordering::Relaxed);
                    }
                    flights.land(name, result);
                }
                stats.pending.fetch_sub(names.len(), Ordering::Relaxed);
                assigner.fly_assignments(kind, desk);
            });
        }
    }
}

impl Doer for UidAssigner {
    type Order = UidOrder;

    fn handle(&mut self, order: UidOrder, desk: &mut Desk<'_, Self>) {
        match order {
            UidOrder::Lookup { kind, names, reply } => self.look_up(kind, names, reply, desk),
            UidOrder::Assign { kind, names, reply } => self.assign(kind, names, reply, desk),
            #[cfg(test)]
            UidOrder::Panic => panic!("told to"),
        }
    }
}

/// An asker, and which of its names this is.
type Waiter<R> = (Rc<Answer<R>>, usize);

/// Names of one kind under way, and who waits for them.
struct Flights<R> {
    aboard: HashMap<Bytes, Vec<Waiter<R>>, foldhash::fast::RandomState>,
    queue: VecDeque<Bytes>,
    running: usize,
}

impl<R> Default for Flights<R> {
    fn default() -> Self {
        Self { aboard: HashMap::default(), queue: VecDeque::new(), running: 0 }
    }
}

impl<R: Clone> Flights<R> {
    fn holds(&self, name: &Bytes) -> bool {
        self.aboard.contains_key(name)
    }

    /// Takes an asker on board; says whether the name is new.
    fn board(&mut self, name: Bytes, answer: &Rc<Answer<R>>, i: usize) -> bool {
        let waiters = self.aboard.entry(name.clone()).or_default();
        let new = waiters.is_empty();
        waiters.push((Rc::clone(answer), i));
        if new {
            self.queue.push_back(name);
        }
        new
    }

    fn take_off(&mut self, max_running: usize, max_batch: usize) -> Option<Vec<Bytes>> {
        if self.running >= max_running || self.queue.is_empty() {
            return None;
        }
        self.running += 1;
        let names = self.queue.len().min(max_batch.max(1));
        Some(self.queue.drain(..names).collect())
    }

    fn land(&mut self, name: &Bytes, result: &R) {
        for (answer, i) in self.aboard.remove(name).into_iter().flatten() {
            answer.give(i, result.clone());
        }
    }
}

/// One asker's results, gathered until the last is there.
struct Answer<R>(RefCell<Gathered<R>>);

struct Gathered<R> {
    results: Vec<Option<R>>,
    left: usize,
    reply: Option<Reply<Vec<R>>>,
}

impl<R> Answer<R> {
    fn new(names: usize, reply: Reply<Vec<R>>) -> Rc<Self> {
        let mut results = Vec::new();
        results.resize_with(names, || None);
        let answer = Self(RefCell::new(Gathered { results, left: names, reply: Some(reply) }));
        if names == 0 {
            answer.send();
        }
        Rc::new(answer)
    }

    fn give(&self, i: usize, result: R) {
        let left = {
            let mut gathered = self.0.borrow_mut();
            if let Some(slot) = gathered.results.get_mut(i)
                && slot.is_none()
            {
                *slot = Some(result);
                gathered.left -= 1;
            }
            gathered.left
        };
        if left == 0 {
            self.send();
        }
    }

    fn send(&self) {
        let mut gathered = self.0.borrow_mut();
        if let Some(reply) = gathered.reply.take() {
            let results = std::mem::take(&mut gathered.results).into_iter().flatten().collect();
            // An asker that went away needs no answer.
            let _ = reply.send(results);
        }
    }
}
