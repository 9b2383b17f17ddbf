//! Threads for calls that block.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use parking_lot::Mutex;

/// With one, a login that hangs would hold up connections that have all their tickets.
const THREADS: usize = 2;

/// Bound of waiting jobs; more connections are not opened at the same time.
const CAPACITY: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Two threads, which start with the first job and end some time after the pool is dropped.
pub(super) struct Pool {
    started: Mutex<Option<SyncSender<Job>>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self { started: Mutex::new(None) }
    }

    /// Queues a job. Returns false, and drops the job, if the queue is full or no thread can be started.
    #[must_use]
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut started = self.started.lock();
        if started.is_none() {
            *started = start();
        }
        started.as_ref().is_some_and(|queue| queue.try_send(Box::new(job)).is_ok())
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (sender, receiver) = sync_channel(CAPACITY);
    let receiver = Arc::new(Mutex::new(receiver));
    let threads = (0..THREADS).filter(|number| {
        let receiver = Arc::clone(&receiver);
        let thread = thread::Builder::new().name(format!("kerberos-{number}"));
        thread.spawn(move || run(&receiver)).is_ok()
    });
    (threads.count() > 0).then_some(sender)
}

fn run(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // One thread waits for a job; the other one waits for the lock.
        let job = jobs.lock().recv();
        let Ok(job) = job else { return };
        // The job's own channel reports a panic.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn two_jobs_run_at_the_same_time() {
        let pool = Pool::new();
        let (first, second) = (channel(), channel());
        // Each job waits for the other one.
        assert!(pool.submit(move || {
            first.0.send(()).unwrap();
            second.1.recv().unwrap();
        }));
        let (done, end) = channel();
        assert!(pool.submit(move || {
            first.1.recv().unwrap();
            second.0.send(()).unwrap();
            done.send(()).unwrap();
        }));
        end.recv().unwrap();
    }

    #[test]
    fn a_panic_ends_its_job_alone() {
        let pool = Pool::new();
        for _ in 0..THREADS {
            let (sender, receiver) = channel::<()>();
            assert!(pool.submit(move || {
                let _sender = sender;
                panic!("on purpose");
            }));
            assert!(receiver.recv().is_err());
        }
        let (sender, receiver) = channel();
        assert!(pool.submit(move || sender.send(7).unwrap()));
        assert_eq!(receiver.recv().unwrap(), 7);
    }

    #[test]
    fn a_full_queue_rejects_jobs() {
        let pool = Pool::new();
        let mut released = Vec::new();
        let accepted = (0..).take_while(|_| {
            let (release, wait) = channel::<()>();
            released.push(release);
            pool.submit(move || {
                let _ = wait.recv();
            })
        });
        let accepted = accepted.count();
        assert!((CAPACITY..=CAPACITY + THREADS).contains(&accepted), "{accepted}");
    }
}
