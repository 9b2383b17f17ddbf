//! What the faults are done to: a workload that can be asked how it fares.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::workload::{Workload, meter::Counts};

/// Writers and readers under way.
pub(crate) trait Load: Send + Sync {
    /// What is written through, for the table.
    fn name(&self) -> String;

    /// Counts so far.
    fn counts(&self) -> Counts;

    /// Longest wait of a writer for its acknowledgement since this was last asked.
    fn take_longest(&self) -> Duration;

    /// What was wrong so far.
    fn complaints(&self) -> Vec<String>;

    /// Writes to all regions and reads them, until that was done once.
    fn recover(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Reads everything; tells how much of what was acknowledged before is not there.
    fn prove(&self) -> BoxFuture<'_, Result<u64, String>>;

    /// Waits until every writer was acknowledged something more.
    fn progress(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Ends it and reads all back; says what is wrong.
    fn finish(&self) -> BoxFuture<'_, Result<Vec<String>, String>>;
}

impl Load for Workload {
    fn name(&self) -> String {
        "hbase-rs".to_owned()
    }

    fn counts(&self) -> Counts {
        self.counts()
    }

    fn take_longest(&self) -> Duration {
        self.take_longest()
    }

    fn complaints(&self) -> Vec<String> {
        self.complaints()
    }

    fn recover(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.recover())
    }

    fn prove(&self) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(self.prove())
    }

    fn progress(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.progress())
    }

    fn finish(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(self.finish())
    }
}
