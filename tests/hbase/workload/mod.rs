//! Writers and readers of one table that never stop, and what they must see.
//!
//! Rows are only added, so every scan is checked in full: each row that was acknowledged before it
//! began is there once, in order, with its cells, and no row is there that nobody wrote. Counters,
//! journals and conditional changes beside them must happen exactly once.

pub(crate) mod ledger;
pub(crate) mod meter;
mod readers;
mod writers;

use std::{
    error::Error,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use hbase_rs::{Client, FamilyDescriptor, OperationError, Table, TableDescriptor, TableName};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use self::writers::touch_all;
use self::{
    ledger::{FAMILY, Ledger, SPLITS, Verdict},
    meter::{Counts, Meter},
    readers::{Manner, get_on, scan, scan_on},
    writers::{Kind, change, check_changed, write_batches, write_rows},
};

/// Writers of rows: two of batches, one of single rows. Writers of changed rows come after them.
const ROW_WRITERS: usize = 3;
/// For so long a read may be awaited: several operations, each with its own end.
const PATIENCE: Duration = Duration::from_mins(4);

/// A workload under way.
#[derive(Debug)]
pub(crate) struct Workload {
    shared: Arc<Shared>,
    table: Table,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What its tasks share.
#[derive(Debug)]
struct Shared {
    rows: Ledger,
    changes: Ledger,
    meter: Meter,
    over: AtomicBool,
    /// Between the writes of one writer.
    pause: Duration,
    /// The first things that were wrong.
    complaints: Mutex<Vec<String>>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn complain(&self, what: String) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() < 100 {
            complaints.push(what);
        }
    }

    fn write_failed(&self, what: &str, error: &OperationError) {
        self.meter.refused();
        self.complain(format!("{what}: {}", chain(error)));
    }

    fn read_failed(&self, what: &str, error: &OperationError) {
        self.meter.failed_read();
        self.complain(format!("{what}: {}", chain(error)));
    }

    fn scanned(&self, verdict: &Verdict) {
        self.meter.read(verdict.is_good());
        if !verdict.is_good() {
            self.complain(format!("scan: {verdict:?}"));
        }
    }
}

impl Workload {
    /// Makes the table for it.
    pub(crate) async fn create_table(
        client: &Client,
        name: &TableName,
    ) -> Result<(), OperationError> {
        let family = FamilyDescriptor::new(FAMILY);
        let table = TableDescriptor::new(name.clone()).family(family);
        client.admin().create_table(&table, SPLITS.map(Into::into)).await
    }

    /// Begins, on an empty table.
    pub(crate) fn start(table: &Table, pause: Duration) -> Self {
        let shared = Arc::new(Shared {
            rows: Ledger::new(ROW_WRITERS),
            changes: Ledger::new(Kind::ALL.len()),
            meter: Meter::new(ROW_WRITERS + Kind::ALL.len()),
            over: AtomicBool::default(),
            pause,
            complaints: Mutex::default(),
        });
        let both = || (Arc::clone(&shared), table.clone());
        let mut tasks = Vec::new();
        for writer in 0..ROW_WRITERS {
            let (shared, table) = both();
            tasks.push(if writer + 1 < ROW_WRITERS {
                tokio::spawn(write_batches(shared, table, writer))
            } else {
                tokio::spawn(write_rows(shared, table, writer))
            });
        }
        for kind in Kind::ALL {
            let (shared, table) = both();
            tasks.push(tokio::spawn(change(shared, table, kind)));
        }
        for manner in [
            Manner::default(),
            Manner { reversed: true, rest_after: None },
            Manner { reversed: false, rest_after: Some(400) },
            Manner { reversed: true, rest_after: Some(400) },
        ] {
            let (shared, table) = both();
            tasks.push(tokio::spawn(scan_on(shared, table, manner)));
        }
        tasks.push(tokio::spawn(get_on(both().0, both().1)));
        Self { table: table.clone(), shared, tasks: Mutex::new(tasks) }
    }

    /// Counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.shared.meter.counts(self.shared.rows.total() + self.shared.changes.total())
    }

    /// Longest wait of a writer for its acknowledgement since this was last asked.
    pub(crate) fn take_longest(&self) -> Duration {
        self.shared.meter.take_longest()
    }

    /// What was wrong so far.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes to all regions and reads them, until that was done once.
    pub(crate) async fn recover(&self) -> Result<(), String> {
        let recovery = async {
            while let Err(error) = touch_all(&self.table).await {
                self.shared.write_failed("touch", &error);
            }
        };
        let recovered = timeout(PATIENCE, recovery).await;
        recovered.map_err(|_| format!("no write to and read of all regions in {PATIENCE:?}"))
    }

    /// Reads all rows; how many that were acknowledged are missing.
    pub(crate) async fn prove(&self) -> Result<u64, String> {
        let proof = async {
            loop {
                match scan(&self.shared, &self.table, Manner::default()).await {
                    Ok(verdict) => {
                        self.shared.scanned(&verdict);
                        return verdict.missing;
                    }
                    Err(error) => self.shared.read_failed("scan", &error),
                }
            }
        };
        let proven = timeout(PATIENCE, proof).await;
        proven.map_err(|_| format!("no scan in {PATIENCE:?}"))
    }

    /// Waits until every writer was acknowledged something more.
    pub(crate) async fn progress(&self) -> Result<(), String> {
        let acknowledged =
            || [self.shared.rows.acknowledged(), self.shared.changes.acknowledged()].concat();
        let before = acknowledged();
        let deadline = Instant::now() + PATIENCE;
        while acknowledged().iter().zip(&before).any(|(now, before)| now == before) {
            if Instant::now() > deadline {
                return Err(format!("writers stand still: {before:?}, {:?}", acknowledged()));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Ends it and reads all back; says what is wrong.
    pub(crate) async fn finish(&self) -> Result<Vec<String>, String> {
        self.shared.over.store(true, SeqCst);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let ended = timeout(PATIENCE, task).await;
            let ended = ended.map_err(|_| format!("a task does not end in {PATIENCE:?}"))?;
            ended.map_err(|error| error.to_string())?;
        }
        let failed = |error: OperationError| chain(&error);
        let mut wrong = Vec::new();
        for reversed in [false, true] {
            let manner = Manner { reversed, rest_after: None };
            let verdict = scan(&self.shared, &self.table, manner).await.map_err(failed)?;
            self.shared.scanned(&verdict);
            if !verdict.is_good() || verdict.rows != self.shared.rows.total() {
                wrong.push(format!("read back: {verdict:?} of {}", self.shared.rows.total()));
            }
        }
        for (kind, times) in Kind::ALL.into_iter().zip(self.shared.changes.acknowledged()) {
            wrong.extend(check_changed(&self.table, kind, times).await.map_err(failed)?);
        }
        Ok(wrong)
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
