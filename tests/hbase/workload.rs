//! The interface of workloads under faults: on the HBase client, and on a daemon.

use parking_lot::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tsd_testkit::hbase_workload::{AckTracker, TableWorkload, WorkloadCounts};

/// Running writers and readers.
pub(crate) trait Workload: Send + Sync {
    /// Name of the workload in the fault table.
    fn name(&self) -> String;

    /// Counters since the start.
    fn counts(&self) -> WorkloadCounts;

    /// Takes the longest wait of a writer for its acknowledgement since the last call.
    fn take_longest_wait(&self) -> Duration;

    /// The first problems found.
    fn problems(&self) -> Vec<String>;

    /// Writes to all regions and reads them until that succeeds.
    fn wait_for_recovery(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Reads everything until that succeeds; returns the number of missing acknowledged writes.
    fn count_lost(&self) -> BoxFuture<'_, Result<u64, String>>;

    /// Waits until every writer has one more acknowledgement.
    fn wait_for_progress(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Stops all tasks and reads everything back; returns the problems.
    fn finish(&self) -> BoxFuture<'_, Result<Vec<String>, String>>;
}

impl Workload for TableWorkload {
    fn name(&self) -> String {
        "hbase-rs".to_owned()
    }

    fn counts(&self) -> WorkloadCounts {
        self.counts()
    }

    fn take_longest_wait(&self) -> Duration {
        self.take_longest_wait()
    }

    fn problems(&self) -> Vec<String> {
        self.problems()
    }

    fn wait_for_recovery(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.wait_for_recovery())
    }

    fn count_lost(&self) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(self.count_lost())
    }

    fn wait_for_progress(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.wait_for_progress())
    }

    fn finish(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(self.finish())
    }
}

/// Waits until every writer has had a point acknowledged, `longest` at most.
pub(crate) async fn await_acknowledgements(
    points: &AckTracker,
    longest: Duration,
) -> Result<(), String> {
    let before = points.acknowledged();
    let deadline = Instant::now() + longest;
    while points.acknowledged().iter().zip(&before).any(|(a, b)| a == b) {
        if Instant::now() > deadline {
            return Err(format!("no acknowledgement after {before:?}"));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Waits for tasks that were told to stop, `longest` at most for each.
pub(crate) async fn await_tasks(
    tasks: &Mutex<Vec<JoinHandle<()>>>,
    longest: Duration,
) -> Result<(), String> {
    let tasks = std::mem::take(&mut *tasks.lock());
    for task in tasks {
        let ended = timeout(longest, task).await;
        let ended = ended.map_err(|_| format!("a task does not end in {longest:?}"))?;
        ended.map_err(|error| error.to_string())?;
    }
    Ok(())
}
