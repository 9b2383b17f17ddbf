//! Queue of immutable memtables between the committer and the flusher.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{oneshot, watch};

use crate::{commit_log::LogPosition, memtable::Memtable};

/// An immutable memtable to be flushed, and the section of the log with its changes.
#[derive(Clone, Debug)]
pub(crate) struct FlushJob {
    pub(crate) memtable: Arc<Memtable>,
    /// Position up to which the log is trimmed after the flush; `None` if a later memtable has the rest of the
    /// section.
    pub(crate) position: Option<LogPosition>,
    /// Bytes of the section.
    pub(crate) bytes: u64,
    /// Time over which the flush is spread; `None` for a flush at full speed.
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
    /// Waiting callers, each with the id of the last memtable to wait for.
    waiters: Vec<(u64, oneshot::Sender<()>)>,
    stopping: bool,
    /// Set by a new waiter to end the pause of the flusher.
    wake_flusher: bool,
}

impl FlushQueueInner {
    fn has_waiters(&mut self) -> bool {
        self.waiters.retain(|(_, waiter)| !waiter.is_closed());
        !self.waiters.is_empty()
    }
}

impl FlushQueue {
    /// Waits while `is_idle` returns true, for at most `timeout`.
    fn wait_while(
        &self,
        timeout: Duration,
        is_idle: impl FnMut(&mut FlushQueueInner) -> bool,
    ) -> MutexGuard<'_, FlushQueueInner> {
        let mut inner = self.inner.lock();
        if timeout == Duration::MAX {
            self.changed.wait_while(&mut inner, is_idle);
        } else {
            self.changed.wait_while_for(&mut inner, is_idle, timeout);
        }
        inner
    }

    pub(crate) fn push(&self, job: FlushJob) {
        self.inner.lock().jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Waits for jobs behind the first `known`, for at most `timeout` or until a caller waits for a flush.
    /// Returns these jobs; `None` once stopped.
    pub(crate) fn jobs_after(&self, known: usize, timeout: Duration) -> Option<Vec<FlushJob>> {
        let inner = self.wait_while(timeout, |inner| {
            !inner.stopping && inner.jobs.len() <= known && !std::mem::take(&mut inner.wake_flusher)
        });
        (!inner.stopping).then(|| inner.jobs.iter().skip(known).cloned().collect())
    }

    /// Sleeps until `due`, until a second memtable is queued, or until a caller waits for a flush. Returns true
    /// once stopped.
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
        self.inner.lock().has_waiters()
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
        let mut inner = self.inner.lock();
        inner.jobs.pop_front();
        for (_, waiter) in inner.waiters.extract_if(.., |(last, _)| *last <= flushed) {
            let _ = waiter.send(());
        }
        self.changed.notify_all();
    }

    /// Moves the rest of the oldest job that has no survivors to the job of the survivors, whose memtable is
    /// `survivor`.
    pub(crate) fn relocate_oldest(&self, survivor: &Arc<Memtable>) {
        let mut inner = self.inner.lock();
        if inner.jobs.front().is_some_and(|job| job.memtable.is_survivor()) {
            inner.jobs.remove(1);
        } else if let Some(job) = inner.jobs.front_mut() {
            (job.memtable, job.position, job.bytes) = (Arc::clone(survivor), None, 0);
        }
        self.changed.notify_all();
    }

    /// Notifies `waiter` once all queued memtables are flushed.
    pub(crate) fn notify_when_flushed(&self, waiter: oneshot::Sender<()>) {
        let mut inner = self.inner.lock();
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

    /// Waits until `ready` returns true, for at most `timeout`. Evaluates `ready` after each change of the queue.
    /// Returns true once stopped.
    pub(crate) fn wait_until_for(&self, timeout: Duration, ready: impl Fn() -> bool) -> bool {
        self.wait_while(timeout, |inner| !inner.stopping && !ready()).stopping
    }

    /// Makes waiting threads evaluate their conditions again.
    pub(crate) fn wake(&self) {
        let _inner = self.inner.lock();
        self.changed.notify_all();
    }

    /// Ends all waits and drops the waiters of flushes.
    pub(crate) fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.stopping = true;
        inner.waiters.clear();
        drop(inner);
        self.stopped.send_replace(true);
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.inner.lock().stopping
    }
}
