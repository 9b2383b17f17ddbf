//! Shows whether a thread still runs its tasks, for a watchdog.

use std::{sync::mpsc, time::Instant};

/// A task that was given to a thread, to see whether the thread runs it.
#[derive(Debug)]
pub struct ThreadProbe {
    threads: &'static str,
    ran: mpsc::Receiver<()>,
}

impl ThreadProbe {
    /// Gives a task to a thread by `spawn`. `threads` names the kind of the thread, for the log.
    pub fn send(
        threads: &'static str,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send + 'static>),
    ) -> Self {
        let (sender, ran) = mpsc::sync_channel(1);
        spawn(Box::new(move || {
            // A failed send means that nobody waits any more.
            let _ = sender.try_send(());
        }));
        Self { threads, ran }
    }

    /// The kind of the thread.
    #[must_use]
    pub const fn threads(&self) -> &'static str {
        self.threads
    }

    /// Waits for the task, at most until `deadline`. Returns false if the thread has not run it by then. A thread that
    /// has ended drops the task, which counts as an answer.
    #[must_use]
    pub fn answers_by(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        self.ran.recv_timeout(left) != Err(mpsc::RecvTimeoutError::Timeout)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{thread, time::Duration};

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    #[test]
    fn a_thread_that_does_not_run_its_tasks_does_not_answer() {
        let (tasks, received) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let probe = ThreadProbe::send("workers", |task| tasks.send(task).unwrap());
        assert_eq!(probe.threads(), "workers");
        assert!(!probe.answers_by(Instant::now()));
        let worker = thread::spawn(move || received.into_iter().for_each(|task| task()));
        assert!(probe.answers_by(later()));
        drop(tasks);
        worker.join().unwrap();
    }

    #[test]
    fn a_thread_that_has_ended_counts_as_an_answer() {
        assert!(ThreadProbe::send("workers", drop).answers_by(later()));
    }
}
