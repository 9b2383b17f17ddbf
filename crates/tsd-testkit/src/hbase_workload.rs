//! Concurrent writers and readers of one HBase table, which check everything that they read.
//!
//! Rows are only added, so every scan is checked in full. It must return each row that was
//! acknowledged before its start once, in order, with its cells, and no unwritten row. Concurrent
//! increments, appends and conditional puts must take effect exactly once.

mod ack_tracker;
mod error_chain;
mod readers;
mod scan_check;
mod state;
mod stats;
mod writers;

use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use hbase_rs::{
    Client, OperationError, Table, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

pub use self::{
    ack_tracker::AckTracker,
    error_chain::error_chain,
    stats::{WorkloadCounts, WorkloadStats},
};
use self::{
    ack_tracker::{FAMILY, SPLITS},
    readers::{ScanOptions, get_repeatedly, scan_repeatedly, scan_table},
    state::{ROW_WRITERS, WorkloadState},
    writers::{
        AtomicUpdate, check_updates, touch_all_regions, update_repeatedly, write_batches,
        write_rows,
    },
};

/// Longest wait for a read: several operations, each with its own timeout.
const TIMEOUT: Duration = Duration::from_mins(4);

/// A running workload.
#[derive(Debug)]
pub struct TableWorkload {
    state: Arc<WorkloadState>,
    table: Table,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl TableWorkload {
    /// Creates the table of a workload.
    pub async fn create_table(client: &Client, name: &TableName) -> Result<(), OperationError> {
        let family = FamilyDescriptor::new(FAMILY);
        let table = TableDescriptor::new(name.clone()).family(family);
        client.admin().create_table(&table, SPLITS.map(Into::into)).await
    }

    /// Starts writers and readers on an empty table, with `pause` between the writes of a writer.
    #[must_use]
    pub fn start(table: &Table, pause: Duration) -> Self {
        let state = Arc::new(WorkloadState {
            rows: AckTracker::new(ROW_WRITERS),
            updates: AckTracker::new(AtomicUpdate::ALL.len()),
            stats: WorkloadStats::new(ROW_WRITERS + AtomicUpdate::ALL.len()),
            stopped: AtomicBool::default(),
            pause,
            problems: Mutex::default(),
        });
        let shared = || (Arc::clone(&state), table.clone());
        let mut tasks = Vec::new();
        for writer in 0..ROW_WRITERS {
            let (state, table) = shared();
            tasks.push(if writer + 1 < ROW_WRITERS {
                tokio::spawn(write_batches(state, table, writer))
            } else {
                tokio::spawn(write_rows(state, table, writer))
            });
        }
        for kind in AtomicUpdate::ALL {
            let (state, table) = shared();
            tasks.push(tokio::spawn(update_repeatedly(state, table, kind)));
        }
        for options in [
            ScanOptions::default(),
            ScanOptions { reversed: true, pause_after: None },
            ScanOptions { reversed: false, pause_after: Some(400) },
            ScanOptions { reversed: true, pause_after: Some(400) },
        ] {
            let (state, table) = shared();
            tasks.push(tokio::spawn(scan_repeatedly(state, table, options)));
        }
        tasks.push(tokio::spawn(get_repeatedly(shared().0, shared().1)));
        Self { table: table.clone(), state, tasks: Mutex::new(tasks) }
    }

    /// Counters since the start.
    #[must_use]
    pub fn counts(&self) -> WorkloadCounts {
        self.state.stats.counts(self.state.rows.total() + self.state.updates.total())
    }

    /// Takes the longest wait of a writer for its acknowledgement since the last call.
    #[must_use]
    pub fn take_longest_wait(&self) -> Duration {
        self.state.stats.take_longest_wait()
    }

    /// The first problems found.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.state.problems.lock().clone()
    }

    /// Writes to all regions and reads them until that succeeds.
    pub async fn wait_for_recovery(&self) -> Result<(), String> {
        let recovery = async {
            while let Err(error) = touch_all_regions(&self.table).await {
                self.state.record_failed_write("touch", &error);
            }
        };
        let recovered = timeout(TIMEOUT, recovery).await;
        recovered.map_err(|_| format!("no write to and read of all regions in {TIMEOUT:?}"))
    }

    /// Reads all rows until that succeeds; returns the number of missing acknowledged rows.
    pub async fn count_lost(&self) -> Result<u64, String> {
        let scan = async {
            loop {
                match scan_table(&self.state, &self.table, ScanOptions::default()).await {
                    Ok(report) => {
                        self.state.record_scan(&report);
                        return report.missing;
                    }
                    Err(error) => self.state.record_failed_read("scan", &error),
                }
            }
        };
        timeout(TIMEOUT, scan).await.map_err(|_| format!("no scan in {TIMEOUT:?}"))
    }

    /// Waits until every writer has one more acknowledgement.
    pub async fn wait_for_progress(&self) -> Result<(), String> {
        let acknowledged =
            || [self.state.rows.acknowledged(), self.state.updates.acknowledged()].concat();
        let before = acknowledged();
        let deadline = Instant::now() + TIMEOUT;
        while acknowledged().iter().zip(&before).any(|(now, before)| now == before) {
            if Instant::now() > deadline {
                return Err(format!("no progress of a writer: {before:?}, {:?}", acknowledged()));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Stops all tasks and reads everything back; returns the problems.
    pub async fn finish(&self) -> Result<Vec<String>, String> {
        self.state.stopped.store(true, SeqCst);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let ended = timeout(TIMEOUT, task).await;
            let ended = ended.map_err(|_| format!("a task does not end in {TIMEOUT:?}"))?;
            ended.map_err(|error| error.to_string())?;
        }
        let failed = |error: OperationError| error_chain(&error);
        let mut wrong = Vec::new();
        for reversed in [false, true] {
            let options = ScanOptions { reversed, pause_after: None };
            let report = scan_table(&self.state, &self.table, options).await.map_err(failed)?;
            self.state.record_scan(&report);
            if !report.is_correct() || report.rows != self.state.rows.total() {
                wrong.push(format!("read back: {report:?} of {}", self.state.rows.total()));
            }
        }
        for (kind, count) in AtomicUpdate::ALL.into_iter().zip(self.state.updates.acknowledged()) {
            wrong.extend(check_updates(&self.table, kind, count).await.map_err(failed)?);
        }
        Ok(wrong)
    }
}
