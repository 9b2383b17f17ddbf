//! Queue of immutable memtables between the committer and the flusher.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{oneshot, watch};

use crate::{commit_log::LogPosition, memtable::Memtable};

/// An immutable memtable to be flushed, with the section of the log that contains its changes.
#[derive(Clone, Debug)]
pub(crate) struct FlushJob {
    pub(crate) memtable: Arc<Memtable>,
    /// The log is trimmed up to here after the flush; `None`: a later memtable has the rest of the section.
    pub(crate) position: Option<LogPosition>,
    /// Bytes of the section.
    pub(crate) bytes: u64,
    /// Time over which the flush is spread; `None` flushes without pauses.
    pub(crate) flush_over: Option<Duration>,
}

/// Immutable memtables, oldest first, and callers that wait for their flush.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    inner: Mutex<FlushQueueInner>,
    changed: Condvar,
    /// Cancels calls of the backend.
    stopped: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct FlushQueueInner {
    jobs: VecDeque<FlushJob>,
    /// Callers, each with the id of the last memtable it waits for.
    waiters: Vec<(u64, oneshot::Sender<()>)>,
    stopping: bool,
    /// Set by a new waiter, to end the flusher's pause.
    wake_flusher: bool,
}

impl FlushQueueInner {
    fn has_waiters(&mut self) -> bool {
        self.waiters.retain(|(_, waiter)| !waiter.is_closed());
        !self.waiters.is_empty()
    }
}

impl FlushQueue {
    fn lock(&self) -> MutexGuard<'_, FlushQueueInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `is_idle` returns true, for `timeout` at most.
    fn wait_while(
        &self,
        timeout: Duration,
        is_idle: impl FnMut(&mut FlushQueueInner) -> bool,
    ) -> MutexGuard<'_, FlushQueueInner> {
        let inner = self.lock();
        if timeout == Duration::MAX {
            return self.changed.wait_while(inner, is_idle).unwrap_or_else(PoisonError::into_inner);
        }
        let waited = self.changed.wait_timeout_while(inner, timeout, is_idle);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn push(&self, job: FlushJob) {
        self.lock().jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Waits for jobs behind the first `known`, for `timeout` at most or until a caller waits for
    /// a flush. Returns them; `None` once stopped.
    pub(crate) fn jobs_after(&self, known: usize, timeout: Duration) -> Option<Vec<FlushJob>> {
        let inner = self.wait_while(timeout, |inner| {
            !inner.stopping && inner.jobs.len() <= known && !std::mem::take(&mut inner.wake_flusher)
        });
        (!inner.stopping).then(|| inner.jobs.iter().skip(known).cloned().collect())
    }

    /// Sleeps until `due`, but no longer than until a second memtable is queued or a caller waits
    /// for a flush. Returns true once stopped.
    pub(crate) fn sleep_until(&self, due: Instant) -> bool {
        let timeout = due.saturating_duration_since(Instant::now());
        let may_sleep = |inner: &mut FlushQueueInner| {
            let of_segments = inner.jobs.iter().filter(|job| !job.memtable.is_survivor());
            of_segments.count() < 2 && !inner.stopping && !inner.has_waiters()
        };
        self.wait_while(timeout, may_sleep).stopping
    }

    /// True if a caller waits for a flush.
    pub(crate) fn has_waiters(&self) -> bool {
        self.lock().has_waiters()
    }

    /// Completes once the queue is stopped.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stopped = self.stopped.subscribe();
        async move {
            // An error means that the queue was dropped.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }
    }

    /// Removes the oldest job, whose memtable has the id `flushed`, and notifies its waiters.
    pub(crate) fn complete_oldest(&self, flushed: u64) {
        let mut inner = self.lock();
        inner.jobs.pop_front();
        for (_, waiter) in inner.waiters.extract_if(.., |(last, _)| *last <= flushed) {
            let _ = waiter.send(());
        }
        self.changed.notify_all();
    }

    /// Gives the rest of the oldest job that is not that of the survivors to theirs, whose memtable is
    /// `survivor`.
    pub(crate) fn relocate_oldest(&self, survivor: &Arc<Memtable>) {
        let mut inner = self.lock();
        if inner.jobs.front().is_some_and(|job| job.memtable.is_survivor()) {
            inner.jobs.remove(1);
        } else if let Some(job) = inner.jobs.front_mut() {
            (job.memtable, job.position, job.bytes) = (Arc::clone(survivor), None, 0);
        }
        self.changed.notify_all();
    }

    /// Notifies `waiter` when all queued memtables are flushed.
    pub(crate) fn notify_when_flushed(&self, waiter: oneshot::Sender<()>) {
        let mut inner = self.lock();
        match inner.jobs.back().map(|job| job.memtable.id()) {
            Some(last) => {
                inner.waiters.push((last, waiter));
                inner.wake_flusher = true;
                self.changed.notify_all();
            }
            None => {
                let _ = waiter.send(());
            }
        }
    }

    /// Waits until `ready` returns true, for `timeout` at most; it is evaluated after each change of
    /// the queue. Returns true once stopped.
    pub(crate) fn wait_until_for(&self, timeout: Duration, ready: impl Fn() -> bool) -> bool {
        self.wait_while(timeout, |inner| !inner.stopping && !ready()).stopping
    }

    /// Makes waiting threads evaluate their condition again.
    pub(crate) fn wake(&self) {
        let _inner = self.lock();
        self.changed.notify_all();
    }

    /// Ends all waits. The waiters of a flush are dropped.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopping = true;
        inner.waiters.clear();
        drop(inner);
        self.stopped.send_replace(true);
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }
}
