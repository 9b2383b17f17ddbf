//! Verification of everything that a store keeps: a run with its progress and findings, and repairs.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{StorageError, Table};

/// Findings that a run keeps; more are counted.
const MAX_FINDINGS: usize = 1_000;
/// Work between two pauses of a paced run.
const WORK_SLICE: Duration = Duration::from_millis(5);
/// A paced run pauses this many times as long as it works: it leaves three quarters of a core, and of
/// the disk.
const PAUSES: u32 = 3;

/// Verifies a store. Its calls block on the disk.
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Reads everything that the store keeps and reports to `run` what is damaged. Changes nothing.
    ///
    /// # Errors
    ///
    /// An error that is none of a damaged file, or [`StorageError::Closed`] if the run was stopped.
    fn verify(&self, run: &VerifyRun) -> Result<(), StorageError>;

    /// Does what a finding says. One that is out of date changes nothing.
    ///
    /// # Errors
    ///
    /// An error of the disk; the repair can be repeated.
    fn repair(&self, action: &RepairAction) -> Result<(), StorageError>;
}

/// What a verification has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFinding {
    /// Path of the file.
    pub file: String,
    /// What is damaged, with the offset.
    pub what: String,
    /// What it costs.
    pub cost: String,
    /// What repairs it; `None` if nothing of the store does.
    pub action: Option<RepairAction>,
}

/// A repair of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairAction {
    /// The loss of a file in quarantine is accepted: what is intact of it stays.
    AcceptLoss {
        /// Its name in the quarantine.
        name: String,
    },
    /// A damaged section of a part is quarantined, and its loss accepted: what is intact of it stays.
    SalvageSection {
        /// The table.
        table: Table,
        /// Number of the file.
        file: u64,
        /// Index of the section.
        section: u32,
        /// What is damaged.
        what: String,
    },
    /// All sections of a part whose footer is damaged are copied to a new file.
    CopyPart {
        /// The table.
        table: Table,
        /// Number of the file.
        file: u64,
    },
    /// The manifest of a table and its copy are written anew.
    RewriteManifest {
        /// The table.
        table: Table,
    },
    /// The manifest of a table is made from its files. The store must not be open.
    RebuildManifest {
        /// The table.
        table: Table,
    },
    /// It is accepted that nothing of a table is there: it begins again without points. The store must not be
    /// open.
    ForgetTable {
        /// The table.
        table: Table,
    },
    /// It is accepted that a table is an older copy, without the rows that it had later. The store must not be open.
    AcceptOlderTable {
        /// The table.
        table: Table,
    },
    /// The series index of a table is built again from its rows.
    RebuildIndex {
        /// The table.
        table: Table,
    },
    /// What is intact of a file of a small table is copied to a new one, and the loss of the rest accepted.
    SalvageFile {
        /// The table.
        table: Table,
        /// Number of the file.
        file: u64,
        /// What is damaged.
        what: String,
    },
    /// What the open store has recorded of its retention is written anew.
    RewriteRetention,
    /// The file is left as it is now, and restored or quarantined by the next start of the store.
    Reopen,
}

impl fmt::Display for RepairAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AcceptLoss { name } => {
                write!(f, "accept the loss of {name}, and keep what is intact")
            }
            Self::SalvageSection { .. } | Self::SalvageFile { .. } => {
                f.write_str("copy what is intact to a new file, and remove the rest")
            }
            Self::CopyPart { .. } => f.write_str("copy all of it to a new file"),
            Self::RewriteManifest { .. } => f.write_str("write the manifest and its copy anew"),
            Self::RebuildManifest { .. } => f.write_str("make the manifest from the part files"),
            Self::ForgetTable { .. } => f.write_str("begin the table again, without points"),
            Self::AcceptOlderTable { .. } => f.write_str("go on with the older table"),
            Self::RebuildIndex { .. } => f.write_str("build the series index again"),
            Self::RewriteRetention => f.write_str("write it anew"),
            Self::Reopen => f.write_str("open the store, which restores it"),
        }
    }
}

/// A verification: who runs it and who watches it share this.
#[derive(Debug)]
pub struct VerifyRun {
    is_paced: bool,
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    is_stopped: AtomicBool,
    /// Start of the work since the last pause.
    slice: Mutex<Instant>,
    findings: Mutex<Vec<VerifyFinding>>,
    found: AtomicU64,
}

impl VerifyRun {
    /// A run that has not begun. A paced one leaves others most of the processor and the disk.
    #[must_use]
    pub fn new(is_paced: bool) -> Self {
        Self {
            is_paced,
            total_bytes: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            slice: Mutex::new(Instant::now()),
            findings: Mutex::default(),
            found: AtomicU64::new(0),
        }
    }

    /// Adds bytes that are to be read.
    pub fn plan(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were read, and pauses if it is time.
    ///
    /// # Errors
    ///
    /// [`StorageError::Closed`] if the run was stopped.
    pub fn read(&self, bytes: u64) -> Result<(), StorageError> {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.is_paced {
            let worked = lock(&self.slice).elapsed();
            if worked >= WORK_SLICE {
                std::thread::sleep(worked.min(WORK_SLICE * 20) * PAUSES);
                *lock(&self.slice) = Instant::now();
            }
        }
        if self.is_stopped.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Adds a finding.
    pub fn report(&self, finding: VerifyFinding) {
        self.found.fetch_add(1, Ordering::Relaxed);
        let mut findings = lock(&self.findings);
        if findings.len() < MAX_FINDINGS {
            findings.push(finding);
        }
    }

    /// Ends the run.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Bytes read, and bytes that are to be read in all, about.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let done = self.done_bytes.load(Ordering::Relaxed);
        (done, self.total_bytes.load(Ordering::Relaxed).max(done))
    }

    /// The findings so far, the first thousand of them.
    #[must_use]
    pub fn findings(&self) -> Vec<VerifyFinding> {
        lock(&self.findings).clone()
    }

    /// Number of findings.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }
}

// No code panics while it owns one of the locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_run_counts_and_stops() {
        let run = VerifyRun::new(true);
        run.plan(10);
        run.read(4).unwrap();
        assert_eq!(run.progress(), (4, 10));
        // What was planned is an estimate.
        run.read(8).unwrap();
        assert_eq!(run.progress(), (12, 12));
        run.stop();
        assert!(matches!(run.read(0), Err(StorageError::Closed)));
    }

    #[test]
    fn findings_beyond_the_limit_are_counted() {
        let run = VerifyRun::new(false);
        for at in 0..MAX_FINDINGS + 5 {
            let (file, what, cost) = (at.to_string(), String::new(), String::new());
            run.report(VerifyFinding { file, what, cost, action: None });
        }
        assert_eq!(run.findings().len(), MAX_FINDINGS);
        assert_eq!(run.found(), 1_005);
    }
}
