//! Threads for calls that block on the disk, so that no asynchronous worker ever does.
//!
//! They are ours, and not the runtime's, because a store is called from several runtimes and a
//! flood of scans must not take the threads from the log.
//!
//! The first read of a scan goes before later ones of others: a scan of a few rows, or a look-up, is
//! not to wait behind all that long scans read ahead.

use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use tokio::sync::oneshot;
use tsd_storage::StorageError;

/// Jobs that may wait for a thread. Every waiting job has a caller that waits for it.
const MAX_WAITING: usize = 16_384;

type Job = Box<dyn FnOnce() + Send>;

/// One job in so many is a later one, if one waits, however many first ones do.
const LATER_EVERY: u64 = 4;

/// Where a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Ahead of later ones.
    First,
    /// It goes on with something that had its first turn.
    Later,
}

/// A few threads and a queue.
#[derive(Debug)]
pub(crate) struct BlockingPool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    first: VecDeque<Job>,
    later: VecDeque<Job>,
    taken: u64,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// Hands jobs to the threads of a pool. Outlives the pool, then fails.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(Arc<Queue>);

impl BlockingPool {
    pub(crate) fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue { state: Mutex::default(), filled: Condvar::new() });
        let mut pool = Self { queue, threads: Vec::new() };
        for i in 0..threads.max(1) {
            let queue = Arc::clone(&pool.queue);
            let name = format!("{name}-{i}");
            pool.threads.push(std::thread::Builder::new().name(name).spawn(move || queue.work())?);
        }
        Ok(pool)
    }

    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(Arc::clone(&self.queue))
    }
}

impl Drop for BlockingPool {
    /// Waits for running jobs. Waiting ones fail with [`StorageError::Closed`].
    fn drop(&mut self) {
        let jobs = {
            let mut state = self.queue.lock();
            state.closed = true;
            (std::mem::take(&mut state.first), std::mem::take(&mut state.later))
        };
        drop(jobs);
        self.queue.filled.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store died");
            }
        }
    }
}

impl Spawner {
    /// Starts a call; the future is its answer. The call runs even if the future is dropped.
    pub(crate) fn call<T: Send + 'static, F>(
        &self,
        call: F,
    ) -> impl Future<Output = Result<T, StorageError>> + Send + use<T, F>
    where
        F: FnOnce() -> Result<T, StorageError> + Send + 'static,
    {
        let started = self.start(Place::First, call);
        async move {
            // A dropped sender means the pool went first, or the call panicked.
            started?.await.unwrap_or(Err(StorageError::Closed))
        }
    }

    /// Starts a call; its answer comes through the channel.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        place: Place,
        call: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StorageError>>, StorageError> {
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
                Err(StorageError::Backend(Arc::from("a call of the store panicked")))
            });
            drop(answer.send(result));
        });
        let mut state = self.0.lock();
        if state.closed {
            return Err(StorageError::Closed);
        }
        if state.first.len() + state.later.len() >= MAX_WAITING {
            return Err(StorageError::Throttled("the store's threads are behind"));
        }
        match place {
            Place::First => state.first.push_back(job),
            Place::Later => state.later.push_back(job),
        }
        drop(state);
        self.0.filled.notify_one();
        Ok(answered)
    }
}

impl State {
    fn next(&mut self) -> Option<Job> {
        if self.first.is_empty() && self.later.is_empty() {
            return None;
        }
        self.taken += 1;
        if self.taken.is_multiple_of(LATER_EVERY) {
            self.later.pop_front().or_else(|| self.first.pop_front())
        } else {
            self.first.pop_front().or_else(|| self.later.pop_front())
        }
    }
}

impl Queue {
    // No job runs under the lock, so a poisoned one still guards a whole queue.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            let job = loop {
                if let Some(job) = state.next() {
                    break job;
                }
                if state.closed {
                    return;
                }
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn a_panic_fails_its_call_and_no_other() {
        let pool = BlockingPool::new("test", 1).unwrap();
        let spawner = pool.spawner();
        let failed = spawner.call::<(), _>(|| panic!("on purpose")).await.unwrap_err();
        assert!(failed.to_string().contains("panicked"));
        assert_eq!(spawner.call(|| Ok(7)).await.unwrap(), 7);
        drop(pool);
        assert!(matches!(spawner.call(|| Ok(7)).await, Err(StorageError::Closed)));
    }

    #[tokio::test]
    async fn first_reads_overtake_later_ones_and_do_not_stop_them() {
        let pool = BlockingPool::new("test", 1).unwrap();
        let spawner = pool.spawner();
        let order = Arc::new(Mutex::new(String::new()));
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let held = spawner
            .start(Place::First, move || {
                gate.recv().unwrap();
                Ok(())
            })
            .unwrap();
        let mut ended = Vec::new();
        for (place, name) in [(Place::Later, 'l'), (Place::First, 'f')] {
            for _ in 0..4 {
                let order = Arc::clone(&order);
                let job = move || {
                    order.lock().unwrap().push(name);
                    Ok(())
                };
                ended.push(spawner.start(place, job).unwrap());
            }
        }
        open.send(()).unwrap();
        held.await.unwrap().unwrap();
        for job in ended {
            job.await.unwrap().unwrap();
        }
        let order = order.lock().unwrap().clone();
        assert_eq!(order, "fflfflll");
    }
}
