//! Completion of a chunk: counts its batches down until each is durable or has failed.
//!
//! Many write actors write a chunk. One shared countdown costs one allocation per chunk; a channel per actor would
//! cost one per salt bucket.

use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Notify, mpsc};

use crate::{
    point_plugins::{PointPlugins, PointRecord},
    put_error::{CommitReport, PointFailure, PutError},
};

/// Countdown of one chunk.
#[derive(Debug)]
pub(crate) struct CommitGroup {
    // Batches without a result, plus one until all batches are submitted.
    open: AtomicUsize,
    report: Mutex<CommitReport>,
    done: Notify,
    failures: Option<mpsc::UnboundedSender<PointFailure>>,
    /// True if points are held while the store does not accept them.
    holds: bool,
}

/// Completion of one write actor's batch of a chunk. Dropping it fails the points of the batch as lost.
#[derive(Debug)]
pub(crate) struct WriteCompletion {
    group: Arc<CommitGroup>,
    tags: Vec<u32>,
    /// The points, if a plug-in gets them.
    records: Option<Records>,
}

/// The points of a completion, for the plug-ins.
#[derive(Debug)]
struct Records {
    plugins: PointPlugins,
    points: Vec<PointRecord>,
}

impl CommitGroup {
    /// A countdown that stays open until [`Self::close_one`]. With a channel, failures are sent to it and not added to
    /// the report.
    pub(crate) fn new(
        failures: Option<mpsc::UnboundedSender<PointFailure>>,
        holds: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(1),
            report: Mutex::new(CommitReport::default()),
            done: Notify::new(),
            failures,
            holds,
        })
    }

    /// Opens a batch of the chunk: the points with these tags.
    pub(crate) fn completion(self: &Arc<Self>, tags: Vec<u32>) -> WriteCompletion {
        self.open.fetch_add(1, Ordering::Relaxed);
        WriteCompletion { group: Arc::clone(self), tags, records: None }
    }

    /// Reports failures of points that are in no batch.
    pub(crate) fn fail(&self, failures: impl IntoIterator<Item = PointFailure>) {
        if let Some(sender) = &self.failures {
            for failure in failures {
                // An error means that the session has ended.
                if sender.send(failure).is_err() {
                    metrics::counter!("tsd_ingest_unreported_failures_total").increment(1);
                }
            }
        } else {
            let mut report = self.report.lock();
            report.failures.extend(failures);
        }
    }

    /// True if points are held while the store does not accept them.
    pub(crate) const fn holds(&self) -> bool {
        self.holds
    }

    /// True if the session may have several chunks in flight.
    pub(crate) const fn is_pipelined(&self) -> bool {
        self.failures.is_some()
    }

    /// Ends a batch, or the submission. The chunk is done when all have ended.
    pub(crate) fn close_one(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    /// True if every batch has a result.
    pub(crate) fn is_done(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Waits until every batch has a result. Supports one waiter at a time.
    pub(crate) async fn wait(&self) {
        while !self.is_done() {
            self.done.notified().await;
        }
    }

    /// Takes the results so far. Failures are in the order of their tags.
    pub(crate) fn take_report(&self) -> CommitReport {
        let mut report = std::mem::take(&mut *self.report.lock());
        report.failures.sort_by_key(|f| f.tag);
        report
    }

    fn complete(&self, tags: &mut Vec<u32>, result: Result<(), PutError>) {
        let tags = std::mem::take(tags);
        match result {
            Ok(()) => {
                let mut report = self.report.lock();
                report.stored += tags.len();
            }
            Err(error) => {
                self.fail(tags.iter().map(|&tag| PointFailure::new(tag, error.clone())));
            }
        }
    }
}

impl WriteCompletion {
    /// Number of points of this batch.
    pub(crate) fn points(&self) -> usize {
        self.tags.len()
    }

    /// True if the session may have several chunks in flight, whose writes must stay in order.
    pub(crate) fn is_pipelined(&self) -> bool {
        self.group.is_pipelined()
    }

    /// True if the points are held while the store does not accept them.
    pub(crate) fn holds(&self) -> bool {
        self.group.holds()
    }

    /// Passes these points on to the plug-ins when the result is set.
    pub(crate) fn with_records(mut self, plugins: &PointPlugins, points: Vec<PointRecord>) -> Self {
        if !points.is_empty() {
            self.records = Some(Records { plugins: plugins.clone(), points });
        }
        self
    }

    /// Sets the result of this batch.
    pub(crate) fn complete(mut self, result: Result<(), PutError>) {
        self.pass_on(result.as_ref().copied());
        self.group.complete(&mut self.tags, result);
    }

    fn pass_on(&mut self, result: Result<(), &PutError>) {
        if let Some(Records { plugins, points }) = self.records.take() {
            plugins.written(points, result);
        }
    }
}

impl Drop for WriteCompletion {
    fn drop(&mut self) {
        if !self.tags.is_empty() {
            self.pass_on(Err(&PutError::Lost));
            self.group.complete(&mut self.tags, Err(PutError::Lost));
        }
        self.group.close_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropped_completion_fails_its_points_and_ends_the_wait() {
        let group = CommitGroup::new(None, false);
        let (kept, lost) = (group.completion(vec![3, 1]), group.completion(vec![2]));
        group.close_one();
        assert!(!group.is_done());
        drop(lost);
        kept.complete(Ok(()));
        group.wait().await;
        let report = group.take_report();
        assert_eq!(report.stored, 2);
        assert_eq!(report.failures.iter().map(|f| f.tag).collect::<Vec<_>>(), [2]);
        assert!(matches!(report.failures.first().map(|f| &f.error), Some(PutError::Lost)));
    }

    #[tokio::test]
    async fn failures_are_sent_to_the_channel() {
        let (sender, mut failures) = mpsc::unbounded_channel();
        let group = CommitGroup::new(Some(sender), false);
        group.completion(vec![7]).complete(Err(PutError::Throttled("test")));
        group.close_one();
        group.wait().await;
        assert!(group.take_report().failures.is_empty());
        assert!(matches!(
            failures.recv().await,
            Some(PointFailure { tag: 7, error: PutError::Throttled(_), .. })
        ));
    }
}
