//! Names that wait for a look-up or an assignment, and the requests that wait for them.
//!
//! A name is queued once, however many requests wait for it.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use bytes::Bytes;
use hashbrown::{HashMap, hash_map::Entry};
use tsd_runtime::Reply;

/// A request, and the index of the name in it.
type NameWaiter<R> = (Rc<NamesRequest<R>>, usize);

/// Names of one kind that are queued or in flight, and the requests that wait for them.
pub(super) struct PendingNames<R> {
    waiters: HashMap<Bytes, Vec<NameWaiter<R>>, foldhash::fast::RandomState>,
    queue: VecDeque<Bytes>,
    /// Batches in flight.
    pub(super) in_flight: usize,
}

impl<R> Default for PendingNames<R> {
    fn default() -> Self {
        Self { waiters: HashMap::default(), queue: VecDeque::new(), in_flight: 0 }
    }
}

impl<R: Clone> PendingNames<R> {
    pub(super) fn contains(&self, name: &Bytes) -> bool {
        self.waiters.contains_key(name)
    }

    /// Adds a waiter for a name. True if the name is new, which queues it.
    pub(super) fn wait(&mut self, name: Bytes, request: &Rc<NamesRequest<R>>, i: usize) -> bool {
        let waiters = self.waiters.entry(name.clone()).or_default();
        let new = waiters.is_empty();
        waiters.push((Rc::clone(request), i));
        if new {
            self.queue.push_back(name);
        }
        new
    }

    /// Takes the next batch from the queue, unless `max_in_flight` batches are in flight.
    pub(super) fn next_batch(
        &mut self,
        max_in_flight: usize,
        max_batch: usize,
    ) -> Option<Vec<Bytes>> {
        if self.in_flight >= max_in_flight || self.queue.is_empty() {
            return None;
        }
        self.in_flight += 1;
        let names = self.queue.len().min(max_batch.max(1));
        Some(self.queue.drain(..names).collect())
    }

    /// Queues the names of a batch again. Their waiters have no result yet.
    pub(super) fn queue_again(&mut self, names: Vec<Bytes>) {
        self.queue.extend(names);
    }

    /// Sets the result of a name for all of its waiters.
    pub(super) fn complete(&mut self, name: &Bytes, result: &R) {
        for (request, i) in self.waiters.remove(name).into_iter().flatten() {
            request.set(i, result.clone());
        }
    }

    /// Moves a name and its waiters here from another list, which must not have it queued. False if the name already
    /// waits here.
    pub(super) fn take_over(&mut self, name: Bytes, from: &mut Self) -> bool {
        let Some(waiters) = from.waiters.remove(&name) else { return false };
        match self.waiters.entry(name) {
            Entry::Occupied(mut known) => {
                known.get_mut().extend(waiters);
                false
            }
            Entry::Vacant(new) => {
                self.queue.push_back(new.key().clone());
                new.insert(waiters);
                true
            }
        }
    }
}

/// A request for several names, which replies when every name has its result.
pub(super) struct NamesRequest<R>(RefCell<NameResults<R>>);

struct NameResults<R> {
    results: Vec<Option<R>>,
    missing: usize,
    reply: Option<Reply<Vec<R>>>,
}

impl<R> NamesRequest<R> {
    pub(super) fn new(names: usize, reply: Reply<Vec<R>>) -> Rc<Self> {
        let mut results = Vec::new();
        results.resize_with(names, || None);
        let request =
            Self(RefCell::new(NameResults { results, missing: names, reply: Some(reply) }));
        if names == 0 {
            request.send_reply();
        }
        Rc::new(request)
    }

    pub(super) fn set(&self, i: usize, result: R) {
        let missing = {
            let mut state = self.0.borrow_mut();
            if let Some(slot) = state.results.get_mut(i)
                && slot.is_none()
            {
                *slot = Some(result);
                state.missing -= 1;
            }
            state.missing
        };
        if missing == 0 {
            self.send_reply();
        }
    }

    fn send_reply(&self) {
        let mut state = self.0.borrow_mut();
        if let Some(reply) = state.reply.take() {
            let results = std::mem::take(&mut state.results).into_iter().flatten().collect();
            // A failed send means that the caller stopped waiting.
            let _ = reply.send(results);
        }
    }
}
