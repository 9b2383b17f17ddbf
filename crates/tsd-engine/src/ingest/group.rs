//! Counts a chunk's points down until each is durable or has failed.
//!
//! A chunk goes to many write actors; one shared countdown costs one allocation a chunk where a
//! channel per actor would cost one per bucket.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Notify, mpsc};

use crate::put_error::{CommitReport, PointFailure, PutError};

/// Countdown of one chunk.
#[derive(Debug)]
pub(crate) struct CommitGroup {
    // Tickets out, plus one while the chunk is still being handed over.
    open: AtomicUsize,
    outcome: Mutex<CommitReport>,
    done: Notify,
    sink: Option<mpsc::Sender<PointFailure>>,
}

/// A write actor's part of a chunk. Dropping it unfinished fails its points as lost.
#[derive(Debug)]
pub(crate) struct Ticket {
    group: Arc<CommitGroup>,
    tags: Vec<u32>,
}

impl CommitGroup {
    /// A countdown with one part open, which [`Self::handed_over`] closes. With a sink, failures go
    /// there instead of the report.
    pub(crate) fn new(sink: Option<mpsc::Sender<PointFailure>>) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(1),
            outcome: Mutex::new(CommitReport::default()),
            done: Notify::new(),
            sink,
        })
    }

    /// A part of the chunk: the points of these tags.
    pub(crate) fn ticket(self: &Arc<Self>, tags: Vec<u32>) -> Ticket {
        self.open.fetch_add(1, Ordering::Relaxed);
        Ticket { group: Arc::clone(self), tags }
    }

    /// Notes failures of points that no ticket covers.
    pub(crate) fn fail(&self, failures: impl IntoIterator<Item = PointFailure>) {
        if let Some(sink) = &self.sink {
            for failure in failures {
                // A full channel means nobody reads the replies; points on this way carry no ack.
                if sink.try_send(failure).is_err() {
                    metrics::counter!("tsd_ingest_unreported_failures_total").increment(1);
                }
            }
        } else {
            let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.failures.extend(failures);
        }
    }

    /// Says that every ticket is out.
    pub(crate) fn handed_over(&self) {
        self.close_one();
    }

    /// Whether no part is open.
    pub(crate) fn is_done(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Waits until no part is open. For one waiter at a time.
    pub(crate) async fn wait(&self) {
        while !self.is_done() {
            self.done.notified().await;
        }
    }

    /// What happened so far.
    pub(crate) fn report(&self) -> CommitReport {
        let mut report =
            std::mem::take(&mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        report.failures.sort_by_key(|f| f.tag);
        report
    }

    fn close_one(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    fn finish(&self, tags: &mut Vec<u32>, result: Result<(), PutError>) {
        let tags = std::mem::take(tags);
        match result {
            Ok(()) => {
                let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
                outcome.stored += tags.len();
            }
            Err(error) => {
                self.fail(tags.iter().map(|&tag| PointFailure { tag, error: error.clone() }));
            }
        }
    }
}

impl Ticket {
    /// Points of this part.
    pub(crate) fn points(&self) -> usize {
        self.tags.len()
    }

    /// Whether the chunk is one of several on their way, whose order counts.
    pub(crate) fn is_pipelined(&self) -> bool {
        self.group.sink.is_some()
    }

    /// Answers for this part.
    pub(crate) fn finish(mut self, result: Result<(), PutError>) {
        self.group.finish(&mut self.tags, result);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.tags.is_empty() {
            self.group.finish(&mut self.tags, Err(PutError::Lost));
        }
        self.group.close_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dropped_ticket_fails_its_points_and_ends_the_wait() {
        let group = CommitGroup::new(None);
        let (kept, lost) = (group.ticket(vec![3, 1]), group.ticket(vec![2]));
        group.handed_over();
        assert!(!group.is_done());
        drop(lost);
        kept.finish(Ok(()));
        group.wait().await;
        let report = group.report();
        assert_eq!(report.stored, 2);
        assert_eq!(report.failures.iter().map(|f| f.tag).collect::<Vec<_>>(), [2]);
        assert!(matches!(report.failures.first().map(|f| &f.error), Some(PutError::Lost)));
    }

    #[tokio::test]
    async fn with_a_sink_failures_go_there() {
        let (sink, mut failures) = mpsc::channel(4);
        let group = CommitGroup::new(Some(sink));
        group.ticket(vec![7]).finish(Err(PutError::Throttled));
        group.handed_over();
        group.wait().await;
        assert!(group.report().failures.is_empty());
        assert!(matches!(
            failures.recv().await,
            Some(PointFailure { tag: 7, error: PutError::Throttled })
        ));
    }
}
