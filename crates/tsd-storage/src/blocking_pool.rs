//! A thread pool for calls that block on disk I/O.
//!
//! It is separate from the blocking threads of tokio: several runtimes call a store, and many scans
//! must not starve the log of threads. The first read of a scan has priority over later reads of
//! other scans, so that short scans and gets do not wait for the read-ahead of long scans.

use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::JoinHandle,
};

use crate::StorageError;
use tokio::sync::oneshot;
use tsd_runtime::LogOrigin;

/// Limit on queued jobs. A caller waits for each of them.
const MAX_QUEUED: usize = 16_384;

type Job = Box<dyn FnOnce() + Send>;

/// One in this many jobs has low priority if any is queued, so that these jobs do not starve.
const LOW_EVERY: u64 = 4;

/// Priority of a job in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPriority {
    /// A single call, or the first read of a scan.
    High,
    /// A later read of a scan.
    Low,
}

/// Threads and their job queue.
#[derive(Debug)]
pub struct BlockingPool {
    queue: Arc<JobQueue>,
    threads: Vec<JoinHandle<()>>,
}

struct JobQueue {
    state: Mutex<QueueState>,
    not_empty: Condvar,
}

#[derive(Default)]
struct QueueState {
    high: VecDeque<Job>,
    low: VecDeque<Job>,
    dequeued: u64,
    closed: bool,
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobQueue").finish_non_exhaustive()
    }
}

/// Submits jobs to a pool. May outlive the pool; then calls fail.
#[derive(Clone, Debug)]
pub struct PoolHandle(Arc<JobQueue>);

impl BlockingPool {
    /// Starts `threads` threads, at least one, whose names begin with `name`.
    ///
    /// # Errors
    ///
    /// The system's error if a thread cannot be started.
    pub fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(JobQueue { state: Mutex::default(), not_empty: Condvar::new() });
        let mut pool = Self { queue, threads: Vec::new() };
        for i in 0..threads.max(1) {
            let queue = Arc::clone(&pool.queue);
            let name = format!("{name}-{i}");
            pool.threads
                .push(std::thread::Builder::new().name(name).spawn(move || queue.run_worker())?);
        }
        Ok(pool)
    }

    /// A handle to submit jobs.
    #[must_use]
    pub fn handle(&self) -> PoolHandle {
        PoolHandle(Arc::clone(&self.queue))
    }
}

impl Drop for BlockingPool {
    /// Waits for the running jobs. Queued jobs fail with [`StorageError::Closed`].
    fn drop(&mut self) {
        let jobs = {
            let mut state = self.queue.state.lock();
            state.closed = true;
            (std::mem::take(&mut state.high), std::mem::take(&mut state.low))
        };
        drop(jobs);
        self.queue.not_empty.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

impl PoolHandle {
    /// Submits a call and returns a future of its result. The call runs even if the future is
    /// dropped.
    pub fn call<T: Send + 'static, F>(
        &self,
        call: F,
    ) -> impl Future<Output = Result<T, StorageError>> + Send + use<T, F>
    where
        F: FnOnce() -> Result<T, StorageError> + Send + 'static,
    {
        let started = self.submit(JobPriority::High, call);
        async move {
            // The sender was dropped: the pool was closed.
            started?.await.unwrap_or(Err(StorageError::Closed))
        }
    }

    /// Submits a call, whose log lines name the origin of the caller; its result is sent through the channel.
    ///
    /// # Errors
    ///
    /// [`StorageError::Throttled`] if the queue is full, [`StorageError::Closed`] after the pool's end.
    pub fn submit<T: Send + 'static>(
        &self,
        priority: JobPriority,
        call: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StorageError>>, StorageError> {
        let (sender, receiver) = oneshot::channel();
        let origin = LogOrigin::current();
        let job = Box::new(move || {
            let call = || origin.in_scope(call);
            let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
                Err(StorageError::Backend(Arc::from("a call of the store panicked")))
            });
            drop(sender.send(result));
        });
        let mut state = self.0.state.lock();
        if state.closed {
            return Err(StorageError::Closed);
        }
        if state.high.len() + state.low.len() >= MAX_QUEUED {
            return Err(StorageError::Throttled("the store's thread pool is overloaded"));
        }
        match priority {
            JobPriority::High => state.high.push_back(job),
            JobPriority::Low => state.low.push_back(job),
        }
        drop(state);
        self.0.not_empty.notify_one();
        Ok(receiver)
    }
}

impl QueueState {
    fn next(&mut self) -> Option<Job> {
        if self.high.is_empty() && self.low.is_empty() {
            return None;
        }
        self.dequeued += 1;
        if self.dequeued.is_multiple_of(LOW_EVERY) {
            self.low.pop_front().or_else(|| self.high.pop_front())
        } else {
            self.high.pop_front().or_else(|| self.low.pop_front())
        }
    }
}

impl JobQueue {
    fn run_worker(&self) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                if let Some(job) = state.next() {
                    break job;
                }
                if state.closed {
                    return;
                }
                self.not_empty.wait(&mut state);
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
    async fn panic_fails_only_its_own_call() {
        let pool = BlockingPool::new("test", 1).unwrap();
        let handle = pool.handle();
        let failed = handle.call::<(), _>(|| panic!("on purpose")).await.unwrap_err();
        assert!(failed.to_string().contains("panicked"));
        assert_eq!(handle.call(|| Ok(7)).await.unwrap(), 7);
        let origin = LogOrigin::of_request("a".into());
        let seen = origin.clone().in_scope(|| handle.call(|| Ok(LogOrigin::current())));
        assert_eq!(seen.await.unwrap(), origin);
        drop(pool);
        assert!(matches!(handle.call(|| Ok(7)).await, Err(StorageError::Closed)));
    }

    #[tokio::test]
    async fn high_priority_jobs_overtake_but_do_not_starve_others() {
        let pool = BlockingPool::new("test", 1).unwrap();
        let handle = pool.handle();
        let order = Arc::new(Mutex::new(String::new()));
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let first = handle
            .submit(JobPriority::High, move || {
                blocked.recv().unwrap();
                Ok(())
            })
            .unwrap();
        let mut results = Vec::new();
        for (priority, name) in [(JobPriority::Low, 'l'), (JobPriority::High, 'h')] {
            for _ in 0..4 {
                let order = Arc::clone(&order);
                let job = move || {
                    order.lock().push(name);
                    Ok(())
                };
                results.push(handle.submit(priority, job).unwrap());
            }
        }
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        for result in results {
            result.await.unwrap().unwrap();
        }
        let order = order.lock().clone();
        assert_eq!(order, "hhlhhlll");
    }
}
